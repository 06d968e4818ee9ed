"""Networks whose options come from anywhere: what they would hold is counted while they are built, and refused before it is allocated.

A recipe may ask for a trillion channels or a billion layers. Every tensor that is made while a network is built passes here first, with its
size; once they come to more than the limit, nothing more is made.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from continua.errors import ConfigError
from continua.limits import ORDER, PARAMETERS, STEPS, TENSORS

# Operators that make a tensor of a size they are told, and where that size stands among their arguments.
MAKERS = ("empty", "zeros", "ones", "full", "rand", "randn", "randint", "empty_strided", "new_empty", "new_zeros", "new_ones", "new_full")
WIDEST = 2**40  # of one side of a tensor; the product of a few such numbers is more than PyTorch can count


class BoundedBuilding(TorchDispatchMode):
    """Inside, tensors are counted as they are made; more than the limits allow are a `ConfigError` that names the model."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.numbers, self.tensors = name, 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        maker = func.overloadpacket.__name__
        if maker in MAKERS:
            self._count(maker, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def _count(self, maker: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        size = kwargs.get("size", next((argument for argument in args if isinstance(argument, list | tuple)), ()))
        self.numbers, self.tensors = self.numbers + prod(size), self.tensors + 1
        if PARAMETERS.exceeded(self.numbers):
            raise ConfigError(
                f"{self.name} cannot be built with these options: it would hold more than {self.numbers:,} numbers "
                f"({4 * self.numbers / 1e9:,.1f} GB); {PARAMETERS.advice()}, or make it narrower or shallower"
            )
        if TENSORS.exceeded(self.tensors):
            raise ConfigError(f"{self.name} cannot be built with these options: it would have too many layers; {TENSORS.advice()}")


def check_order(order: int) -> None:
    """Refuse an N-jet of more derivatives than anybody has a use for: their number grows with the square."""
    if ORDER.exceeded(order):
        raise ConfigError(f"order={order!r}; {ORDER.advice()}")


def check_steps(name: str, steps: "int | None") -> None:
    """Refuse a number of steps that would never end."""
    if steps is not None and STEPS.exceeded(steps):
        raise ConfigError(f"{name}={steps!r}; {STEPS.advice()}")


def check_sides(name: str, value: Any) -> None:
    """Refuse whole numbers, in an option or within it, that PyTorch cannot count with."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            waiting += item.values()
        elif isinstance(item, list | tuple):
            waiting += item
        elif isinstance(item, int) and abs(item) > WIDEST:
            raise ConfigError(f"{name} holds {item:,}; expected a number that a network can be built with, at most {WIDEST:,}")
