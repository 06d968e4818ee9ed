"""Carry out a sweep: submit what is missing, watch, try a failed cell once more, stop cleanly. All that counts is on disk."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from continua.errors import ConfigError
from continua.runs import Run, plain_recipe
from continua.train.loop import RunOptions
from continua.train.step import StopSignal
from continua.train.sweeps.cells import CellStatus, Sweep, ask_after_jobs, jobs_folder, last_words, read_statuses, write_statuses
from continua.train.sweeps.jobs import CellJob, Executor, JobState

NOT_ITS_FAULT = {"preempted", "node_fail", "boot_fail", "timeout", "revoked"}  # if it got further, it just goes on
Watch = Callable[[Sequence[CellStatus]], None]


@dataclass(frozen=True)
class SweepOutcome:
    """How a sweep was left. `signal`: the one that ended it early, or 0."""

    statuses: list[CellStatus]
    signal: int = 0

    def count(self, *states: str) -> int:
        return sum(status.state in states for status in self.statuses)


def run_sweep(
    sweep: Sweep, executor: Executor, options: RunOptions, *, jobs: int | None = None, watch: Watch | None = None
) -> SweepOutcome:
    """Bring every cell to an end: finished, or failed twice. At most `jobs` are submitted at a time; `watch` sees every look at them.

    Args:
        sweep: the sweep.
        executor: runs its jobs.
        options: of each run.
        jobs: at most so many at a time.
        watch: sees the statuses at every look.

    Returns:
        What became of the cells.

    Raises:
        ConfigError: `jobs` is below 1, or another process carries this sweep out.

    Examples:
        >>> from continua.train import run_sweep
        >>> run_sweep(sweep, executor, options)  # doctest: +SKIP
    """
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs is {jobs}; expected at least 1")
    home = Run(sweep.folder)
    owner = home.owner()
    if owner is not None:
        raise ConfigError(f"the sweep {sweep.name} is being carried out by {owner}; look at it with --status")
    with home.locked():
        return _Driver(sweep, executor, options, jobs, watch or (lambda statuses: None)).run()


class _Driver:
    def __init__(self, sweep: Sweep, executor: Executor, options: RunOptions, jobs: int | None, watch: Watch) -> None:
        self.sweep, self.executor, self.options, self.limit, self.watch = sweep, executor, options, jobs, watch
        self.statuses = read_statuses(sweep)
        self.stop = StopSignal()
        for status in self.statuses:
            status.failures, status.error = 0, ""  # what failed in an earlier command is tried again in this status
            status.rest()
        if executor.survives:
            ask_after_jobs(self.statuses, executor)

    def run(self) -> SweepOutcome:
        with self.stop.listening():
            try:
                while self._look() and not self.stop.number:
                    self._pause()
            except BaseException:
                self._ask_to_stop()
                raise
            if self.stop.number:
                self._end_early()
        self._note()
        return SweepOutcome(self.statuses, self.stop.number)

    # --- one look -----------------------------------------------------------------------------------------------------

    def _look(self) -> bool:
        """See what has changed, submit what can be; whether anything is left to wait for."""
        self._follow_jobs()
        for status in self.statuses:
            if status.state in ("missing", "stopped", "elsewhere") and not status.said.startswith("cancelled"):
                status.rest()
                if status.state in ("missing", "stopped") and (self.limit is None or len(self._active()) < self.limit):
                    self._submit(status)
        self.watch(self.statuses)
        return any(status.state in ("queued", "running", "elsewhere") for status in self.statuses)

    def _active(self) -> list[CellStatus]:
        return [status for status in self.statuses if status.state in ("queued", "running") and status.job is not None]

    def _follow_jobs(self) -> None:
        active = self._active()
        states = self.executor.states([str(status.job) for status in active])
        for status in active:
            now = states[str(status.job)]
            if now.kind == "ended":
                self._ended(status, now)
            else:
                status.state, status.said = now.kind, now.said

    def _ended(self, status: CellStatus, job: JobState) -> None:
        """Finished; or to be taken up again; or failed, for the first or the second time."""
        goes_on = job.said in NOT_ITS_FAULT and status.cell.reached().step > status.step
        if status.cell.result is None and not self.stop.number and job.said != "cancelled" and not goes_on:
            status.failures, status.error = status.failures + 1, self._reason(status, job)
        status.rest()
        if status.state in ("stopped", "missing"):
            status.said = job.said
        self._note()

    def _reason(self, status: CellStatus, job: JobState) -> str:
        said = last_words(jobs_folder(self.sweep) / f"{status.job}_0_log.err")  # where submitit writes what a job says on stderr
        return f"{job.said}: {said}" if job.said not in ("", "failed") else said

    # --- beginning and ending -----------------------------------------------------------------------------------------

    def _submit(self, status: CellStatus) -> None:
        plain = plain_recipe(status.cell.recipe)
        status.step = status.cell.reached().step
        status.job = self.executor.submit(CellJob(plain, status.cell.folder, self.options), f"{self.sweep.name}-{status.cell.identity[:8]}")
        status.on, status.state, status.said = self.executor.name, "queued" if self.executor.survives else "running", ""
        self._note()

    def _end_early(self) -> None:
        """Jobs that would go on by themselves do; the others are asked to save, and waited for."""
        if self.executor.survives:
            return
        self._ask_to_stop()
        while self._active():
            self._follow_jobs()
            self.watch(self.statuses)
            self._pause()

    def _ask_to_stop(self) -> None:
        if not self.executor.survives:
            self.executor.stop([str(status.job) for status in self._active()])

    def _pause(self) -> None:
        """Until the next look; a signal cuts it short."""
        until = time.monotonic() + self.executor.pause
        number = self.stop.number
        while time.monotonic() < until and self.stop.number == number:
            time.sleep(min(0.1, self.executor.pause))

    def _note(self) -> None:
        write_statuses(self.sweep, self.statuses)


def cancel(sweep: Sweep, executor: Executor) -> int:
    """Ask the jobs of a sweep to save and stop; how many there were.

    Args:
        sweep: the sweep.
        executor: which runs its jobs.

    Returns:
        How many jobs there were.

    Examples:
        >>> from continua.train import cancel
        >>> cancel(sweep, executor)  # doctest: +SKIP
    """
    jobs = ask_after_jobs(read_statuses(sweep), executor)
    executor.stop(jobs)
    return len(jobs)
