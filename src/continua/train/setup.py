"""From a resolved recipe to the parts of a training: data, network, optimiser, on their devices."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from continua.data import DataSet, Loader, load
from continua.errors import ConfigError
from continua.train.devices import StopSignal, made_parallel
from continua.train.optimiser import build_optimiser
from continua.train.recipe import Recipe
from continua.train.tasks import Task, task_of

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class RunOptions:
    """How to run, not what: nothing here changes the result or the identity of a run."""

    data_dir: Path | None = None
    device: str = "auto"
    threads: int | None = None
    progress: str = "auto"
    tensorboard: bool = False
    checkpoint_minutes: float = 5.0
    rank_timeout: float = 600.0
    stop: StopSignal | None = None  # whoever owns the process's signals says here when to stop; None: the loop owns them


@dataclass
class Parts:
    """`net` is the network itself; `module` is what runs it in training (the same weights, spread over ranks and precisions)."""

    fabric: "Fabric"
    task: Task
    net: Any
    module: Any
    optimiser: Any
    train: Loader
    holdout: Loader | None
    test: Loader


def assemble(recipe: Recipe, options: RunOptions, fabric: "Fabric") -> Parts:
    """Everything a training needs; the weights are a function of the seed."""
    data = load(recipe.data, options.data_dir, per_class=recipe.per_class, seed=recipe.seed, holdout=recipe.holdout)
    train, holdout, test = loaders(recipe, data, fabric)
    task = task_of(recipe)
    torch.manual_seed(recipe.seed)
    net = task.build()
    check_network(net, recipe)
    track_energies(net, recipe)
    if fabric.world_size > 1:
        net = made_parallel(net)
    if recipe.channels_last:
        net = net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    module, optimiser = fabric.setup(net, build_optimiser(net, recipe.optimiser))
    return Parts(fabric, task, net, module, optimiser, train, holdout, test)


def loaders(recipe: Recipe, data: DataSet, fabric: "Fabric") -> tuple[Loader, Loader | None, Loader]:
    """Batches of the training images, of the hold-out and of the test images."""
    where: dict[str, Any] = dict(rank=fabric.global_rank, world_size=fabric.world_size, device=fabric.device)
    still: dict[str, Any] = dict(augmentation=recipe.augmentation.evaluation(), **where)
    images, batch = data["train"], recipe.batch_size
    drop = len(images) >= batch if recipe.drop_last == "auto" else recipe.drop_last
    train = Loader(images, batch, shuffle=True, drop_last=drop, seed=recipe.seed, augmentation=recipe.augmentation, **where)
    holdout = Loader(data["holdout"], recipe.evaluation_batch_size, **still) if recipe.holdout is not None else None
    return train, holdout, Loader(data[test_split(data)], recipe.evaluation_batch_size, **still)


def test_split(data: DataSet) -> str:
    """The split that results are reported on: "test", or "val" for sets whose test labels are not public."""
    found = [name for name in ("test", "val") if name in data.splits]
    if not found:
        raise ConfigError(f"{data.name} has no test or val split here, so no result can be reported; it has {', '.join(data.splits)}")
    return found[0]


def solver_modules(net: nn.Module) -> list[Any]:
    """The ODE blocks that train."""
    return [m for m in net.modules() if hasattr(m, "solver") and hasattr(m, "field") and any(p.requires_grad for p in m.parameters())]


def check_network(net: nn.Module, recipe: Recipe) -> None:
    """Refuse what the recipe asks of a solver that the network does not have."""
    blocks = solver_modules(net)
    if recipe.failure.policy in ("loosen", "tighten") and not any(block.solver.steps is None for block in blocks):
        raise ConfigError(
            f"failure.policy {recipe.failure.policy!r} changes tolerances, and no block of this network has any; use 'skip' or 'stop'"
        )
    wanted = recipe.regularise
    if (wanted.kinetic or wanted.jacobian) and not blocks:
        raise ConfigError(
            f"regularise needs ODE blocks to integrate along, and {recipe.model} has none; set regularise.kinetic and jacobian to 0"
        )


def track_energies(net: nn.Module, recipe: Recipe) -> None:
    """Have the ODE blocks integrate the energies that the recipe weighs."""
    wanted = [name for name in ("kinetic", "jacobian") if getattr(recipe.regularise, name)]
    for block in solver_modules(net):
        block.track_energies(*wanted)
