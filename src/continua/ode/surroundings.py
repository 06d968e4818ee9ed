"""What surrounds a solve: functions of `torch.func`, forward mode, `torch.compile`. What works there, and what is refused."""

from collections.abc import Callable
from typing import TypeVar

import torch

from continua.errors import ConfigError
from continua.ode.config import SolverConfig
from continua.ode.gradients import Checkpoint, Direct
from continua.ode.solution import State

T = TypeVar("T")


def for_transforms(config: SolverConfig) -> SolverConfig:
    """The configuration inside `torch.func` and forward mode, which differentiate by themselves: checkpointed steps are taken directly."""
    if config.gradient.keeps_graph:
        return config
    if isinstance(config.gradient, Checkpoint) and config.tableau.explicit:
        return config.replace(gradient=Direct())
    what = f"gradient={config.gradient}" if config.tableau.explicit else f"the implicit method {config.tableau.name}"
    raise ConfigError(
        f"{what} does not work inside torch.func (grad, vmap, jvp, ...) or forward mode; use an explicit method with gradient='direct' "
        "or 'checkpoint' there, or torch.autograd.grad outside"
    )


def transformed(solve: Callable[[], T]) -> T:
    """A solve inside `torch.func`; what `vmap` cannot do is said in a sentence."""
    try:
        return solve()
    except RuntimeError as error:
        if isinstance(error, NotImplementedError) or not any(word in str(error) for word in ("vmap", "Batching rule", "data pointer")):
            raise
        raise ConfigError(
            "a solve under torch.func.vmap cannot choose steps or find events from what it sees; give steps=N and no event, or put the "
            "mapped dimension first in y0: solve takes a batch by itself, with control='sample' every sample its own steps"
        ) from error


def why_not_compiled(config: SolverConfig, tensors: State, events: bool) -> str | None:
    """What keeps this solve out of a graph that is being recorded; None if nothing does."""
    problem = config.why_not_one_graph()
    if problem is None and not config.gradient.keeps_graph and torch.is_grad_enabled() and any(part.requires_grad for part in tensors):
        problem = f"gradient={config.gradient} takes its steps again in backward, which one graph cannot; use gradient='direct'"
    if problem is None and events:
        problem = "events are looked for in the numbers of a solve, which one graph does not know; leave event out"
    return problem
