"""How ODE blocks are solved while they train, where that is not how they are solved afterwards.

Coarse to fine (Queiruga et al. 2021), random end times (STEER, Ghosh et al. 2020), other tolerances after a failure. All are functions of
the recipe, the step and the progress, so a training that was stopped goes on exactly. Evaluation takes the network's own solver and end
times.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from continua.blocks import ODEBlock
from continua.errors import ConfigError
from continua.files import Json
from continua.runs import Recipe, Refine


@contextmanager
def training_solves(net: nn.Module, recipe: Recipe, step: int, progress: float, tolerance_factor: float = 1.0) -> Iterator[None]:
    """Inside, ODE blocks that train are solved as this step of the training has them. `progress`: epochs gone."""
    blocks = trained_ode_blocks(net)
    before = [(block.solver, block.t1) for block in blocks]
    spread, coarse = recipe.regularise.end_time, coarse_options(recipe.refine, progress)
    draw = torch.Generator().manual_seed(_seed(recipe.seed, step)) if spread else None
    try:
        for block in blocks:
            solver = block.solver.replace(**coarse) if coarse else block.solver
            if tolerance_factor != 1.0 and solver.steps is None:
                solver = solver.loosened(tolerance_factor)
            if solver is not block.solver:
                block.solver = solver
            if draw is not None:  # T ~ U(T − b, T + b), b = spread (T − t0), one for the whole batch (STEER, eq. 5)
                block.t1 += (block.t1 - block.t0) * spread * float(2 * torch.rand((), generator=draw, dtype=torch.float64) - 1)
        yield
    finally:
        for block, (solver, t1) in zip(blocks, before, strict=True):
            if block.solver is not solver:
                block.solver = solver
            block.t1 = t1


def coarse_options(refine: Refine, progress: float) -> Json:
    """What the solver of ODE blocks has otherwise after so many epochs: nothing once all coarse ones have ended."""
    phase = sum(end <= progress for end in refine.epochs)
    if phase == len(refine.epochs):
        return {}
    return {"steps": refine.steps[phase]} if refine.steps else dict.fromkeys(("rtol", "atol"), refine.tolerances[phase])


def trained_ode_blocks(net: nn.Module) -> list[ODEBlock]:
    """The ODE blocks that train."""
    blocks = [module for module in net.modules() if isinstance(module, ODEBlock)]
    return [block for block in blocks if any(parameter.requires_grad for parameter in block.parameters())]


def check_solves(net: nn.Module, recipe: Recipe) -> None:
    """Refuse what the recipe asks of a solver that the network does not have."""
    blocks, refine = trained_ode_blocks(net), recipe.refine
    if recipe.failure.policy in ("loosen", "tighten") and not any(block.solver.steps is None for block in blocks):
        raise ConfigError(
            f"failure.policy {recipe.failure.policy!r} changes tolerances, and no block of this network has any; use 'skip' or 'stop'"
        )
    asked = [
        *(f"regularise.{name}" for name in recipe.regularise.weights),
        *(["regularise.end_time"] if recipe.regularise.end_time else []),
    ]
    asked += ["refine"] if refine.epochs else []
    if asked and not blocks:
        raise ConfigError(f"{asked[0]} is about ODE blocks, and {recipe.model} has none; leave it out")
    for block in blocks:
        _check_refinement(block, refine)
        _check_end_times(block, recipe.regularise.end_time)


def _check_refinement(block: ODEBlock, refine: Refine) -> None:
    solver = block.solver
    if refine.steps and (solver.count is None or refine.steps[-1] >= solver.count):
        own = "chooses its steps" if solver.steps is None else f"takes {solver.count}"
        raise ConfigError(
            f"refine.steps is {list(refine.steps)}, and the solver {own}; expected fewer steps than model_options.solver.steps=N"
            + (", or refine.tolerances" if solver.steps is None else "")
        )
    if refine.tolerances and solver.steps is not None:
        raise ConfigError(f"refine.tolerances is about adaptive steps, and the solver takes {solver.count} fixed ones; use refine.steps")
    if refine.tolerances and not all(isinstance(own, float | int) and own < refine.tolerances[-1] for own in (solver.rtol, solver.atol)):
        raise ConfigError(f"refine.tolerances ends at {refine.tolerances[-1]:g}, and the solver's own are {solver.tolerances}: not finer")
    if refine.epochs:
        block.solver = solver.replace(**coarse_options(refine, 0.0))  # a field that cannot do with other steps says so
        block.solver = solver


def _check_end_times(block: ODEBlock, spread: float) -> None:
    if spread:
        block.check_interval(block.t1 + spread * (block.t1 - block.t0))


def _seed(seed: int, step: int) -> int:
    """Of the end times of one step: the same on every rank."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{step}/end times".encode()).digest()[:7], "big")
