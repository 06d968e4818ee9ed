"""Where jobs run: processes on this machine, or a Slurm cluster. Both through submitit, both asked the same three things."""

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from continua.errors import ConfigError, ContinuaError, unknown_name
from continua.train.sweeps.job import CellJob

NEVER = 10 * 365 * 24 * 60  # minutes
REQUEUES = 1_000_000  # a job that reaches its time limit goes on as often as it gets further; see CellJob.checkpoint


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

    def __init__(self, folder: Path, parameters: Mapping[str, Any]) -> None:
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


def slurm_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """The `slurm` section of a sweep file as submitit takes it: one node, one task, put back into the queue when pre-empted."""
    from submitit.slurm.slurm import _get_default_parameters

    known = sorted(set(_get_default_parameters()) - ONE_PROCESS)
    for name in given:
        if name in ONE_PROCESS:
            raise ConfigError(f"slurm.{name} cannot be set: a cell of a sweep is one process on one node; train on several with torchrun")
        if name not in known:
            raise ConfigError(f"slurm: {unknown_name('key', name, known)}")
    parameters: dict[str, Any] = {"time": 60, "nodes": 1, "ntasks_per_node": 1, "cpus_per_task": 1} | dict(given)
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
        raise ConfigError("a sweep needs the package submitit: pip install 'continua[sweep]'") from None
    return submitit


def _graphics_cards() -> list[int]:
    """Numbers of the GPUs that this process may use; submitit hides all of them unless told."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return [int(n) for n in named.split(",") if n.strip().isdigit()][:count] if named else list(range(count))
