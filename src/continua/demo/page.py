"""The page of the demo: what came out, how it went, and what happens inside, each with a sentence that says what to look for."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from continua.analysis import Answer, Contrast, Subject, find_question, masked, short_name
from continua.blocks import ODEBlock
from continua.report import Axis, Column, Figure, Maps, Page, Series, Table, overlaid

DIM = 0.25  # contrast of the example
EXAMPLE = 4  # place of the image whose features are shown
MOMENTS, CHANNELS = 6, 4

Subjects = Mapping[str, Subject]


def demo_page(subjects: Subjects, masks: Mapping[str, Answer], contrasts: Mapping[str, Answer]) -> Page:
    """Everything by the name of the network, in one order; the last part before the sections is the table of results."""
    first = next(iter(subjects.values()))
    images = first.run.dataset()
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
    rows = [
        (
            name,
            subject.run.result["parameters"],
            100 * subject.run.result["test_accuracy"],
            _cost(subject) or None,
            subject.run.result["seconds"],
        )
        for name, subject in subjects.items()
        if subject.run.result is not None
    ]
    caption = "NFE: evaluations of f for one forward pass, all blocks, mean over the last epoch. Accuracy: of the last weights."
    return Table("results", "What came out", columns, rows, caption)


def _accuracy(subjects: Subjects) -> Page:
    points = [
        Series(name, [subject.run.result["parameters"]], [100 * subject.run.result["test_accuracy"]], style="points", colour=place)
        for place, (name, subject) in enumerate(subjects.items())
        if subject.run.result is not None
    ]
    text = (
        "Gaussian derivatives need six numbers where a 3×3 filter needs nine, whatever their size in pixels, so the network with the "
        "widest filters is the one with the fewest parameters."
    )
    most = max(subject.run.result["parameters"] for subject in subjects.values() if subject.run.result is not None)
    x = Axis("parameters", limits=(0, 1.15 * most))
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
        for block, (style, dashed) in enumerate(_line_styles(len(subject.run.epochs[-1]["nfe"]))):
            nfe = [line["nfe"][block] for line in subject.run.epochs]
            series.append(Series(f"{name}, block {block + 1}", epochs, nfe, style=style, dashed=dashed, colour=place))
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
    depth = overlaid(pages).every(Figure) if len(pages) > 1 else next(iter(pages.values())).every(Figure)
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
    inputs = _inputs(next(iter(subjects.values())))
    return Page(
        "Feature maps through time", [text, inputs, *(_evolution(name, subject) for name, subject in _continuous(subjects).items())]
    )


def _masks(subjects: Subjects, masks: Mapping[str, Answer]) -> Page:
    page = overlaid({name: answer.page for name, answer in masks.items()})
    change = {name: (answer.result.difference.mean[0], answer.result.difference.mean[-1]) for name, answer in masks.items()}
    changes = "; ".join(f"{name} {start:.2f} → {end:.2f}" for name, (start, end) in change.items())
    text = (
        "A square in the middle of each test image is set to black. D compares the features of masked and intact images relative to their "
        f"size: where it falls, the block fills in what is missing. In block 1, from start to end: {changes}."
    )
    accuracy, difference = page.every(Figure)[:2]
    curves = [series for series in difference.series if not series.dashed]
    shown = [
        replace(series, name=series.name.split(":")[0], error=None)
        for series in curves
        if series.name.split(":")[0] in _continuous(subjects)
    ]
    difference = replace(difference, series=shown, caption="D = Σ|h intact − h masked| / Σ|h intact|, over all features of the block.")
    return Page("Robustness to a mask", [text, accuracy, difference])


def _contrasts(subjects: Subjects, contrasts: Mapping[str, Answer]) -> Page:
    page = overlaid({name: answer.page for name, answer in contrasts.items() if name in _continuous(subjects)})
    plain = [
        Series(name, answer.result.contrasts, 100 * np.array(answer.result.curves[0].accuracy), colour=place)
        for place, (name, answer) in enumerate(contrasts.items())
        if name not in _continuous(subjects)
    ]
    savings = "; ".join(f"{name} {_saving(answer.result)}" for name, answer in contrasts.items() if name in _continuous(subjects))
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
    image = subject.images(find_question("contrast").Options()).first(EXAMPLE + 1)[0][EXAMPLE].mean(0)
    side = min(image.shape) * 3 // 8
    shown = torch.stack([image, masked(image, side), DIM * image]).numpy()
    columns = ["as it is", f"masked {side}×{side}", f"contrast {DIM:g}"]
    return Maps("image", "What the networks see", ["image"], columns, shown[None], "brightness (0 … 1)", one_scale=True)


@torch.no_grad()
def _evolution(name: str, subject: Subject) -> Maps:
    net = subject.model
    image = subject.images(find_question("contrast").Options()).first(EXAMPLE + 1)[0][EXAMPLE:]
    times = np.linspace(net.blocks[0].t0, net.blocks[0].t1, MOMENTS)
    states = net.states(image, block=0, times=torch.from_numpy(times))[:, 0].float().cpu()  # (time, channel, height, width)
    change = (states[-1] - states[0]).square().mean((1, 2))
    chosen = change.topk(min(CHANNELS, len(change))).indices.sort().values
    rows = [f"channel {channel}" for channel in chosen.tolist()]
    values = states[:, chosen].transpose(0, 1).numpy()
    return Maps(f"states-{subject.name}", f"{name}: h(t) in block 1", rows, [f"t = {t:.2g}" for t in times], values, "h (no unit)")


def _continuous(subjects: Subjects) -> dict[str, Subject]:
    return {name: subject for name, subject in subjects.items() if isinstance(subject.model.blocks[0], ODEBlock)}


def _line_styles(blocks: int) -> list[tuple[Literal["line", "both"], bool]]:
    """Colours tell networks apart, lines (plain, dashed, with markers) their blocks."""
    styles: list[tuple[Literal["line", "both"], bool]] = [("line", False), ("line", True), ("both", False)]
    return [styles[block % len(styles)] for block in range(blocks)]


def _points(subject: Subject, key: str, factor: float = 1.0) -> tuple[list[float], list[float]]:
    lines = [line for line in subject.run.epochs if line.get(key) is not None]
    return [line["epoch"] for line in lines], [factor * line[key] for line in lines]


def _cost(subject: Subject) -> float:
    return float(sum(subject.run.epochs[-1]["nfe"]))
