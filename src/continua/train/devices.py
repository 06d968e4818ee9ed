"""Where a training runs: one process, or one per device started by torchrun. Everything of Lightning Fabric is chosen here."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from continua.blocks import ODEBlock, norms_over_batches, share_batch_statistics
from continua.errors import ConfigError, ContinuaError
from continua.files import Json
from continua.machine import prepare_process

if TYPE_CHECKING:
    from lightning_fabric import Fabric

N = TypeVar("N", bound=nn.Module)
PRECISIONS: Json = {"float32": "32-true", "bfloat16": "bf16-mixed"}


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
    ranks = world_size()
    options: Json = dict(accelerator=device, precision=PRECISIONS[precision])
    if ranks == 1:
        # Named explicitly: inside a Slurm job Fabric would otherwise expect to have been started by srun.
        fabric = Fabric(devices=1, plugins=LightningEnvironment(), **options)
    else:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
        strategy = DDPStrategy(process_group_backend="nccl" if device == "cuda" else "gloo", timeout=timedelta(seconds=timeout))
        fabric = Fabric(devices=here, num_nodes=ranks // here, strategy=strategy, plugins=TorchElasticEnvironment(), **options)
    fabric.launch()
    return fabric


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


class StopSignal:
    """SIGTERM or SIGINT (Ctrl-C) asks the loop to finish its step and save. A second one ends the process at once."""

    def __init__(self) -> None:
        self.number = 0

    @contextmanager
    def listening(self) -> Iterator["StopSignal"]:
        before: dict[int, Any] = {}

        def note(number: int, frame: FrameType | None) -> None:
            self.number = number
            for known, handler in before.items():
                signal.signal(known, handler)

        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, note)
        except ValueError:  # not the main thread: whoever owns the process handles its signals
            before.clear()
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
