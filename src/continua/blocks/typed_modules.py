"""Lists of modules whose members keep their type."""

from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

from torch import nn

M = TypeVar("M")


def module_list(modules: Iterable[M]) -> Sequence[M]:
    """An `nn.ModuleList`, typed by its members: modules, or such lists again. (PyTorch's own forgets what it holds.)"""
    return cast("Sequence[M]", nn.ModuleList(cast("Iterable[nn.Module]", modules)))
