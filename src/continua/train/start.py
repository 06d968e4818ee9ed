"""`train` and `resume`: from a recipe, or from an interrupted run, to a finished run directory."""

import os
import warnings
from pathlib import Path

import torch

from continua.errors import ConfigError, ContinuaError, ContinuaWarning
from continua.train.devices import chosen_device, launch_fabric, readable_rank_errors
from continua.train.environment import describe_environment
from continua.train.find import run_folder
from continua.train.loop import Training
from continua.train.recipe import Recipe
from continua.train.resolution import identity, resolve
from continua.train.run import Run
from continua.train.setup import RunOptions, assemble


def train(recipe: Recipe, out: "str | Path | None" = None, options: RunOptions | None = None, *, runs: "str | Path | None" = None) -> Run:
    """Train by a recipe, in the folder `out` (else one named after the recipe under `runs`)."""
    options = options or RunOptions()
    recipe = resolve(recipe, chosen_device(options.device), options.data_dir)
    folder = Path(out) if out is not None else run_folder(recipe, runs)
    return _carry_out(Run(folder), recipe, options, new=True)


def resume(folder: "str | Path", options: RunOptions | None = None) -> Run:
    """Go on with a run from its last whole checkpoint; from the beginning where it had none yet."""
    run = Run(folder)
    recipe = run.recipe
    return _carry_out(run, recipe, options or RunOptions(), new=False)


def _carry_out(run: Run, recipe: Recipe, options: RunOptions, new: bool) -> Run:
    if options.threads is not None:
        if options.threads < 1:
            raise ConfigError(f"threads is {options.threads}; expected at least 1")
        torch.set_num_threads(options.threads)
    with readable_rank_errors():
        fabric = launch_fabric(chosen_device(options.device), recipe.precision, options.rank_timeout)
        if not fabric.is_global_zero:
            _follow(run, recipe, options, fabric, new)
            return run
        with run.locked():
            if new:
                run.create(recipe)
            elif run.result is not None:
                raise ConfigError(f"{run.folder} is finished; `continua evaluate {run.folder}` looks at it")
            _lead(run, recipe, options, fabric, new)
    return run


def _lead(run: Run, recipe: Recipe, options: RunOptions, fabric: object, new: bool) -> None:
    """The rank that writes."""
    try:
        parts = assemble(recipe, options, fabric)  # pyright: ignore[reportArgumentType]
        training = Training(run, recipe, identity(recipe), parts, options)
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
    fresh = new or not any(run.checkpoints.glob("step-*.pt"))
    parts.fabric.broadcast(fresh)  # the others must not look at the folder before it is as it should be
    if fresh:
        run.truncate_metrics(0)
    else:
        run.log(f"resumed from {training.restore()}, process {os.getpid()}")
    result = training.go()
    run.log(f"finished: {result}")


def _follow(run: Run, recipe: Recipe, options: RunOptions, fabric: object, new: bool) -> None:
    """The other ranks: the same training, without writing."""
    parts = assemble(recipe, options, fabric)  # pyright: ignore[reportArgumentType]
    training = Training(run, recipe, identity(recipe), parts, options)
    if not parts.fabric.broadcast(None):
        training.restore()
    training.go()


def _warn_of_changes(run: Run, described: dict) -> None:
    import json

    if not run.environment.is_file():
        return
    before = json.loads(run.environment.read_text("utf-8"))
    for name in ("threads", "ranks", "device"):
        if before.get(name) != described[name]:
            warnings.warn(
                f"{run.folder} was trained with {name} {before.get(name)}, now {described[name]}: equal to rounding, not bit for bit",
                ContinuaWarning,
                stacklevel=2,
            )
