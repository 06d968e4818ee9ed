"""`continua reproduce ID --scale …`: a study by name in, our numbers beside the printed ones out."""

from pathlib import Path
from typing import Any, Literal

from jsonargparse import Namespace

from continua.cli.parsing import Command, Parser, Words
from continua.errors import ConfigError
from continua.studies import SCALES


def add_reproduce_arguments(parser: Parser, words: Words) -> None:
    parser.add_argument(
        "study", metavar="ID", type=str, nargs="?", default="", help="a study such as dcn/table2a; a paper's name: all of its"
    )
    parser.add_argument("--list", action="store_true", help="show all studies with the state of each")
    parser.add_argument(
        "--scale", type=Literal[SCALES], default="cpu", help="smoke: seconds; cpu: an hour or so on real images; paper: GPUs"
    )
    parser.add_argument("--seeds", type=int | None, default=None, help="runs of each model (else the scale's own number)")
    parser.add_argument(
        "--on", type=Literal["here", "local", "slurm"], default="here", help="train in this process, in several, on a cluster"
    )
    parser.add_argument("--jobs", type=int | None, default=None, help="with --on local: runs at a time (else one per core)")
    parser.add_argument("--runs", type=Path | None, default=None, help="folder of all runs (else CONTINUA_RUNS, else ./runs)")
    parser.add_argument("--data-dir", type=Path | None, default=None, help="folder of all data sets (else CONTINUA_DATA, else the cache)")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu or cuda")
    parser.add_argument("--threads", type=int | None, default=None, help="threads of each run (else the scale's own number)")
    parser.add_argument("--keep", type=Path | None, default=None, help="also put the entry and the runs' small files under this folder")


def reproduce_command(options: Namespace) -> None:
    """Run `continua reproduce`."""
    from continua.report import show_page
    from continua.studies import find_studies, keep, reproduce, verdict
    from continua.train import Interrupted, RunOptions

    if options.list or not options.study:
        return show_list(options)
    if options.seeds is not None and options.seeds < 1:
        raise ConfigError(f"--seeds is {options.seeds}; expected at least 1")
    how = RunOptions(data_dir=options.data_dir, device=options.device, threads=options.threads)
    for study in find_studies(options.study):
        try:
            result = reproduce(study, options.scale, seeds=options.seeds, runs=options.runs, options=how, train=_trainer(options, study.id))
        except Interrupted as stop:
            print(f"stopped and saved; the same command goes on: continua reproduce {options.study} --scale {options.scale}")
            raise SystemExit(128 + stop.signal if stop.signal else 1) from None
        show_page(result.page)
        for path in keep(result, options.keep) if options.keep else []:
            print(f"kept {path}")
        said = verdict(result.finding.claims, options.scale)
        print(f"{study.id} at {options.scale}: {said}; numbers, pictures and page.html in {result.folder}")
    return None


def show_list(options: Namespace) -> None:
    """Every study: what it asks, how far it is at this scale, what it found."""
    from continua.report import show_table
    from continua.studies import study_states
    from continua.train import RunOptions

    how = RunOptions(data_dir=options.data_dir, device=options.device)
    states = study_states(options.scale, seeds=options.seeds, runs=options.runs, options=how)
    rows = [(state.study.id, state.study.title, state.text, state.time, state.verdict, state.study.published) for state in states]
    columns = ("id", "what", "state", "time left", "found", "printed")
    show_table(f"studies at {options.scale}", columns, rows, text=range(len(columns)))


def _trainer(options: Namespace, name: str) -> Any:
    """How missing runs are trained: in this process, or as the cells of a sweep."""
    from continua.studies import sweep_trainer, train_here

    if options.on == "here":
        return train_here
    again = f"continua reproduce {name} --scale {options.scale} --on {options.on}"
    return sweep_trainer(name, on=options.on, jobs=options.jobs, runs=options.runs, again=again)


COMMAND = Command(
    "Every table and figure of the papers: train what is missing, ask, and compare with the printed values.",
    reproduce_command,
    add_reproduce_arguments,
)
