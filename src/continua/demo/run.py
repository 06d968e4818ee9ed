"""The demo: train its networks, or go on with them, ask the analyses, and write a page of what came out and what happens inside."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from continua.analysis import Answer, Contrast, Subject, answer, find_question, masked, short_name, states, subject_of
from continua.blocks import ODEBlock
from continua.errors import ConfigError
from continua.models import model_entry, options_in_common
from continua.report import Axis, Column, Figure, Look, Maps, Page, Series, Table, overlaid, show_table, write_html
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

DIM = 0.25  # contrast of the example
EXAMPLE = 4  # place of the image whose features are shown
MOMENTS, CHANNELS = 6, 4
LINES: tuple[Look, ...] = ({}, {"dashed": True}, {"style": "both"})  # of blocks; colours tell networks apart
Subjects = Mapping[str, Subject]


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
    results = page.every(Table)[0]
    show_table(results.title, [head.text for head in results.heads], results.texts)
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


# --- the page: each part with a sentence that says what to look for -----------------------------------------------------------


def demo_page(subjects: Subjects, masks: Mapping[str, Answer], contrasts: Mapping[str, Answer]) -> Page:
    """Everything by the name of the network, in one order; the last part before the sections is the table of results."""
    images = next(iter(subjects.values())).run.dataset()
    intro = (
        f"Three small networks have learned to read {len(images['train']):,} handwritten digits, and are tested on "
        f"{len(images['test'])} others. They are alike but for two things: DCN-ODE and ODE-Net carry a feature map through time, "
        "dh/dt = f(t, h), where ResNet-blocks takes one step; and the filters of DCN-ODE are Gaussian derivatives whose scale σ is "
        "learned, where the others have 3×3 pixels. All were trained by one recipe, each kind of filter at a learning rate that suits it."
    )
    sections = [
        _accuracy(subjects),
        _curves(subjects),
        _evaluations(subjects),
        _scales(subjects),
        _features(subjects),
        _masks(subjects, masks),
        _contrasts(subjects, contrasts),
    ]
    return Page("Continua: a demonstration", [intro, _results(subjects)], sections)


def _results(subjects: Subjects) -> Table:
    columns = ["network", "parameters", Column("test accuracy", "%", 2), Column("NFE per image", digits=1), Column("training", "s", 0)]
    rows = []
    for name, subject in subjects.items():
        result = _result(subject)
        rows.append((name, result["parameters"], 100 * result["test_accuracy"], _cost(subject) or None, result["seconds"]))
    caption = "NFE: evaluations of f for one forward pass, all blocks, mean over the last epoch. Accuracy: of the last weights."
    return Table("results", "What came out", columns, rows, caption)


def _accuracy(subjects: Subjects) -> Page:
    results = {name: _result(subject) for name, subject in subjects.items()}
    points = [
        Series(name, [result["parameters"]], [100 * result["test_accuracy"]], style="points", colour=place)
        for place, (name, result) in enumerate(results.items())
    ]
    text = (
        "Gaussian derivatives need six numbers where a 3×3 filter needs nine, whatever their size in pixels, so the network with the "
        "widest filters is the one with the fewest parameters."
    )
    x = Axis("parameters", limits=(0, 1.15 * max(result["parameters"] for result in results.values())))
    low = min(float(point.y[0]) for point in points)
    figure = Figure("parameters", "Test accuracy against parameters", x, Axis("accuracy", "%", limits=(min(90.0, low - 2), 100.5)), points)
    return Page("Accuracy against parameters", [text, figure])


def _curves(subjects: Subjects) -> Page:
    text = "Left to right is one pass over all training images per epoch; the learning rate falls along half a cosine, hence the calm end."
    loss = [Series(name, *_points(subject, "loss"), colour=place) for place, (name, subject) in enumerate(subjects.items())]
    test = [
        Series(name, *_points(subject, "test_accuracy", 100), style="both", colour=place)
        for place, (name, subject) in enumerate(subjects.items())
    ]
    parts: list[str | Figure] = [text, Figure("loss", "Training loss", Axis("epoch", whole=True), Axis("loss", "nats", log=True), loss)]
    if any(series.y for series in test):
        parts.append(Figure("test", "Test accuracy", Axis("epoch", whole=True), Axis("accuracy", "%"), test))
    return Page("Loss curves", parts)


def _evaluations(subjects: Subjects) -> Page:
    series = []
    for place, (name, subject) in enumerate(_continuous(subjects).items()):
        epochs = [line["epoch"] for line in subject.run.epochs]
        for block in range(len(subject.run.epochs[-1]["nfe"])):
            nfe = [line["nfe"][block] for line in subject.run.epochs]
            look: Look = {**LINES[block % len(LINES)], "colour": place}
            series.append(Series(f"{name}, block {block + 1}", epochs, nfe, **look))
    change = "; ".join(
        f"{name} {sum(subject.run.epochs[0]['nfe']):.1f} → {_cost(subject):.1f}" for name, subject in _continuous(subjects).items()
    )
    text = (
        "The solver chooses its steps by an error tolerance, so depth is not fixed but follows the dynamics that are learned. Evaluations "
        f"of f (NFE) in all blocks, from the first epoch to the last: {change}."
    )
    return Page("Evaluations of f", [text, Figure("nfe", "NFE per solve", Axis("epoch", whole=True), Axis("evaluations of f"), series)])


def _scales(subjects: Subjects) -> Page:
    jets = {name: subject for name, subject in subjects.items() if subject.run.epochs[-1]["sigma"]}
    question = find_question("scales")
    pages = {name: question.present(question.ask(subject, question.Options())) for name, subject in jets.items()}
    depth = (overlaid(pages) if len(pages) > 1 else next(iter(pages.values()))).every(Figure)
    layers = [
        Series(short_name(layer), [line["epoch"] for line in subject.run.epochs], [line["sigma"][layer] for line in subject.run.epochs])
        for subject in jets.values()
        for layer in subject.run.epochs[-1]["sigma"]
    ]
    text = (
        "Each N-jet layer has learned its own scale σ, the width of its Gaussians in pixels of its own map; filters are sampled up to "
        "about 2σ on either side, so a larger σ is a larger receptive field at no further parameter."
    )
    moving = Figure("sigma", "σ in training", Axis("epoch", whole=True), Axis("σ", "pixels"), layers)
    return Page("Scales by depth", [text, *depth, moving])


def _features(subjects: Subjects) -> Page:
    text = (
        "Inside a continuous block every moment has a feature map: these are the states h(t) of block 1 for one test image, in the "
        "channels that change most on the way."
    )
    moving = [_evolution(name, subject) for name, subject in _continuous(subjects).items()]
    return Page("Feature maps through time", [text, _inputs(next(iter(subjects.values()))), *moving])


def _masks(subjects: Subjects, masks: Mapping[str, Answer]) -> Page:
    page = overlaid({name: answer.page for name, answer in masks.items()})
    change = {name: (answer.result.difference.mean[0], answer.result.difference.mean[-1]) for name, answer in masks.items()}
    changes = "; ".join(f"{name} {start:.2f} → {end:.2f}" for name, (start, end) in change.items())
    text = (
        "A square in the middle of each test image is set to black. D compares the features of masked and intact images relative to their "
        f"size: where it falls, the block fills in what is missing. In block 1, from start to end: {changes}."
    )
    accuracy, difference = page.every(Figure)[:2]
    curves = [replace(series, name=series.name.split(":")[0], error=None) for series in difference.series if not series.dashed]
    shown = [series for series in curves if series.name in _continuous(subjects)]
    difference = replace(difference, series=shown, caption="D = Σ|h intact − h masked| / Σ|h intact|, over all features of the block.")
    return Page("Robustness to a mask", [text, accuracy, difference])


def _contrasts(subjects: Subjects, contrasts: Mapping[str, Answer]) -> Page:
    timed = {name: answer for name, answer in contrasts.items() if name in _continuous(subjects)}
    page = overlaid({name: answer.page for name, answer in timed.items()})
    plain = [
        Series(name, answer.result.contrasts, 100 * np.array(answer.result.curves[0].accuracy), colour=place)
        for place, (name, answer) in enumerate(contrasts.items())
        if name not in timed
    ]
    savings = "; ".join(f"{name} {_saving(answer.result)}" for name, answer in timed.items())
    text = (
        "All test images are made c times as bright. Dashed: the end time T of block 1 follows c, and nothing is trained again. At "
        f"c = {DIM:g}, images alone → with T following: {savings}."
    )
    accuracy, *others = page.every(Figure)
    accuracy = replace(accuracy, series=[*accuracy.series, *plain])
    return Page("Robustness to contrast", [text, accuracy, *others[:1]])


def _saving(result: Contrast) -> str:
    """What following the contrast brings, at the contrast nearest to that of the example."""
    at = int(np.abs(np.log(np.array(result.contrasts) / DIM)).argmin())
    naive, scaled = (next(curve for curve in result.curves if curve.mode == mode) for mode in ("naive", "scaled"))
    costs = f"{naive.nfe[at][0]:.1f} → {scaled.nfe[at][0]:.1f} evaluations of f in block 1"
    return f"{100 * naive.accuracy[at]:.1f}\u00a0% → {100 * scaled.accuracy[at]:.1f}\u00a0%, {costs}"


def _inputs(subject: Subject) -> Maps:
    image = subject.images().first(EXAMPLE + 1)[0][EXAMPLE].mean(0)
    side = min(image.shape) * 3 // 8
    shown = torch.stack([image, masked(image, side), DIM * image]).numpy()
    columns = ["as it is", f"masked {side}×{side}", f"contrast {DIM:g}"]
    return Maps("image", "What the networks see", ["image"], columns, shown[None], "brightness (0 … 1)", one_scale=True)


@torch.no_grad()
def _evolution(name: str, subject: Subject) -> Maps:
    image = subject.images().first(EXAMPLE + 1)[0][EXAMPLE:]
    trajectory, times = states(subject.model, image, 0, MOMENTS)
    h = trajectory[:, 0].float().cpu()  # (time, channel, height, width)
    change = (h[-1] - h[0]).square().mean((1, 2))
    chosen = change.topk(min(CHANNELS, len(change))).indices.sort().values
    rows = [f"channel {channel}" for channel in chosen.tolist()]
    values = h[:, chosen].transpose(0, 1).numpy()
    return Maps(f"states-{subject.name}", f"{name}: h(t) in block 1", rows, [f"t = {t:.2g}" for t in times], values, "h (no unit)")


def _continuous(subjects: Subjects) -> dict[str, Subject]:
    return {name: subject for name, subject in subjects.items() if isinstance(subject.model.blocks[0], ODEBlock)}


def _points(subject: Subject, key: str, factor: float = 1.0) -> tuple[list[float], list[float]]:
    lines = [line for line in subject.run.epochs if line.get(key) is not None]
    return [line["epoch"] for line in lines], [factor * line[key] for line in lines]


def _result(subject: Subject) -> dict[str, Any]:
    return subject.run.result or {}


def _cost(subject: Subject) -> float:
    return float(sum(subject.run.epochs[-1]["nfe"]))
