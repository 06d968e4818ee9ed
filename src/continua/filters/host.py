"""Numbers that the size of a kernel follows, read from a tensor; where a graph is recorded, outside it or refused in one sentence."""

import torch
from torch import Tensor

from continua.errors import ConfigError

REASON = (
    "the size of an N-jet's kernel follows its learned σ, which a graph cannot hold; give torch.compile(fullgraph=True) and torch.export "
    "the frozen copy, conv.freeze() or continua.models.frozen(net)"
)


def host_numbers(values: Tensor) -> list[float]:
    """`values` as numbers of Python.

    Raises:
        ConfigError: `torch.export` is at work. Under `torch.compile` the graph breaks here instead; with `fullgraph=True` that is PyTorch's
            error, and it quotes `REASON`.
    """
    if not torch.compiler.is_compiling():
        return values.tolist()
    if torch.compiler.is_exporting():
        raise ConfigError(f"{REASON}.")
    from continua.filters.outside import numbers_outside  # it imports the compiler

    return numbers_outside(values)
