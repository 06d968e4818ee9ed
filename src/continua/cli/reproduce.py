"""`continua reproduce ID --scale …`: a study by name in, our numbers beside the printed ones out."""

from pathlib import Path
from typing import Any, Literal

from jsonargparse import Namespace

from continua.cli.commands import Command, Parser, Words
from continua.errors import ConfigError
from continua.studies import SCALES


def add_reproduce_arguments(parser: Parser, words: Words) -> None:
    parser.add_argument(
        "study", metavar="ID", type=str, nargs="?", default="", help="a study such as dcn/table2a; a paper's name: all of its"
    )
    parser.flag("list", "show all studies with the state of each")
    parser.option("scale", Literal[SCALES], "cpu", "smoke: seconds; cpu: hours on real images; wide: the same at full width; paper: GPUs")
    parser.option("seeds", int | None, None, "runs of each model (else the scale's own number)")
    parser.option("row", str | None, None, "train one row of the study and stop: 'DCN-ODE, 52 per class'; with --seed")
    parser.option("seed", int, 0, "with --row: which of its runs")
    parser.flag("finished", "train nothing: compare the runs that are finished")
    parser.flag("kept", "train nothing: ask the runs that are kept under results/ again, by whichever recipe they were made")
    parser.option("on", Literal["here", "local", "slurm"], "here", "train in this process, in several, on a cluster")
    parser.option("jobs", int | None, None, "with --on local: runs at a time (else one per core)")
    parser.common("runs", "data_dir", "device")
    parser.option("threads", int | None, None, "threads of each run (else the scale's own number)")
    parser.option("keep", Path | None, None, "also put the entry and the runs' small files under this folder")


def reproduce_command(options: Namespace) -> None:
    """Run `continua reproduce`."""
    from continua.report import show_page
    from continua.studies import ask_kept, find_studies, keep, reproduce, train_row, verdict_text
    from continua.train import Interrupted, RunOptions

    if options.list or not options.study:
        return show_list(options)
    if options.seeds is not None and options.seeds < 1:
        raise ConfigError(f"--seeds is {options.seeds}; expected at least 1")
    if options.row is not None and (options.finished or options.seeds is not None or options.keep is not None):
        raise ConfigError("--row trains one run and stops; --finished, --seeds and --keep belong to the whole study")
    how = RunOptions(data_dir=options.data_dir, device=options.device, threads=options.threads)
    for study in find_studies(options.study):
        trainer = _trainer(options, study.id)
        try:
            if options.row is not None:
                _say_row(train_row(study, options.scale, options.row, options.seed, runs=options.runs, options=how, train=trainer))
                continue
            if options.kept:
                result = ask_kept(study, options=how)
            else:
                result = reproduce(
                    study, options.scale, seeds=options.seeds, runs=options.runs, options=how, train=None if options.finished else trainer
                )
        except Interrupted as stop:
            again = f"continua reproduce {options.study} --scale {options.scale}"
            again += f" --row '{options.row}' --seed {options.seed}" if options.row is not None else ""
            print(f"stopped and saved; the same command goes on: {again}")
            raise SystemExit(128 + stop.signal if stop.signal else 1) from None
        show_page(result.page)
        for path in keep(result, options.keep) if options.keep else []:
            print(f"kept {path}")
        said = verdict_text(result.finding.claims, result.scale)
        print(f"{study.id} at {result.scale}: {said}; numbers, pictures and page.html in {result.folder}")
    return None


def _say_row(run: Any) -> None:
    result = run.run.result or {}
    number = f"test accuracy {result['test_accuracy']:.2%}" if "test_accuracy" in result else f"test error {result['test_loss']:.5g}"
    print(f"{run.name}: {number}, {result['seconds'] / 60:.0f} min ({run.run.folder})")


def show_list(options: Namespace) -> None:
    """Every study: what it asks, how far it is at this scale, what it found."""
    from continua.report import show_table
    from continua.studies import counted, study_states
    from continua.train import RunOptions

    how = RunOptions(data_dir=options.data_dir, device=options.device)
    states = study_states(options.scale, seeds=options.seeds, runs=options.runs, options=how)
    rows = [(state.study.id, state.study.title, state.text, state.time, state.verdict, state.study.published) for state in states]
    columns = ("id", "what", "state", "time left", "found", "printed")
    show_table(f"studies at {options.scale}", columns, rows, text=range(len(columns)))
    print(f"{sum(options.scale in state.written for state in states)} of {len(states)} studies carried out at {options.scale}. ", end="")
    print(counted(state.tally for state in states))


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
