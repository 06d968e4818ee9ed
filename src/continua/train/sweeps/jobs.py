"""Jobs of a sweep, all through submitit: what runs inside one, and where they run (processes on this machine, or a Slurm cluster).

A job is one cell in one process. Who owns which signal from the first to the last line of a job:

- SIGTERM and SIGINT, and SIGHUP and SIGUSR1 where nobody else has taken them, are ours: finish the step, save, leave. They never put the
  job back into a queue: Slurm sends SIGTERM when it requeues or pre-empts a job (then it does so by itself) and when someone cancels one
  (then nobody should).
- The pre-emption signal (USR2 unless SUBMITIT_PREEMPT_SIGNAL says otherwise), which comes before the time limit and from clusters that
  warn of pre-emption, is noted by us and answered by submitit: once the step is finished and saved, submitit's own handler is called,
  which asks `checkpoint()` for what is left to do and requeues the job. Called at once, as submitit would have it, it would cut the step.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Protocol

from continua.errors import ConfigError, ContinuaError, unknown_name
from continua.files import Json
from continua.runs import Run, parse_recipe
from continua.train.loop import Interrupted, RunOptions
from continua.train.start import resume, train
from continua.train.step import Handler, StopSignal, free_signals
from continua.train.sweeps.cells import last_step

TORCHRUN = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
NEVER = 10 * 365 * 24 * 60  # minutes
REQUEUES = 1_000_000  # a job that reaches its time limit goes on as often as it gets further; see CellJob.checkpoint
SECOND_SIGNAL = 3.0  # seconds: submitit announces a pre-emption by SIGTERM and then, a little later, its own signal


class JobSignals(StopSignal):
    """Notes every signal of a job and interrupts nothing; the training loop looks at `number` after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.preemption: signal.Signals = getattr(signal, "SIG" + os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2"))
        self.preempted = False
        self._answer: Handler = None  # submitit's handler

    @contextmanager
    def owned(self) -> Iterator["JobSignals"]:
        """From here on signals are ours, whether or not the loop is running."""
        ours = dict.fromkeys((signal.SIGTERM, signal.SIGINT, self.preemption, *free_signals()))
        before = {number: signal.signal(number, self._note) for number in ours}
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
        in_slurm = os.environ.get("SUBMITIT_EXECUTOR") == "slurm"
        while self.number == signal.SIGTERM and not self.preempted and in_slurm and time.monotonic() < limit:
            time.sleep(0.1)
        if self.preempted and callable(self._answer):
            self._answer(self.preemption, None)  # raises SystemExit once the job is queued again, an error where it cannot be
        sys.exit(128 + self.number)


@dataclass
class CellJob:
    """A cell as a job that submitit pickles, starts and, after a pre-emption, starts again."""

    recipe: Json  # plain data, so that the pickle needs no class of ours but this one
    folder: Path
    options: RunOptions
    step: int = -1  # of the last checkpoint when this job began

    def __call__(self) -> Json:
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

    def _carry_out(self, signals: JobSignals) -> Json:
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


# --- where jobs run: both are asked the same three things --------------------------------------------------------------


@dataclass(frozen=True)
class JobState:
    """`ended`: has left the queue or the process table, well or not. `said`: what the cluster says about it, for people."""

    kind: Literal["queued", "running", "ended"]
    said: str = ""


class Executor(Protocol):
    """Submits jobs, says how they are, and asks them to save and stop."""

    name: str
    pause: float  # seconds between two looks
    survives: bool  # whether jobs go on when the one who submitted them leaves

    def submit(self, job: CellJob, name: str) -> str: ...
    def states(self, jobs: Iterable[str]) -> dict[str, JobState]: ...
    def stop(self, jobs: Iterable[str]) -> None: ...


class Local:
    """Processes on this machine. The one who submits decides how many at a time."""

    name, pause, survives = "local", 0.5, False

    def __init__(self, folder: Path) -> None:
        submitit = import_submitit()
        self.executor = submitit.LocalExecutor(folder)
        self.executor.update_parameters(timeout_min=NEVER, signal_delay_s=60)
        self.jobs: dict[str, Any] = {}
        self.graphics = _graphics_cards()

    def submit(self, job: CellJob, name: str) -> str:
        if self.graphics and job.options.device != "cpu":
            card = self.graphics[len(self.jobs) % len(self.graphics)]
            self.executor.update_parameters(gpus_per_node=1, visible_gpus=[card])
        # Ctrl-C reaches every process of the terminal. A job's supervisor must not see it: it would kill the job before it has saved.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            started = self.executor.submit(job)
        finally:
            signal.signal(signal.SIGINT, before)
        self.jobs[started.job_id] = started
        return started.job_id

    def states(self, jobs: Iterable[str]) -> dict[str, JobState]:
        return {job: self._state(job) for job in jobs}

    def _state(self, job: str) -> JobState:
        if job not in self.jobs:
            return JobState("ended", "submitted earlier")  # by another command; the run's lock says whether it is still there
        running = self.jobs[job].get_info()["jobState"] == "RUNNING"
        return JobState("running") if running else JobState("ended")

    def stop(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            process = self.jobs[job]._process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)  # the supervisor hands it on


class Slurm:
    """A Slurm cluster. Jobs go on when the command that submitted them ends, and are found again by their numbers."""

    name, pause, survives = "slurm", 3.0, True

    def __init__(self, folder: Path, parameters: Mapping[str, object]) -> None:
        submitit = import_submitit()
        try:
            self.executor = submitit.SlurmExecutor(folder, max_num_timeout=REQUEUES)
        except RuntimeError:
            raise ConfigError("--on slurm needs Slurm's commands (sbatch, srun, squeue), which are not here; use --on local") from None
        self.executor.update_parameters(**slurm_parameters(parameters))
        self.seen: dict[str, JobState] = {}

    def submit(self, job: CellJob, name: str) -> str:
        self.executor.update_parameters(job_name=name)
        try:
            return self.executor.submit(job).job_id
        except (RuntimeError, OSError) as error:
            raise ContinuaError(f"sbatch refused the job {name}: {' '.join(str(error).split())[-300:]}") from None

    def states(self, jobs: Iterable[str]) -> dict[str, JobState]:
        """From squeue, which every cluster has (sacct needs an accounting data base); it forgets jobs some minutes after they ended."""
        wanted = list(jobs)
        if not wanted:
            return {}
        command = ["squeue", "--noheader", "--states=all", f"--user={os.getuid()}", "--format=%i|%T|%r"]
        answer = subprocess.run(command, capture_output=True, text=True)
        if answer.returncode != 0:  # the controller restarts, or the network is down: nothing is known, so nothing has changed
            said = " ".join(answer.stderr.split())[:80] or "squeue does not answer"
            return {job: JobState(self.seen[job].kind if job in self.seen else "queued", said) for job in wanted}
        listed = dict(_slurm_state(line) for line in answer.stdout.splitlines() if line.count("|") >= 2)
        self.seen |= {job: listed.get(job, JobState("ended", "no longer known to squeue")) for job in wanted}
        return {job: self.seen[job] for job in wanted}

    def stop(self, jobs: Iterable[str]) -> None:
        """Slurm sends SIGTERM, on which a cell saves, and waits (KillWait, 30 s by default) before it kills."""
        wanted = list(jobs)
        if wanted:
            subprocess.run(["scancel", *wanted], capture_output=True)


WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "CONFIGURING"}
AT_WORK = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}


def _slurm_state(line: str) -> tuple[str, JobState]:
    job, state, reason = line.strip().split("|", 2)
    if state in WAITING:
        return job, JobState("queued", reason if reason not in ("None", "") else state.lower())
    return job, JobState("running" if state in AT_WORK else "ended", "" if state == "RUNNING" else state.lower())


ONE_PROCESS = {"nodes", "ntasks_per_node", "gpus_per_task", "num_gpus", "array_parallelism", "use_srun", "job_name"}


def slurm_parameters(given: Mapping[str, object]) -> Json:
    """The `slurm` section of a sweep file as submitit takes it: one node, one task, put back into the queue when pre-empted."""
    from submitit.slurm.slurm import _get_default_parameters

    known = sorted(set(_get_default_parameters()) - ONE_PROCESS)
    for name in given:
        if name in ONE_PROCESS:
            raise ConfigError(f"slurm.{name} cannot be set: a cell of a sweep is one process on one node; train on several with torchrun")
        if name not in known:
            raise ConfigError(f"slurm: {unknown_name('key', name, known)}")
    parameters: Json = {"time": 60, "nodes": 1, "ntasks_per_node": 1, "cpus_per_task": 1} | dict(given)
    if not isinstance(parameters["time"], int) or parameters["time"] < 1:
        raise ConfigError(f"slurm.time is {parameters['time']!r}; expected whole minutes, at least 1")
    parameters["additional_parameters"] = {"requeue": True} | dict(parameters.get("additional_parameters") or {})
    # Since Slurm 22.05 a step no longer has the processors of its job unless it asks for them.
    parameters["srun_args"] = [f"--cpus-per-task={parameters['cpus_per_task']}", *(parameters.get("srun_args") or [])]
    return parameters


def import_submitit() -> Any:
    """The package, or what to do without it."""
    try:
        import submitit
    except ImportError:
        raise ConfigError("a sweep needs the package submitit: pip install submitit") from None
    return submitit


def _graphics_cards() -> list[int]:
    """Numbers of the GPUs that this process may use; submitit hides all of them unless told."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return [int(n) for n in named.split(",") if n.strip().isdigit()][:count] if named else list(range(count))
