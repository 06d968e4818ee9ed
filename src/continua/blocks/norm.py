"""The norm and the activation of the papers' fields."""

from collections.abc import Callable
from difflib import get_close_matches
from math import gcd

import torch
from torch import Tensor, nn
from torch.nn import functional

from continua.errors import ConfigError

# The in-place forms save a pass over memory; they are safe after a norm, whose backward does not need its own output.
ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "celu": (functional.celu, torch.celu_),
    "relu": (functional.relu, torch.relu_),
    "gelu": (functional.gelu, functional.gelu),
    "silu": (functional.silu, functional.silu),
    "softplus": (functional.softplus, functional.softplus),
    "tanh": (torch.tanh, torch.tanh_),
    "identity": (lambda x: x, lambda x: x),
}


class Activation(nn.Module):
    """A pointwise nonlinearity by name. `forward(x, overwrite=True)` may reuse x's memory."""

    def __init__(self, name: str) -> None:
        super().__init__()
        if name not in ACTIVATIONS:
            near = get_close_matches(str(name), ACTIVATIONS, n=1)
            raise ConfigError(
                f"unknown activation {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(ACTIVATIONS)}")
            )
        self.name = name

    def forward(self, x: Tensor, overwrite: bool = False) -> Tensor:
        return ACTIVATIONS[self.name][overwrite](x)

    def extra_repr(self) -> str:
        return self.name


def group_norm(channels: int, groups: "int | str" = 32) -> nn.GroupNorm:
    """GroupNorm with at most `groups` groups ("channels": one per channel); fewer where the channels do not divide."""
    if groups == "channels":
        return nn.GroupNorm(channels, channels)
    if not isinstance(groups, int) or groups < 1:
        raise ConfigError(f"norm_groups={groups!r}; expected a whole number of at least 1, or 'channels'")
    return nn.GroupNorm(channels if channels <= groups else gcd(channels, groups), channels)
