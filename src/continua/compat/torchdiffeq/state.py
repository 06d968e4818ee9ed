"""States as torchdiffeq takes them (any shape, also 0-d and complex, or a tuple of such), and as the solver lays them out.

The solver has batches of real numbers: a complex part is seen as pairs of reals, and a leading axis of length 1 stands in where the parts
have no batch in common. Both are views, so nothing is copied and autograd follows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from continua.errors import ConfigError

Parts = tuple[Tensor, ...]
State = Tensor | Parts
Function = Callable[[Tensor, State], "State"]


@dataclass(frozen=True)
class StateLayout:
    """How the states of one problem are laid out. `single`: the user's state is a tensor, not a tuple of them."""

    single: bool
    shapes: tuple[torch.Size, ...]
    dtypes: tuple[torch.dtype, ...]
    rows: bool  # a leading axis of length 1 is added

    @classmethod
    def of(cls, y0: State, whole: bool = False) -> "StateLayout":
        """`whole`: the state is one sample whatever its shape, for methods that treat samples apart."""
        parts = (y0,) if isinstance(y0, Tensor) else y0
        shapes = tuple(part.shape for part in parts)
        leading = {shape[0] if shape else 0 for shape in shapes}
        rows = whole or len(leading) != 1 or 0 in leading
        return cls(isinstance(y0, Tensor), shapes, tuple(part.dtype for part in parts), rows)

    @cached_property
    def plain(self) -> bool:
        """Whether the solver can take the user's tensors as they are."""
        return not self.rows and not self.complex

    @cached_property
    def complex(self) -> bool:
        return any(dtype.is_complex for dtype in self.dtypes)

    def pack(self, y: State) -> tuple[Tensor, ...]:
        """The user's state as the solver's."""
        parts = (y,) if isinstance(y, Tensor) else tuple(y)
        return parts if self.plain else tuple(self._pack(part) for part in parts)

    def unpack(self, parts: tuple[Tensor, ...], ahead: int = 0) -> State:
        """The solver's state as the user's; `ahead` counts axes before those of the state (1 for a series of states)."""
        if not self.plain:
            parts = tuple(self._unpack(part, dtype, ahead) for part, dtype in zip(parts, self.dtypes, strict=True))
        return parts[0] if self.single else parts

    def _pack(self, part: Tensor) -> Tensor:
        part = torch.view_as_real(part.resolve_conj()) if part.is_complex() else part
        return part[None] if self.rows else part

    def _unpack(self, part: Tensor, dtype: torch.dtype, ahead: int) -> Tensor:
        part = part.select(ahead, 0) if self.rows else part
        return torch.view_as_complex(part.contiguous()) if dtype.is_complex else part

    def pack_rate(self, out: object) -> tuple[Tensor, ...]:
        """What f returned, as the solver's: broadcast and cast to the state, as an assignment would."""
        given = (out,) if self.single else out
        parts = [part for part in given if isinstance(part, Tensor)] if isinstance(given, tuple | list) else []
        if len(parts) != len(self.shapes):
            expected = "a tensor" if self.single else f"a tuple of {len(self.shapes)} tensors"
            raise ConfigError(f"func(t, y) returned {type(out).__name__}; expected {expected} like the state")
        fitted = [self._fit(part, shape, dtype) for part, shape, dtype in zip(parts, self.shapes, self.dtypes, strict=True)]
        return tuple(fitted) if self.plain else tuple(self._pack(part) for part in fitted)

    def _fit(self, part: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        if part.dtype != dtype:
            part = part.to(dtype)
        if part.shape == shape:
            return part
        if not self.single and part.numel() == shape.numel():
            return part.reshape(shape)
        try:
            return part.expand(shape)
        except RuntimeError as error:
            given = f"func(t, y) returned shape {tuple(part.shape)} for a state of shape {tuple(shape)}"
            raise ConfigError(f"{given}; they must be equal, or the first must broadcast to the second") from error


class PackedField:
    """The user's f as the solver calls it: packed states in, packed rates of change out."""

    def __init__(self, func: Function, layout: StateLayout) -> None:
        self.func, self.layout = func, layout

    def __call__(self, t: Tensor, y: "Tensor | tuple[Tensor, ...]") -> "Tensor | tuple[Tensor, ...]":
        layout = self.layout
        if isinstance(y, Tensor):
            out = self.func(t, y if layout.plain else layout.unpack((y,)))
            if layout.plain and isinstance(out, Tensor) and out.shape == y.shape and out.dtype == y.dtype:
                return out
            return layout.pack_rate(out)[0]
        # as views: a flow that asks for the gradient of a part in place must not change the solver's own tensors
        return layout.pack_rate(self.func(t, layout.unpack(tuple(part.view_as(part) for part in y))))


def weighted(factors: Sequence[Any], states: Sequence[Parts]) -> Parts:
    """Σ factor · state, of states in the solver's layout; factors are numbers or 0-d tensors."""
    sums = []
    for column in zip(*states, strict=True):
        total = factors[0] * column[0]
        for factor, part in zip(factors[1:], column[1:], strict=True):
            total = total + factor * part
        sums.append(total)
    return tuple(sums)


def moved(y: Parts, h: Any, slope: Parts) -> Parts:
    """y + h · slope"""
    return tuple(part + h * change for part, change in zip(y, slope, strict=True))
