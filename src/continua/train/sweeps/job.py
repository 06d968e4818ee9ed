"""What runs inside a submitit job: one cell, in one process, that owns its signals.

Who owns which signal from the first to the last line of a job:

- SIGTERM and SIGINT are ours: finish the step, save, leave. They never put the job back into a queue: Slurm sends SIGTERM when it requeues
  or pre-empts a job (then it does so by itself) and when someone cancels one (then nobody should).
- The pre-emption signal (USR2 unless SUBMITIT_PREEMPT_SIGNAL says otherwise), which comes before the time limit and from clusters that
  warn of pre-emption, is noted by us and answered by submitit: once the step is finished and saved, submitit's own handler is called,
  which asks `checkpoint()` for what is left to do and requeues the job. Called at once, as submitit would have it, it would cut the step.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from continua.runs import Run, parse_recipe
from continua.train.devices import StopSignal
from continua.train.loop import Interrupted, RunOptions
from continua.train.start import resume, train
from continua.train.sweeps.file import last_step

TORCHRUN = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
SECOND_SIGNAL = 3.0  # seconds: submitit announces a pre-emption by SIGTERM and then, a little later, its own signal


class JobSignals(StopSignal):
    """Notes every signal of a job and interrupts nothing; the training loop looks at `number` after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.preemption, self.preempted = _preemption_signal(), False
        self._answer: Any = None  # submitit's handler

    @contextmanager
    def owned(self) -> Iterator["JobSignals"]:
        """From here on signals are ours, whether or not the loop is running."""
        before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT, self.preemption)}
        self._answer = before[self.preemption]
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def listening(self) -> Iterator[StopSignal]:
        yield self  # the loop asks to listen; here the whole job does

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number
        self.preempted = self.preempted or number == self.preemption

    def leave(self) -> None:
        """End the process once everything is saved; through submitit, which requeues the job, where it was pre-empted."""
        limit = time.monotonic() + SECOND_SIGNAL
        while self.number == signal.SIGTERM and not self.preempted and _in_slurm() and time.monotonic() < limit:
            time.sleep(0.1)
        if self.preempted and callable(self._answer):
            self._answer(self.preemption, None)  # raises SystemExit once the job is queued again, an error where it cannot be
        sys.exit(128 + self.number)


@dataclass
class CellJob:
    """A cell as a job that submitit pickles, starts and, after a pre-emption, starts again."""

    recipe: dict[str, Any]  # plain data, so that the pickle needs no class of ours but this one
    folder: Path
    options: RunOptions
    step: int = -1  # of the last checkpoint when this job began

    def __call__(self) -> dict[str, Any]:
        """Train, or go on from where the run is; the result."""
        from continua.machine import claim_process, keep_freed_memory

        keep_freed_memory()
        claim_process()
        # A cell is one process whatever the cluster or whoever submitted it has set: variables of torchrun would make it wait for ranks.
        for name in TORCHRUN:
            os.environ.pop(name, None)
        with JobSignals().owned() as signals:
            return self._carry_out(signals)

    def checkpoint(self) -> Any:
        """submitit asks what is left to do: the same cell, which goes on from its checkpoint. None, so that it ends, if it gets nowhere."""
        from submitit.helpers import DelayedSubmission

        now = last_step(self.folder)
        return DelayedSubmission(replace(self, step=now)) if now > self.step else None

    def _carry_out(self, signals: JobSignals) -> dict[str, Any]:
        run = Run(self.folder)
        self._wait_for(run, signals)
        try:
            if run.result is None:
                if run.exists:
                    run = resume(self.folder, self.options, stop=signals)
                else:
                    run = train(parse_recipe(self.recipe), self.folder, self.options, stop=signals)
        except Interrupted as stop:
            print(f"stopped and saved at {stop}", flush=True)
            signals.leave()
        return run.result or {}

    def _wait_for(self, run: Run, signals: JobSignals) -> None:
        """A requeued job can start before its predecessor has gone; someone else may be training the same run."""
        while (owner := run.owner()) is not None:
            print(f"waiting for {owner}, which trains in {run.folder}", flush=True)
            for _ in range(20):
                if signals.number:
                    signals.leave()
                time.sleep(0.1)


def _preemption_signal() -> signal.Signals:
    return getattr(signal, "SIG" + os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2"))


def _in_slurm() -> bool:
    return os.environ.get("SUBMITIT_EXECUTOR") == "slurm"
