"""Train the networks of the demo, or go on with them, ask the analyses, write the page."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from continua.analysis import Answer, Subject, answer, find_question, subject_of
from continua.demo.page import demo_page
from continua.errors import ConfigError
from continua.models import model_entry, options_in_common
from continua.report import Table, cell_text, show_table, write_html
from continua.runs import Recipe, Run, chosen_device, identity, load_recipe, merged, resolve
from continua.train import RunOptions, resume, train

Plain = Mapping[str, object]

# What each network has of its own; all else is the recipe's. Filters of pixels learn best at a lower rate than N-jets do.
MODELS: dict[str, Plain] = {
    "dcn_ode": {},
    "odenet": {"optimiser": {"lr": 0.004}},
    "resnet_blocks": {"optimiser": {"lr": 0.004}},
}
MASKS: Plain = dict(sizes=(0, 2, 4, 6, 8), mask=6, trajectories=100, times=11)
CONTRASTS: Plain = dict(contrasts=7, low=1 / 16, high=4.0)  # powers of two


def demo(
    out: Path,
    *,
    changes: Plain | None = None,
    options: RunOptions | None = None,
    masks: Plain = MASKS,
    contrasts: Plain = CONTRASTS,
) -> Path:
    """Train, analyse, and write report.html in `out`; what is finished there already is used, what was interrupted goes on.

    `changes` to the recipe `demo` hold for all networks; `masks` and `contrasts` are options of the two analyses.
    """
    options = options or RunOptions()
    recipes = {name: _recipe(name, changes or {}, options) for name in MODELS}
    _check(out, recipes)
    runs = {name: _trained(recipe, out / name, options) for name, recipe in recipes.items()}
    print("looking into the networks ...", flush=True)
    subjects = {model_entry(name).row: subject_of(run.folder, device=options.device) for name, run in runs.items()}
    masked = {name: _asked("pattern_completion", subject, masks) for name, subject in subjects.items()}
    # Time follows contrast only where there is time.
    modes = {name: ("naive", "scaled") if any(subject.run.epochs[-1]["nfe"]) else ("naive",) for name, subject in subjects.items()}
    dimmed = {name: _asked("contrast", subject, {**contrasts, "modes": modes[name]}) for name, subject in subjects.items()}
    page = demo_page(subjects, masked, dimmed)
    _show(page.every(Table)[0])
    target = write_html(page, out / "report.html")
    print(f"made {target}: open it in a browser")
    print(f"look into these networks yourself: {_next_line(out)}")
    return target


def _next_line(out: Path) -> str:
    """What to type next: in a clone where `make demo` put the networks, its own target, which also installs what is needed."""
    if Path("Makefile").is_file() and out == Path("runs/demo"):
        return "make explore"
    return f"continua explore {' '.join(shlex.quote(str(out / name)) for name in MODELS)}"


def _recipe(name: str, changes: Plain, options: RunOptions) -> Recipe:
    shared = merged({}, changes)
    if common := options_in_common(name, shared.pop("model_options", {})):
        shared["model_options"] = common
    return resolve(load_recipe("demo", merged(shared, {"model": name, **MODELS[name]})), chosen_device(options.device))


def _check(out: Path, recipes: Mapping[str, Recipe]) -> None:
    """Before anything is trained: what lies in the folder must be of this demo."""
    for name, recipe in recipes.items():
        run = Run(out / name)
        if run.exists and identity(run.recipe) != identity(recipe):
            raise ConfigError(f"{run.folder} holds a run by another recipe than this demo's; remove {out}, or choose another --out")


def _trained(recipe: Recipe, folder: Path, options: RunOptions) -> Run:
    run = Run(folder)
    if run.result is not None:
        print(f"{recipe.model}: trained already, in {folder}", flush=True)
        return run
    print(f"{recipe.model}: {'going on' if run.exists else 'training'} for {recipe.epochs} epochs in {folder}", flush=True)
    return resume(folder, options) if run.exists else train(recipe, folder, options)


def _asked(name: str, subject: Subject, options: Plain) -> Answer:
    question = find_question(name)
    return answer(question, [subject], replace(question.Options(), **options), pictures=())


def _show(table: Table) -> None:
    rows = [[cell_text(cell, head.digits) for cell, head in zip(row, table.heads, strict=True)] for row in table.rows]
    show_table(table.title, [head.text for head in table.heads], rows, text=(0,))
