"""Carry out a sweep: submit what is missing, watch, try a failed cell once more, stop cleanly. All that counts is on disk."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from continua.errors import ConfigError
from continua.train.devices import StopSignal
from continua.train.parse import write_yaml
from continua.train.run import Run
from continua.train.setup import RunOptions
from continua.train.sweeps.executors import Executor, JobState
from continua.train.sweeps.file import Sweep
from continua.train.sweeps.job import CellJob
from continua.train.sweeps.status import Status, last_words, log_of, read_statuses, write_statuses

NOT_ITS_FAULT = {"preempted", "node_fail", "boot_fail", "timeout", "revoked"}  # if it got further, it just goes on
Watch = Callable[[Sequence[Status]], None]


@dataclass(frozen=True)
class Outcome:
    """How a sweep was left. `signal`: the one that ended it early, or 0."""

    statuses: list[Status]
    signal: int = 0

    def count(self, *states: str) -> int:
        return sum(one.state in states for one in self.statuses)


def run_sweep(sweep: Sweep, executor: Executor, options: RunOptions, *, jobs: int | None = None, watch: Watch | None = None) -> Outcome:
    """Bring every cell to an end: finished, or failed twice. At most `jobs` are submitted at a time; `watch` sees every look at them."""
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs is {jobs}; expected at least 1")
    home = Run(sweep.folder)
    owner = home.owner()
    if owner is not None:
        raise ConfigError(f"the sweep {sweep.name} is being carried out by {owner}; look at it with --status")
    with home.locked():
        return _Driver(sweep, executor, options, jobs, watch or (lambda statuses: None)).go()


class _Driver:
    def __init__(self, sweep: Sweep, executor: Executor, options: RunOptions, jobs: int | None, watch: Watch) -> None:
        self.sweep, self.executor, self.options, self.limit, self.watch = sweep, executor, options, jobs, watch
        self.statuses = read_statuses(sweep)
        self.stop = StopSignal()
        for one in self.statuses:
            one.failures, one.error = 0, ""  # what failed in an earlier command is tried again in this one
            one.rest()
        self._adopt()

    def go(self) -> Outcome:
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
        return Outcome(self.statuses, self.stop.number)

    # --- one look -----------------------------------------------------------------------------------------------------

    def _look(self) -> bool:
        """See what has changed, submit what can be; whether anything is left to wait for."""
        self._follow_jobs()
        for one in self.statuses:
            if one.state in ("missing", "stopped", "elsewhere") and not one.said.startswith("cancelled"):
                one.rest()
                if one.state in ("missing", "stopped") and (self.limit is None or len(self._active()) < self.limit):
                    self._submit(one)
        self.watch(self.statuses)
        return any(one.state in ("queued", "running", "elsewhere") for one in self.statuses)

    def _active(self) -> list[Status]:
        return [one for one in self.statuses if one.state in ("queued", "running") and one.job is not None]

    def _follow_jobs(self) -> None:
        active = self._active()
        states = self.executor.states([str(one.job) for one in active])
        for one in active:
            now = states[str(one.job)]
            if now.kind == "ended":
                self._ended(one, now)
            else:
                one.state, one.said = now.kind, now.said

    def _ended(self, one: Status, job: JobState) -> None:
        """Finished; or to be taken up again; or failed, for the first or the second time."""
        goes_on = job.said in NOT_ITS_FAULT and one.cell.reached().step > one.step
        if one.cell.result is None and not self.stop.number and job.said != "cancelled" and not goes_on:
            one.failures, one.error = one.failures + 1, self._reason(one, job)
        one.rest()
        if one.state in ("stopped", "missing"):
            one.said = job.said
        self._note()

    def _reason(self, one: Status, job: JobState) -> str:
        said = last_words(log_of(self.sweep, str(one.job)))
        return f"{job.said}: {said}" if job.said not in ("", "failed") else said

    # --- beginning and ending -----------------------------------------------------------------------------------------

    def _submit(self, one: Status) -> None:
        plain: dict[str, Any] = yaml.safe_load(write_yaml(one.cell.recipe))
        one.step = one.cell.reached().step
        one.job = self.executor.submit(CellJob(plain, one.cell.folder, self.options), f"{self.sweep.name}-{one.cell.identity[:8]}")
        one.on, one.state, one.said = self.executor.name, "queued" if self.executor.survives else "running", ""
        self._note()

    def _adopt(self) -> None:
        """Jobs of an earlier command that are still there."""
        if not self.executor.survives:
            return
        open_ones = [one for one in self.statuses if one.state != "done" and one.on == self.executor.name and one.job is not None]
        states = self.executor.states([str(one.job) for one in open_ones])
        for one in open_ones:
            now = states[str(one.job)]
            if now.kind != "ended":
                one.state, one.said = now.kind, now.said

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
            self.executor.stop([str(one.job) for one in self._active()])

    def _pause(self) -> None:
        """Until the next look; a signal cuts it short."""
        until = time.monotonic() + self.executor.pause
        number = self.stop.number
        while time.monotonic() < until and self.stop.number == number:
            time.sleep(min(0.1, self.executor.pause))

    def _note(self) -> None:
        write_statuses(self.sweep, self.statuses)


def cancel(sweep: Sweep, executor: Executor) -> int:
    """Ask the jobs of a sweep to save and stop; how many there were."""
    statuses = [one for one in read_statuses(sweep) if one.on == executor.name and one.job is not None and one.state != "done"]
    states = executor.states([str(one.job) for one in statuses])
    there = [job for job, state in states.items() if state.kind != "ended"]
    executor.stop(there)
    return len(there)
