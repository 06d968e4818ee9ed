"""One time-step of an implicit Runge–Kutta method whose coefficients are learned: a clique block and a sum (RKNet §3.3.2, fig. 3).

Stage I grows the increments h b_i z_i one after the other, as a dense block does. Then each is updated from all the others,

    h b_i z_i = I_i(h b_1 z_1, …, h b_{i−1} z_{i−1}, h b_{i+1} z_{i+1}, …, h b_s z_s)        (RKNet eq. 6)

with the kernels of stage I where they exist: one kernel W_ji from each j to each i, s² of them with those from y_n. Last,
y_{n+1} = y_n + Σ_i h b_i z_i.

The printed update is homogeneous: it leaves y_n out, so repeating it cannot converge to the solution of an implicit method.
`state_in_update=True` puts y_n in, and then it can (the author's later code does the same).
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from continua.blocks.concat_conv import Affine, MakeFilter, kernel_of, norm_act_conv, pointwise, static_conv
from continua.blocks.norm import Standardise, Style
from continua.blocks.period import RKStep, channel_strength, check_channels, check_sizes
from continua.blocks.typed_modules import module_list
from continua.errors import ConfigError
from continua.filters import Pixel

ORDERS = ("gauss-seidel", "jacobi")


class Node(nn.Module):
    """One stage: a kernel over [y_n, all other stages], of which stage I reads the first part and the update the last."""

    def __init__(
        self,
        index: int,
        channels: int,
        growth: int,
        stages: int,
        bottleneck: int | None,
        update: int,
        make_filter: MakeFilter,
        style: Style,
    ) -> None:
        super().__init__()
        everything = channels + (stages - 1) * growth
        self.style, self.seen = style, channels + index * growth
        self.first = Affine(self.seen, style)
        self.update = Affine(update, style) if update else None
        if bottleneck is None:
            self.conv, self.wide, self.first_neck, self.update_neck = static_conv(make_filter, everything, growth), None, None, None
        else:
            self.conv, self.wide = pointwise(everything, bottleneck), static_conv(make_filter, bottleneck, growth)
            self.first_neck = Affine(bottleneck, style)
            self.update_neck = Affine(bottleneck, style) if update else None

    def grow(self, parts: list[Tensor], neck: Standardise | None) -> Tensor:
        """Stage I, from y_n and the stages before."""
        return self._through(parts, self.first, kernel_of(self.conv)[:, : self.seen], self.first_neck, neck)

    def renew(self, parts: list[Tensor], neck: Standardise | None) -> Tensor:
        """The update, from all other stages (and y_n before them, where it takes part)."""
        if self.update is None:
            raise ConfigError("this clique was built with loops=0, so its stages are never updated")
        return self._through(parts, self.update, kernel_of(self.conv)[:, -self.update.channels :], self.update_neck, neck)

    def _through(self, parts: list[Tensor], affine: Affine, weight: Tensor, second: Affine | None, neck: Standardise | None) -> Tensor:
        out = norm_act_conv(parts, affine, weight, self.style)
        if self.wide is not None and second is not None and neck is not None:
            out = norm_act_conv([neck(out)], second, kernel_of(self.wide), self.style)
        return functional.dropout(out, self.style.dropout, self.training)


class _Statistics(nn.Module):
    """Standardisers of one time-step: of y_n, of each value of each stage (grown first, then of each loop), of each bottleneck."""

    def __init__(self, channels: int, growth: int, stages: int, loops: int, last: int, bottleneck: int | None, style: Style) -> None:
        super().__init__()
        self.state = Standardise(channels, style)
        read_again = [stages if loop < loops else last for loop in range(loops + 1)]
        self.values = module_list(module_list(Standardise(growth, style) for _ in range(count)) for count in read_again)
        self.necks = None
        if bottleneck is not None:
            self.necks = module_list(module_list(Standardise(bottleneck, style) for _ in range(stages)) for _ in range(loops + 1))

    def neck(self, loop: int, index: int) -> Standardise | None:
        return None if self.necks is None else self.necks[loop][index]


class Clique(nn.Module):
    """The clique block of CliqueNet: `stages` nodes of `growth` channels over an input of `channels`.

    Args:
        loops: how often all stages are updated; 0 leaves what stage I grew
        order: gauss-seidel: an update uses the newest values; jacobi: the values of the loop before
        state_in_update: whether updates read y_n too
    """

    def __init__(
        self,
        channels: int,
        growth: int,
        stages: int,
        *,
        bottleneck: int | None = None,
        loops: int = 1,
        order: Literal["gauss-seidel", "jacobi"] = "gauss-seidel",
        state_in_update: bool = False,
        uses: int = 1,
        make_filter: MakeFilter = Pixel,
        style: Style | None = None,
    ) -> None:
        super().__init__()
        check_sizes(channels=channels, growth=growth, stages=stages, uses=uses, bottleneck=1 if bottleneck is None else bottleneck)
        if order not in ORDERS:
            raise ConfigError(f"order={order!r}; expected one of {', '.join(ORDERS)}")
        if not isinstance(loops, int) or loops < 0:
            raise ConfigError(f"loops={loops!r}; expected a whole number of updating loops, 0 for none")
        if stages == 1 and loops and not state_in_update:
            raise ConfigError(
                "an update of one stage from all others has nothing to read; give the step at least 2 stages, or set state_in_update=True "
                "or loops=0"
            )
        self.channels, self.growth, self.stages, self.bottleneck = channels, growth, stages, bottleneck
        self.loops, self.order, self.state_in_update, self.uses = loops, order, state_in_update, uses
        self.style = style = style or Style()
        update = ((stages - 1) * growth + (channels if state_in_update else 0)) if loops else 0
        self.nodes = module_list(Node(index, channels, growth, stages, bottleneck, update, make_filter, style) for index in range(stages))
        last = 0 if order == "jacobi" and loops else stages - 1  # how many of the final values are read by another stage
        self.statistics = module_list(_Statistics(channels, growth, stages, loops, last, bottleneck, style) for _ in range(uses))

    def increments(self, y: Tensor, use: int = 0) -> list[Tensor]:
        """The values of all stages after the last loop."""
        check_channels(y, self.channels)
        statistics = self.statistics[use]
        state = statistics.state(y)
        values: list[Tensor] = []
        parts: list[Tensor] = []  # the newest values, standardised
        for index, node in enumerate(self.nodes):
            values.append(node.grow([state, *parts], statistics.neck(0, index)))
            if index < len(statistics.values[0]):
                parts.append(statistics.values[0][index](values[index]))
        for loop in range(1, self.loops + 1):
            before, parts = parts, list(parts)
            for index, node in enumerate(self.nodes):
                source = parts if self.order == "gauss-seidel" else before
                others = [*source[:index], *source[index + 1 :]]
                values[index] = node.renew([state, *others] if self.state_in_update else others, statistics.neck(loop, index))
                if index < len(statistics.values[loop]):
                    parts[index] = statistics.values[loop][index](values[index])
        return values

    def dependence(self) -> Tensor:
        """How strongly stage i (row) reads y_n (column 0) and stage j (column j): root of the summed squares of γ·W, (s, s + 1).

        y_n by the scales of stage I, the stages by those of the update (of stage I where there is none).
        """
        reads = torch.zeros(self.stages, self.stages + 1)
        for index, node in enumerate(self.nodes):
            weight = kernel_of(node.conv)
            first = channel_strength(node.first, weight[:, : node.seen])
            reads[index, 0] = first[: self.channels].sum()
            others = [j for j in range(self.stages) if j != index]
            if node.update is None:
                strength = first[self.channels :]
            else:
                strength = channel_strength(node.update, weight[:, -node.update.channels :])[-(self.stages - 1) * self.growth or None :]
            for source, part in zip(others, strength.split(self.growth), strict=False):
                reads[index, 1 + source] = part.sum()
        return reads.sqrt()

    def extra_repr(self) -> str:
        neck = "" if self.bottleneck is None else f", bottleneck={self.bottleneck}"
        update = f", loops={self.loops}, {self.order}" + (", y_n in the update" if self.state_in_update else "")
        return f"growth={self.growth}, stages={self.stages}{neck}{update}" + (f", uses={self.uses}" if self.uses > 1 else "")


class IRKStep(Clique, RKStep):
    """A clique over y_n of k channels, its stages added to y_n. Options as `Clique` (RKNet rule 4: m = 1)."""

    def __init__(
        self,
        growth: int,
        stages: int,
        *,
        bottleneck: int | None = None,
        loops: int = 1,
        order: Literal["gauss-seidel", "jacobi"] = "gauss-seidel",
        state_in_update: bool = False,
        uses: int = 1,
        make_filter: MakeFilter = Pixel,
        style: Style | None = None,
    ) -> None:
        super().__init__(
            growth,
            growth,
            stages,
            bottleneck=bottleneck,
            loops=loops,
            order=order,
            state_in_update=state_in_update,
            uses=uses,
            make_filter=make_filter,
            style=style,
        )
