"""A period of a Runge–Kutta network: one dynamical system, advanced by r time-steps of the same kind (RKNet §3.2, fig. 1)."""

from collections.abc import Sequence

from torch import Tensor, nn

from continua.blocks.concat_conv import Affine
from continua.blocks.norm import Style
from continua.blocks.typed_modules import module_list
from continua.errors import ConfigError


class RKStep(nn.Module):
    """One time-step y_n → y_{n+1} of a Runge–Kutta method whose coefficients are learned: `ERKStep` or `IRKStep`.

    y_n has `channels` channels; a step that was built with `uses=r` is taken r times with the same weights.
    """

    channels: int
    growth: int
    stages: int
    uses: int
    bottleneck: int | None
    style: Style

    def increments(self, y: Tensor, use: int = 0) -> list[Tensor]:
        """h b_i z_i for each stage i."""
        raise TypeError(f"{type(self).__name__} must define increments(y, use).")

    def dependence(self) -> Tensor:
        """How strongly stage i (row) reads y_n (column 0) and stage j (column j), (s, s + 1)."""
        raise TypeError(f"{type(self).__name__} must define dependence().")

    def forward(self, y: Tensor, use: int = 0) -> Tensor:
        """y_{n+1} = y_n + Σ_i h b_i z_i (RKNet eq. 2)."""
        for increment in self.increments(y, use):
            y = y + increment
        return y


class Period(nn.Module):
    """y_0 → y_1 → … → y_r. Either r steps with weights of their own, or one step that was built with `uses=r`."""

    def __init__(self, steps: Sequence[RKStep]) -> None:
        super().__init__()
        if not steps or (len(steps) > 1 and any(step.uses > 1 for step in steps)):
            raise ConfigError("a period needs time-steps: several with weights of their own, or one step taken several times (uses=r)")
        self.steps = module_list(steps)

    @property
    def first(self) -> RKStep:
        """Any step: they are all of the same kind and size."""
        return self.steps[0]

    @property
    def taken(self) -> list[tuple[RKStep, int]]:
        """The time-steps in order: the step, and which of its uses this is."""
        return [(step, use) for step in self.steps for use in range(step.uses)]

    def forward(self, y: Tensor) -> Tensor:
        for step, use in self.taken:
            y = step(y, use)
        return y

    def states(self, y: Tensor) -> list[Tensor]:
        """y before the first time-step and after each."""
        states = [y]
        for step, use in self.taken:
            states.append(step(states[-1], use))
        return states


def channel_strength(affine: Affine, weight: Tensor) -> Tensor:
    """Σ (γ_c W_oc)² of each input channel c: how much of it reaches a convolution whose inputs have variance 1."""
    strength = weight.detach().float().square().sum((0, 2, 3)).cpu()
    return strength if affine.weight is None else strength * affine.weight.detach().float().square().cpu()


def check_sizes(**sizes: int) -> None:
    for name, value in sizes.items():
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"{name}={value!r}; expected a whole number of at least 1")


def check_channels(y: Tensor, channels: int) -> None:
    if y.ndim != 4 or y.shape[1] != channels:
        raise ConfigError(f"this time-step carries maps of {channels} channels, (batch, {channels}, height, width); got {tuple(y.shape)}")
