"""`continua reproduce ID --scale …`: a study by name in, our numbers beside the printed ones out.

The list of all studies is answered from what is declared in studies.json and written on disk: without PyTorch, at once.
"""

import os
from pathlib import Path
from typing import Any, Literal

from jsonargparse import Namespace

from continua.cli.commands import Command, Parser, Words
from continua.errors import ConfigError
from continua.files import Json
from continua.reading import read_json_object
from continua.showing import show_table
from continua.tally import DECLARED, counted, how_far, tally_of_declared

SCALES = tuple(DECLARED["scales"])

LEGEND = """
id         what to type: continua reproduce ID
state      done: trained and compared at this scale; partly: some of its runs are; no result yet, not run: nothing is there; hours are
           those of all its trainings, from measured updates (results/checks/hours.json)
time left  (with an ID) for the runs that are missing, from those that are finished (empty: not known yet, or nothing is left)
found      what became of the claims: each holds, fails, or is undecided (the seeds spread too widely to tell, or some are missing);
           facts, such as counts of parameters, are checked without statistics. Below, a claim that two studies make counts once
printed    the paper's own result
scales     smoke: seconds, to see that it runs, and never compared; cpu: hours, reduced; wide: cpu at full width; paper: GPUs, as published
"""


def add_reproduce_arguments(parser: Parser, words: Words) -> None:
    parser.add_argument(
        "study", metavar="ID", type=str, nargs="?", default="", help="a study such as dcn/table2a; a paper's name: all of its"
    )
    parser.flag("list", "show all studies and what came of each; with ID, its runs and the time that is left")
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
    if not options.study:
        return list_declared(options)
    from continua.report import show_page
    from continua.studies import ask_kept, find_studies, keep, reproduce, train_row, verdict_text
    from continua.train import Interrupted, RunOptions

    if options.list:
        return list_runs(options)
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


def list_declared(options: Namespace) -> None:
    """Every study: what it asks, whether it was carried out at this scale, what came out. Runs are not looked at, which takes seconds."""
    tallies, rows = [], []
    for study in DECLARED["studies"]:
        if options.scale not in study["runs"]:
            continue
        written = _written(study["id"], options.runs)
        here, others = written.get(options.scale), [scale for scale in SCALES if scale in written and scale != options.scale]
        tally = tally_of_declared(study, here, options.scale)
        state = _state(tally.how_far, here, study["runs"][options.scale])
        state += f"; {reason}" if state != "done" and (reason := hours_needed(study["id"], options.scale)) else ""
        state += f" (done at {', '.join(others)})" if others else ""
        rows.append((study["id"], study["title"], state, tally.text if here is not None or tally.claims else "", study["printed"]))
        tallies.append(tally)
    show_table(f"studies at {options.scale}", ("id", "what", "state", "found", "printed"), rows, text=range(5))
    print(LEGEND)
    print(f"{len(rows)} studies at {options.scale}: {how_far(tallies)}. {counted(tallies)}")
    print("continua reproduce ID --list counts the finished runs of a study, or of a paper such as dcn, and says how long the rest takes.")


def _state(how: str, here: Json | None, wanted: int) -> str:
    if here is None:
        return "no result yet"
    return f"partly: {len(here.get('runs', ()))} of {wanted} runs" if how == "partly" else how


def hours_needed(study: str, scale: str) -> str:
    """Why a study is not whole by today's recipes: what its trainings take on one core, as it was measured; nothing where it was not."""
    path = Path("results/checks/hours.json")
    kept = read_json_object(path) if path.is_file() else {}
    known = kept.get("studies", {}).get(study)
    if known is None or kept.get("scale") != scale:
        return ""
    what = "1 training takes" if known["runs"] == 1 else f"{known['runs']} trainings take"
    hours = f"{what} {known['hours']:.{0 if known['hours'] >= 10 else 1}f} hours of one core"
    if "turns on" not in known or known["seeds that see it"] <= known["seeds"]:
        return hours
    turns_on, seeds, needed = known["turns on"], known["seeds that see it"], known["hours to see it"]
    return f"{hours}; to see the difference it turns on ({turns_on:.2g} point{'s' * (turns_on != 1)}), {seeds} seeds, {needed:,} hours"


def list_runs(options: Namespace) -> None:
    """A study or those of a paper: how many of their runs are finished, and how long the rest takes."""
    from continua.studies import find_studies, study_states
    from continua.train import RunOptions

    how = RunOptions(data_dir=options.data_dir, device=options.device)
    states = study_states(options.scale, studies=find_studies(options.study), seeds=options.seeds, runs=options.runs, options=how)
    rows = [(state.study.id, state.study.title, state.text, state.time, state.verdict, state.study.published) for state in states]
    columns = ("id", "what", "state", "time left", "found", "printed")
    show_table(f"studies at {options.scale}", columns, rows, text=range(len(columns)))
    print(LEGEND)
    print(counted(state.tally for state in states))


def _written(study: str, runs: Path | None) -> dict[str, Json]:
    """What is on disk of a study, by scale: its kept entry, and one's own, which is taken first where both are there."""
    kept, own = Path("results") / f"{study}.json", Path(runs or os.environ.get("CONTINUA_RUNS") or "runs").expanduser() / "studies"
    entries: dict[str, Json] = {}
    if kept.is_file() and (entry := read_json_object(kept)).get("study") == study:
        entries[entry["scale"]] = entry
    for scale in SCALES:
        path = own / study.replace("/", "-") / scale / "results.json"
        if path.is_file():
            data = read_json_object(path)
            words = {True: "holds", False: "fails", None: "undecided"}  # of format 1, whose claims stood beside the entry
            old = [{"verdict": words[claim["holds"]]} for claim in data.get("claims", [])]
            entries[scale] = {"claims": data["entry"].get("claims", old), "runs": data["entry"].get("runs", data.get("runs", []))}
    return entries


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
