"""Trainings small enough for tests, in this process or in a child that can be killed without harm."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from continua.models import options_in_common
from continua.train import Recipe, Run, RunOptions, load_recipe, resume, train

QUIET = RunOptions(progress="off", device="cpu", threads=1)
TINY: dict[str, Any] = dict(
    model="dcn_ode",
    model_options=dict(channels=[4, 8], stem_padding=1, norm_groups=32, solver=dict(method="rk4", steps=1)),
    data="digits",
    per_class=8,
    epochs=3,
    batch_size=16,
    augmentation=dict(crop_padding=1),
    optimiser=dict(kind="sgd", lr=0.05, nesterov=False),
)


def tiny_recipe(**changes: Any) -> Recipe:
    """A recipe that trains in a second; `changes` as nested data. Another model takes those of the options that it has."""
    from continua.runs.loading import merged

    options = options_in_common(changes.get("model", TINY["model"]), TINY["model_options"])
    return load_recipe("demo", merged({**TINY, "model_options": options}, changes))


def weights(run: Run) -> dict[str, torch.Tensor]:
    """What the run saved."""
    from safetensors.torch import load_file

    return load_file(run.best / "model.safetensors")


def lasting_lines(run: Run) -> list[dict[str, Any]]:
    """Lines of metrics without what the clock decides."""
    return [{name: value for name, value in line.items() if name not in ("seconds", "images_per_second")} for line in run.lines()]


# --- children -----------------------------------------------------------------------------------------------------------

# A server that has imported everything starts each child in no time, with no thread or lock of the test's own process in it.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["training", "lightning_fabric", "continua.train.loop"])


def start(target: Callable[..., None], *arguments: Any, **environment: str) -> Any:
    """Call `target(*arguments)` in a new process."""
    process = SERVER.Process(target=_in_child, args=(target, environment, arguments))
    process.start()
    return process


def finish(process: Any, seconds: float = 250.0) -> int:
    """The child's exit code: the negative number of the signal that ended it."""
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        raise TimeoutError(f"the child was still running after {seconds} s")
    return process.exitcode


def _in_child(target: Callable[..., None], environment: Mapping[str, str], arguments: tuple[Any, ...]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    target(*arguments)


def begin_or_resume(folder: Path, changes: dict[str, Any], options: RunOptions = QUIET) -> None:
    """What a person does after a crash: the same again, or --resume where there is something to resume."""
    if Run(folder).exists:
        resume(folder, options)
    else:
        train(tiny_recipe(**changes), folder, options)


def killed_at(name: str, count: int, folder: Path, changes: dict[str, Any], options: RunOptions = QUIET) -> None:
    """Train, and end as by `kill -9` when the place called `name` is reached for the `count`-th time in this process."""
    from continua.train import checkpoint, loop

    seen = 0

    def die_at_last(where: str) -> None:
        nonlocal seen
        if where == name:
            seen += 1
            if seen == count:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)

    step, write = loop.Training._train_batch, checkpoint.write_synced

    def train_batch(self: Any, batch: Any) -> bool:
        stop = step(self, batch)
        die_at_last("batch")
        return stop

    def write_synced(path: Path, data: Any, *root: Path) -> None:
        if path.suffix == ".pt":
            path.with_name(f".{path.name}.part").write_bytes(bytes(data)[: len(data) // 2])
            die_at_last("half a checkpoint")
        write(path, data, *root)
        if path.suffix == ".sha256":
            die_at_last("between sum and checkpoint")
        if path.suffix == ".pt":
            die_at_last("checkpoint")

    loop.Training._train_batch = train_batch  # pyright: ignore[reportAttributeAccessIssue]
    checkpoint.write_synced = write_synced  # pyright: ignore[reportAttributeAccessIssue]
    begin_or_resume(folder, changes, options)
