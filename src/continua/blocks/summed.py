"""One time-step of an explicit Runge–Kutta method in the form that eq. 4 of RKNet starts from: each stage reads one sum.

    h b_i z_i = f_i(y_n + Σ_j c_ij h b_j z_j),   j < i        f_i of eq. 4, c_ij = a_ij / b_j learned, one number each
    h b_i z_i = F_i(y_n, h b_1 z_1, …)                         F_i, what `ERKStep` computes from the terms side by side

F_i can be any f_i where the two are linear: a convolution over terms side by side is a sum of convolutions, and `as_concatenated` writes
one into the other exactly. Behind a norm and an activation they part: F_i standardises and bends every term by itself, f_i their sum.
Then only the first stage, which has one term, is the same.
"""

import torch
from torch import Tensor, nn

from continua.blocks.concat_conv import MakeFilter, kernel_of
from continua.blocks.erk import ERKStep, Growth
from continua.blocks.norm import Standardise, Style
from continua.blocks.period import RKStep, channel_strength, check_channels, check_sizes
from continua.blocks.typed_modules import module_list
from continua.errors import ConfigError
from continua.filters import Pixel


class SummedStep(RKStep):
    """`stages` convolutions of all `growth`·`m` channels, each of y_n and the increments before it added up.

    Args:
        bottleneck: channels of the 1×1 convolution before each 3×3; None: no bottleneck
        uses: how often the step is taken with the same weights; the statistics of its batch norms are each use's own
        make_filter: (inputs, outputs) -> Filter; 3×3 pixels by default
    """

    def __init__(
        self,
        growth: int,
        stages: int,
        m: int = 1,
        *,
        bottleneck: int | None = None,
        uses: int = 1,
        make_filter: MakeFilter = Pixel,
        style: Style | None = None,
    ) -> None:
        super().__init__()
        check_sizes(growth=growth, stages=stages, m=m, uses=uses, bottleneck=1 if bottleneck is None else bottleneck)
        self.growth, self.stages, self.m, self.uses = growth, stages, m, uses
        self.bottleneck, self.style, self.channels = bottleneck, style or Style(), m * growth
        self.growths = module_list(Growth(self.channels, self.channels, bottleneck, make_filter, self.style) for _ in range(stages))
        self.coefficients = nn.Parameter(torch.ones(stages * (stages - 1) // 2))
        self.statistics = module_list(module_list(Standardise(self.channels, self.style) for _ in range(stages)) for _ in range(uses))
        self.necks = (
            None
            if bottleneck is None
            else module_list(module_list(Standardise(bottleneck, self.style) for _ in range(stages)) for _ in range(uses))
        )

    def reads(self, stage: int) -> Tensor:
        """c_ij of this stage for each stage before it."""
        first = stage * (stage - 1) // 2
        return self.coefficients[first : first + stage]

    def increments(self, y: Tensor, use: int = 0) -> list[Tensor]:
        """h b_i z_i for each stage i."""
        check_channels(y, self.channels)
        grown: list[Tensor] = []
        for stage, (growth, standardise) in enumerate(zip(self.growths, self.statistics[use], strict=True)):
            total = y
            for share, increment in zip(self.reads(stage), grown, strict=True):
                total = total + share.to(y.dtype) * increment
            grown.append(growth([standardise(total)], None if self.necks is None else self.necks[use][stage]))
        return grown

    def dependence(self) -> Tensor:
        """How strongly stage i (row) reads y_n (column 0) and stage j (column j), (s, s + 1)."""
        reads = torch.zeros(self.stages, self.stages + 1)
        for stage, growth in enumerate(self.growths):
            reads[stage, 0] = channel_strength(growth.affine, kernel_of(growth.narrow or growth.conv)).sum()
            reads[stage, 1 : 1 + stage] = self.reads(stage).detach().float().square().cpu() * reads[stage, 0]
        return reads.sqrt()

    def extra_repr(self) -> str:
        neck = "" if self.bottleneck is None else f", bottleneck={self.bottleneck}"
        return f"growth={self.growth}, stages={self.stages}, m={self.m}{neck}" + (f", uses={self.uses}" if self.uses > 1 else "")


@torch.no_grad()
def as_concatenated(step: SummedStep) -> ERKStep:
    """The step F_i that computes the same as f_i: kernels c_ij W_i for every stage that is read.

    Args:
        step: with identity norm and activation, no dropout and no bottleneck, for which alone there is one.

    Returns:
        A step of the same increments.

    Raises:
        ConfigError: the step is not linear, or its kernels are not pixels.

    Examples:
        >>> from continua.blocks import Style, SummedStep, as_concatenated
        >>> step = SummedStep(4, stages=3, style=Style(norm="identity", activation="identity"))
        >>> as_concatenated(step).stages
        3
    """
    style = step.style
    if style.norm != "identity" or style.activation != "identity" or style.dropout or step.bottleneck is not None:
        raise ConfigError(
            "f_i and F_i are the same where they are linear: the step needs Style(norm='identity', activation='identity'), no dropout and "
            "no bottleneck"
        )
    made = ERKStep(step.growth, step.stages, step.m, uses=step.uses, style=style)
    made = made.to(step.coefficients.device, step.coefficients.dtype)
    for index, growth in enumerate(made.growths):
        stage, part = divmod(index, step.m)
        source, target = step.growths[stage].conv.filter, growth.conv.filter
        if not isinstance(source, Pixel) or not isinstance(target, Pixel):
            raise ConfigError(f"kernels can be written into Pixel filters only, not from {type(source).__name__}")
        rows = source.weight[part * step.growth : (part + 1) * step.growth]
        read = torch.cat([rows, *(share * rows for share in step.reads(stage))], 1)
        target.weight.zero_()
        target.weight[:, : read.shape[1]] = read
    return made
