"""`continua sweep FILE`: options in, a table and a line on how to go on out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jsonargparse import Namespace

from continua.cli.commands import Command, Parser, Words
from continua.errors import ConfigError, ContinuaError
from continua.machine import usable_cores
from continua.showing import harmless

if TYPE_CHECKING:
    from continua.train import Executor, RunOptions, Sweep, SweepOutcome


def add_sweep_arguments(parser: Parser, words: Words) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="the sweep: a YAML file with recipes, models, data, per_class, seeds, …")
    parser.option("on", Literal["local", "slurm"], "local", "processes here, or jobs on a Slurm cluster")
    parser.common("runs")
    parser.option("jobs", int | None, None, "cells at a time (local: 1; slurm: as many as the cluster takes)")
    parser.option("threads", int | None, None, "threads of each cell (local: cores / jobs; slurm: cpus_per_task)")
    parser.common("device", "data_dir", "checkpoint_minutes")
    parser.flag("status", "only show how all cells are")
    parser.flag("cancel", "have the sweep's jobs on the cluster save and stop")


def sweep_command(options: Namespace) -> None:
    """Run `continua sweep`."""
    from continua.runs import chosen_device
    from continua.train import View, cancel, load_sweep, run_sweep

    sweep = load_sweep(options.file, options.runs, chosen_device(options.device), options.data_dir)
    if options.status:
        return _show(sweep)
    executor = _executor(sweep, options.on)
    if options.cancel:
        if not executor.survives:
            raise ConfigError("--cancel is for jobs on a cluster; a local sweep is stopped by Ctrl-C where it runs")
        print(f"asked {cancel(sweep, executor)} jobs to save and stop; {_go_on(options)} takes them up again")
        return None
    with View(sweep.name) as view:
        outcome = run_sweep(sweep, executor, _run_options(options, sweep), jobs=_jobs(options), watch=view)
    return _report(sweep, outcome, options, executor)


def _executor(sweep: "Sweep", on: str) -> "Executor":
    from continua.train import Local, Slurm, jobs_folder

    return Local(jobs_folder(sweep)) if on == "local" else Slurm(jobs_folder(sweep), sweep.slurm)


def _jobs(options: Namespace) -> int | None:
    return 1 if options.jobs is None and options.on == "local" else options.jobs


def _run_options(options: Namespace, sweep: "Sweep") -> "RunOptions":
    from continua.train import RunOptions

    threads = options.threads
    if threads is None:
        threads = max(1, usable_cores() // (_jobs(options) or 1)) if options.on == "local" else int(sweep.slurm.get("cpus_per_task", 1))
    data = options.data_dir.absolute() if options.data_dir is not None else None
    return RunOptions(data, options.device, threads, progress="lines", checkpoint_minutes=options.checkpoint_minutes)


def _report(sweep: "Sweep", outcome: "SweepOutcome", options: Namespace, executor: "Executor") -> None:
    from continua.train import show_results, summary, write_results

    path = write_results(sweep, outcome.statuses)
    show_results(sweep, outcome.statuses)
    print(f"{sweep.name}: {summary(outcome.statuses)}; wrote {path}")
    if outcome.signal:
        if executor.survives:
            print(f"the jobs go on in the queue: {_go_on(options)} watches them again, with --cancel they save and stop")
        else:
            print(f"stopped, every cell saved; go on with: {_go_on(options)}")
        raise SystemExit(128 + outcome.signal)
    failed = [status for status in outcome.statuses if status.state == "failed"]
    for status in failed:
        print(harmless(f"failed twice: {status.cell.name} in {status.cell.folder}: {status.error}"), file=sys.stderr)
    left = [status for status in outcome.statuses if status.state not in ("failed", "done")]
    if failed or left:
        what = [f"{len(failed)} failed twice"] * bool(failed) + [f"{len(left)} were cancelled"] * bool(left)
        raise ContinuaError(f"of {len(sweep)} cells {' and '.join(what)}; {_go_on(options)} tries them again")


def _show(sweep: "Sweep") -> None:
    import shutil

    from continua.train import read_statuses, show_results, show_status

    statuses = read_statuses(sweep)
    if shutil.which("squeue") and any(status.on == "slurm" and status.job and status.state != "done" for status in statuses):
        statuses = read_statuses(sweep, _executor(sweep, "slurm"))
    show_status(statuses, sweep.name)
    show_results(sweep, statuses)


def _go_on(options: Namespace) -> str:
    """The command as it was typed, as far as it matters."""
    words = ["continua", "sweep", str(options.file), "--on", options.on]
    for name in ("runs", "jobs", "threads", "data_dir"):
        value = getattr(options, name)
        words += [f"--{name.replace('_', '-')}", str(value)] if value is not None else []
    return " ".join(words)


COMMAND = Command(
    "A grid of trainings from one YAML file, here or on a Slurm cluster; does only what is missing.", sweep_command, add_sweep_arguments
)
