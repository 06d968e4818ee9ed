"""One time-step of an explicit Runge–Kutta method whose coefficients are learned: a dense block and a sum (RKNet §3.3.1, fig. 2).

    h b_i z_i = E_i(y_n, h b_1 z_1, …, h b_{i−1} z_{i−1}),        y_{n+1} = y_n + Σ_i h b_i z_i        (RKNet eqs. 5 and 2)

y_n has m·k channels. Each growth reads all that is there and adds k channels; m growths make one group, which stands for h b_i z_i.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from continua.blocks.concat_conv import Affine, MakeFilter, kernel_of, norm_act_conv, pointwise, static_conv
from continua.blocks.norm import Standardise, Style
from continua.blocks.period import RKStep, channel_strength, check_channels, check_sizes
from continua.blocks.typed_modules import module_list
from continua.filters import Pixel


class Growth(nn.Module):
    """k channels out of all that is there: norm → act → 3×3; with a bottleneck of n channels norm → act → 1×1 to n → norm → act → 3×3."""

    def __init__(self, inputs: int, outputs: int, bottleneck: int | None, make_filter: MakeFilter, style: Style) -> None:
        super().__init__()
        self.style = style
        self.affine = Affine(inputs, style)
        self.narrow = None if bottleneck is None else pointwise(inputs, bottleneck)
        self.neck = None if bottleneck is None else Affine(bottleneck, style)
        self.conv = static_conv(make_filter, bottleneck or inputs, outputs)

    def forward(self, parts: list[Tensor], neck: Standardise | None = None) -> Tensor:
        """`parts` are standardised; `neck` standardises the bottleneck."""
        affine = self.affine
        if self.narrow is not None and self.neck is not None and neck is not None:
            parts, affine = [neck(norm_act_conv(parts, affine, kernel_of(self.narrow), self.style))], self.neck
        return functional.dropout(norm_act_conv(parts, affine, kernel_of(self.conv), self.style), self.style.dropout, self.training)


class _Statistics(nn.Module):
    """Standardisers of one time-step: of y_n, of each growth that is read again, of each bottleneck."""

    def __init__(self, channels: int, growth: int, growths: int, bottleneck: int | None, style: Style) -> None:
        super().__init__()
        self.parts = module_list(Standardise(growth if index else channels, style) for index in range(growths))
        self.necks = module_list(Standardise(bottleneck, style) for _ in range(growths)) if bottleneck is not None else None


class ERKStep(RKStep):
    """`stages` groups of `m` growths of `growth` channels, added to y_n.

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
        self.growths = module_list(Growth(growth * (m + index), growth, bottleneck, make_filter, self.style) for index in range(m * stages))
        self.statistics = module_list(_Statistics(self.channels, growth, m * stages, bottleneck, self.style) for _ in range(uses))

    def increments(self, y: Tensor, use: int = 0) -> list[Tensor]:
        """h b_i z_i for each stage i."""
        check_channels(y, self.channels)
        grown: list[Tensor] = []
        parts: list[Tensor] = []
        statistics = self.statistics[use]
        necks = statistics.necks or [None] * len(self.growths)
        for growth, standardise, neck in zip(self.growths, statistics.parts, necks, strict=True):
            parts.append(standardise(grown[-1] if grown else y))
            grown.append(growth(parts, neck))
        if self.m == 1:
            return grown
        return [torch.cat(grown[at : at + self.m], 1) for at in range(0, len(grown), self.m)]

    def dependence(self) -> Tensor:
        """How strongly stage i (row) reads y_n (column 0) and stage j (column j): root of the summed squares of γ·W, (s, s + 1).

        Below the diagonal of columns 1 … s lies what an explicit method may use. With m > 1 the diagonal holds what the growths of a
        group read of one another.
        """
        reads = torch.zeros(self.stages, self.stages + 1)
        for index, growth in enumerate(self.growths):
            strength = channel_strength(growth.affine, kernel_of(growth.narrow or growth.conv))
            reads[index // self.m, 0] += strength[: self.channels].sum()
            for source, part in enumerate(strength[self.channels :].split(self.growth)):
                reads[index // self.m, 1 + source // self.m] += part.sum()
        return reads.sqrt()

    def extra_repr(self) -> str:
        neck = "" if self.bottleneck is None else f", bottleneck={self.bottleneck}"
        return f"growth={self.growth}, stages={self.stages}, m={self.m}{neck}" + (f", uses={self.uses}" if self.uses > 1 else "")
