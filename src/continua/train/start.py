"""`train` and `resume`: from a recipe, or from an interrupted run, to its parts on their devices, to a finished run directory."""

import atexit
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import nn

from continua.blocks import ODEBlock, norms_over_batches, share_batch_statistics
from continua.data import DataSet, Loader, load
from continua.errors import ConfigError, ContinuaError, ContinuaWarning, typed
from continua.files import Json
from continua.machine import prepare_process
from continua.runs import Recipe, Run, chosen_device, describe_environment, reported_split, resolve, run_folder, task_of
from continua.train.loop import RunOptions, Training
from continua.train.optimiser import build_optimiser
from continua.train.ranks import watched_ranks
from continua.train.solves import check_solves, trained_ode_blocks
from continua.train.step import Parts, StopSignal

if TYPE_CHECKING:
    from lightning_fabric import Fabric

N = TypeVar("N", bound=nn.Module)
PRECISIONS: dict[str, Literal["32-true", "bf16-mixed"]] = {"float32": "32-true", "bfloat16": "bf16-mixed"}


def train(
    recipe: Recipe,
    out: "str | Path | None" = None,
    options: RunOptions | None = None,
    *,
    runs: "str | Path | None" = None,
    stop: StopSignal | None = None,
) -> Run:
    """Train by a recipe, in the folder `out` (else one named after the recipe under `runs`).

    SIGTERM and SIGINT end it after the step at hand, saved; whoever owns the process's signals gives a `stop` of its own instead.

    Args:
        recipe: what is trained; see `Recipe` for every field.
        out: folder of the run; None: one named after the recipe under `runs`.
        options: how to run, which does not change the result: `data_dir`, `device`, `threads`, `progress`, `tensorboard`,
            `checkpoint_minutes`, `rank_timeout`; None: the defaults.
        runs: folder of all runs; None: `CONTINUA_RUNS`, else ./runs.
        stop: says when to stop, for whoever owns the process's signals.

    Returns:
        The finished run. `run.result` is a mapping with the keys `identity` (of the recipe), `model`, `data`, `parameters` (trained ones),
        `selection` (how the weights were chosen), `epoch` (whose weights they are), `test_images`, `test_accuracy` and `test_loss`,
        `split` (which images these were, where not the test split) and `seconds`. The weights are in the folder's best/, for
        `continua.from_pretrained`.

    Raises:
        ConfigError: the recipe does not fit the model or the data, or the folder holds another run.
        Interrupted: a signal asked for an end; everything is saved, and `resume` continues.
        TrainingStopped: the failure policy or the divergence guard ended it.

    Examples:
        >>> from continua.runs import load_recipe
        >>> from continua.train import train
        >>> run = train(load_recipe("demo", {"epochs": 2}), "runs/short")  # doctest: +SKIP
    """
    options = options or RunOptions()
    recipe = resolve(recipe, chosen_device(options.device), options.data_dir)
    folder = Path(out) if out is not None else run_folder(recipe, runs)
    return _carry_out(Run(folder), recipe, options, stop, new=True)


def resume(folder: "str | Path", options: RunOptions | None = None, *, stop: StopSignal | None = None) -> Run:
    """Go on with a run from its last whole checkpoint; from the beginning where it had none yet. `stop`: as for `train`.

    Args:
        folder: of the run.
        options: device, threads, progress, data folder; None: the defaults.
        stop: says when to stop, for whoever owns the process's signals.

    Returns:
        The finished run.

    Raises:
        ConfigError: the run is finished already, or damaged.
        Interrupted: a signal asked for an end; everything is saved.

    Examples:
        >>> from continua.train import resume
        >>> resume("runs/mine")  # doctest: +SKIP
    """
    run = Run(folder)
    recipe, options = run.recipe, options or RunOptions()
    if options.data_dir is None:
        options = replace(options, data_dir=run.data_dir)
    return _carry_out(run, recipe, options, stop, new=False)


def _carry_out(run: Run, recipe: Recipe, options: RunOptions, stop: StopSignal | None, new: bool) -> Run:
    if options.threads is not None:
        if options.threads < 1:
            raise ConfigError(f"threads is {options.threads}; expected at least 1")
        torch.set_num_threads(options.threads)
    with readable_rank_errors():
        fabric = launch_fabric(chosen_device(options.device), recipe.precision, options.rank_timeout)
        if not fabric.is_global_zero:
            with watched_ranks(fabric.global_rank, fabric.world_size):
                _follow(run, recipe, options, stop, fabric)
            _leave_in_order()
            return run
        there = run.folder.exists()
        with run.locked(), watched_ranks(fabric.global_rank, fabric.world_size):
            if new:
                run.create(recipe)
            elif run.result is not None:
                raise ConfigError(f"{run.folder} is finished; `continua evaluate {typed(run.folder)}` evaluates it")
            elif os.path.lexists(run.result_file) and not any(run.checkpoints.glob("step-*.pt")):
                raise ConfigError(
                    f"{run.result_file} is damaged, and {run.folder} has no checkpoints from which to end the run again; "
                    "put the file back from a copy, or train anew with another --out"
                )
            try:
                _lead(run, recipe, options, stop, fabric, new)
            except ContinuaError:
                if not there:
                    run.remove_if_empty()
                raise
    _leave_in_order()
    return run


def _lead(run: Run, recipe: Recipe, options: RunOptions, stop: StopSignal | None, fabric: "Fabric", new: bool) -> None:
    """The rank that writes."""
    try:
        parts = assemble(recipe, options, fabric)
        training = Training(run, recipe, parts, options, stop)
    except ContinuaError:
        if new:
            run.config.unlink(missing_ok=True)  # nothing has begun: the same command, put right, must find the folder free
        raise
    described = describe_environment(parts.fabric.device, parts.fabric.world_size)
    if new:
        run.log(f"new run {training.identity}: {recipe.model} on {recipe.data}, process {os.getpid()}")
    else:
        _warn_of_changes(run, described)
    run.write_json(run.environment, described)
    run.note_data_dir(options.data_dir)
    fresh = new or not any(run.checkpoints.glob("step-*.pt"))
    parts.fabric.broadcast(fresh)  # the others must not look at the folder before it is as it should be
    if fresh:
        run.truncate_metrics(0)
    else:
        run.log(f"resumed from {training.restore()}, process {os.getpid()}")
    result = training.fit()
    run.log(f"finished: {result}")


def _follow(run: Run, recipe: Recipe, options: RunOptions, stop: StopSignal | None, fabric: "Fabric") -> None:
    """The other ranks: the same training, without writing."""
    parts = assemble(recipe, options, fabric)
    training = Training(run, recipe, parts, options, stop)
    if not parts.fabric.broadcast(None):
        training.restore()
    training.fit()


def _warn_of_changes(run: Run, described: Json) -> None:
    before = run.machine
    for name in ("threads", "ranks", "device"):
        if before and before.get(name) != described[name]:
            warnings.warn(
                f"{run.folder} was trained with {name} {before.get(name)}, now {described[name]}: equal to rounding, not bit for bit",
                ContinuaWarning,
                stacklevel=2,
            )


# --- from a resolved recipe to the parts of a training ------------------------------------------------------------------


def assemble(recipe: Recipe, options: RunOptions, fabric: "Fabric") -> Parts:
    """Everything a training needs; the weights are a function of the seed."""
    data = load(recipe.data, options.data_dir, per_class=recipe.per_class, seed=recipe.seed, holdout=recipe.holdout)
    check_classes(recipe, data)
    train, holdout, test = loaders(recipe, data, fabric)
    task = task_of(recipe)
    torch.manual_seed(recipe.seed)
    net = task.build()
    check_solves(net, recipe)
    track_energies(net, recipe)
    if fabric.world_size > 1:
        net = made_parallel(net)
    if recipe.channels_last:
        net = net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    module, optimiser = fabric.setup(net, build_optimiser(net, recipe.optimiser))
    return Parts(fabric, task, net, module, optimiser, train, holdout, test, reported_split(data))


def loaders(recipe: Recipe, data: DataSet, fabric: "Fabric") -> tuple[Loader, Loader | None, Loader]:
    """Batches of the training images, of the hold-out and of the test images."""
    where: dict[str, Any] = dict(rank=fabric.global_rank, world_size=fabric.world_size, device=fabric.device)
    still: dict[str, Any] = dict(augmentation=recipe.augmentation.evaluation(), **where)
    images, batch = data["train"], recipe.batch_size
    drop = len(images) >= batch if recipe.drop_last == "auto" else recipe.drop_last
    train = Loader(images, batch, shuffle=True, drop_last=drop, seed=recipe.seed, augmentation=recipe.augmentation, **where)
    holdout = Loader(data["holdout"], recipe.evaluation_batch_size, **still) if recipe.holdout is not None else None
    return train, holdout, Loader(data[reported_split(data)], recipe.evaluation_batch_size, **still)


def check_classes(recipe: Recipe, data: DataSet) -> None:
    """Refuse a network that cannot name the classes of the data, or names others."""
    asked = recipe.model_options.get("num_classes")
    if asked is not None and asked != len(data.classes):
        raise ConfigError(
            f"{recipe.data} has {len(data.classes)} classes, and model_options.num_classes is {asked}; left out, it follows the data"
        )


def track_energies(net: nn.Module, recipe: Recipe) -> None:
    """Have the ODE blocks integrate the energies that the recipe weighs."""
    for block in trained_ode_blocks(net):
        block.track_energies(*recipe.regularise.weights)


# --- where it runs: one process, or one per device started by torchrun. Everything of Lightning Fabric is chosen here --------


def world_size() -> int:
    """Ranks that torchrun has started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def launch_fabric(device: str, precision: str, timeout: float) -> "Fabric":
    """Fabric for this process, if it can compute in `precision`. A rank that waits for another one for more than `timeout` s gives up."""
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
    from lightning_fabric.strategies.ddp import DDPStrategy

    if device == "cpu":
        prepare_process(precision)
    if device == "xpu":
        raise ConfigError("training needs Lightning Fabric, which has no xpu: use --device cpu or cuda; evaluate and analyse take xpu")
    ranks = world_size()
    options: dict[str, Any] = dict(accelerator=device, precision=PRECISIONS[precision])
    if ranks == 1:
        # Named explicitly: inside a Slurm job Fabric would otherwise expect to have been started by srun.
        fabric = Fabric(devices=1, plugins=LightningEnvironment(), **options)
    else:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
        strategy = DDPStrategy(process_group_backend="nccl" if device == "cuda" else "gloo", timeout=timedelta(seconds=timeout))
        fabric = Fabric(devices=here, num_nodes=ranks // here, strategy=strategy, plugins=TorchElasticEnvironment(), **options)
    fabric.launch()
    return fabric


@cache
def _leave_in_order() -> None:
    """After a training that ended well, close the ranks' connection when the program ends.

    Left to itself, gloo's threads may outlive what they work on, and the process aborts after all its work is done. Where a rank was lost
    nothing is closed, as that would wait for it.
    """
    if world_size() > 1:
        atexit.register(lambda: torch.distributed.is_initialized() and torch.distributed.destroy_process_group())


def made_parallel(net: N) -> N:
    """Batch norm over the batches of all ranks. Only where every rank takes the same steps: else their statistics would not meet."""
    if not norms_over_batches(net):
        return net
    adaptive = [name for name, module in net.named_modules() if isinstance(module, ODEBlock) and module.solver.steps is None]
    if adaptive:
        raise ConfigError(
            f"BatchNorm over several ranks needs fixed steps, as each rank would choose its own in {adaptive[0] or 'this network'}; "
            "set model_options.solver.steps, or train on one device"
        )
    share_batch_statistics(net)
    return net


@contextmanager
def readable_rank_errors() -> Iterator[None]:
    """When another rank is gone, what the communication library says about it, as an error that says what to do."""
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if isinstance(error, ContinuaError) or world_size() == 1 or not any(word in text for word in _LOST):
            raise
        rank = os.environ.get("RANK", "?")
        raise ContinuaError(
            f"rank {rank} lost contact with another rank, which has stopped or hangs ({text.splitlines()[0][:160]}); "
            "look at that rank's own message, then go on with --resume (the number of ranks may differ)"
        ) from error


_LOST = ("Connection closed", "Connection reset", "Timed out", "timed out", "timeout", "Broken pipe", "gloo", "NCCL", "ProcessGroup")
