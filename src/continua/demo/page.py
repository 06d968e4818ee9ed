"""The page of the demo: what came out, how it was set up, what happens inside. Every sentence is computed from the numbers shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from continua.analysis import Answer, Contrast, Subject, find_question, masked, short_name, states
from continua.blocks import ODEBlock
from continua.demo.kept import RATES, SEARCH, SEARCHED, SPREAD
from continua.report import Axis, Column, Figure, Look, Maps, Page, PlusMinus, Series, Table, overlaid
from continua.runs import identity, load_recipe, resolve

DIM = 0.25  # contrast of the example
EXAMPLE = 4  # place of the image whose features are shown
MOMENTS, CHANNELS = 6, 4
LINES: tuple[Look, ...] = ({}, {"dashed": True}, {"style": "both"})  # of blocks; colours tell networks apart
Subjects = Mapping[str, Subject]


@dataclass(frozen=True)
class Agreement:
    """How many of the images get the same class when the network is solved at a tighter tolerance."""

    tolerance: float
    tighter: float
    same: int
    images: int


def demo_page(
    subjects: Subjects, masks: Mapping[str, Answer], contrasts: Mapping[str, Answer], agreements: Mapping[str, Agreement]
) -> Page:
    """Everything by the name of the network, in one order; the first table is that of results."""
    images = next(iter(subjects.values())).run.dataset()
    intro = (
        f"Three small networks have learned to read {len(images['train']):,} handwritten digits, and are tested on "
        f"{len(images['test'])} others. They are alike but for two things: DCN-ODE and ODE-Net carry a feature map through time, "
        "dh/dt = f(t, h), where ResNet-blocks takes one step; and the filters of DCN-ODE are Gaussian derivatives whose scale σ is "
        "learned, where the others have 3×3 pixels."
    )
    sections = [
        _set_up(subjects, agreements),
        _curves(subjects),
        _evaluations(subjects),
        _scales(subjects),
        _features(subjects),
        _masks(subjects, masks),
        _contrasts(subjects, contrasts),
        _learnt(subjects, masks, contrasts),
    ]
    return Page("Continua: a demonstration", [intro, _results(subjects), _order(subjects)], sections)


# --- what came out, and how it was set up -------------------------------------------------------------------------------------


def _results(subjects: Subjects) -> Table:
    columns = ["network", "parameters", Column("test accuracy", "%", 2), Column("over seeds", "%", 2)]
    columns += [Column("NFE per image", digits=1), Column("training", "s", 0)]
    rows = []
    for name, subject in subjects.items():
        result, kept = _result(subject), 100 * np.array(_earlier(subject))
        spread = PlusMinus(float(kept.mean()), float(kept.std(ddof=1))) if len(kept) > 1 else None
        rows.append((name, result["parameters"], 100 * result["test_accuracy"], spread, _cost(subject) or None, result["seconds"]))
    caption = (
        "Test accuracy: of the last weights of this run. Over seeds: mean ± standard deviation of earlier runs of the same recipe "
        "(scripts/demo-search; results/checks/demo.json). NFE: evaluations of f for one forward pass, all blocks, mean over the last epoch."
    )
    return Table("results", "What came out", columns, rows, caption)


def _earlier(subject: Subject) -> tuple[float, ...]:
    """Accuracies of earlier runs by the same recipe with other seeds; none where the recipe was changed."""
    recipe = subject.run.recipe
    rate = {"optimiser": {"lr": RATES.get(recipe.model, 0.0)}}
    plain = resolve(load_recipe("demo", {"model": recipe.model, "seed": recipe.seed, "precision": recipe.precision, **rate}), "cpu")
    return SPREAD.get(recipe.model, ()) if identity(plain) == identity(recipe) else ()


def _order(subjects: Subjects) -> str:
    """Whether the differences between the networks are more than those between seeds."""
    kept = {name: 100 * np.array(_earlier(subject)) for name, subject in subjects.items()}
    known = {name: values for name, values in kept.items() if len(values) > 1}
    if len(known) < 2:
        return "How much these accuracies vary from seed to seed is not known."
    ranked = sorted(known, key=lambda name: -known[name].mean())
    best, last = known[ranked[0]], known[ranked[-1]]
    apart, wide = best.mean() - last.mean(), max(values.std(ddof=1) for values in known.values())
    ranges = "; ".join(f"{name} {values.min():.1f} to {values.max():.1f}\u00a0%" for name, values in known.items())
    told = "so the order of the networks is more than chance" if apart > 2 * wide else "so their order says little"
    return (
        f"Over {len(best)} seeds: {ranges}. From the best mean ({ranked[0]}) to the lowest ({ranked[-1]}) it is {apart:.1f} points, and "
        f"the widest standard deviation over seeds is {wide:.1f} points, {told}. "
        "This is a demonstration on an easy data set, not a benchmark."
    )


def _set_up(subjects: Subjects, agreements: Mapping[str, Agreement]) -> Page:
    recipe = next(iter(subjects.values())).run.recipe
    text = (
        f"All three were trained by one recipe: {recipe.epochs} epochs, batches of {recipe.batch_size}, the same widths and activation. "
        "Only the learning rate is each network's own. The same few rates were tried for each on four fifths of the training images, and "
        "the rate with the best accuracy on the remaining fifth was chosen; the test images played no part in this."
    )
    solved = "; ".join(
        f"{name}, solved at a tolerance of {each.tighter:g} instead of {each.tolerance:g}, gives {each.same} of {each.images} test images "
        "the same class"
        for name, each in agreements.items()
    )
    parts: list[str | Table | Figure] = [text, *_search(subjects)]
    if solved:
        parts.append(
            f"A network can come to depend on its solver's errors. It does not if a far more accurate solve gives the same: {solved}."
        )
    return Page("How they were trained", [*parts, *_seeds(subjects)])


def _search(subjects: Subjects) -> list[Table]:
    tried = {name: SEARCH.get(subject.run.recipe.model, {}) for name, subject in subjects.items()}
    rates = sorted({rate for found in tried.values() for rate in found})
    if not rates:
        return []
    rows = []
    for name, found in tried.items():
        rows.append((name, *(100 * found[rate] if rate in found else None for rate in rates), f"{_rate(subjects[name]):g}"))
    columns = ["network", *(Column(f"{rate:g}", "%", 1) for rate in rates), "chosen"]
    caption = f"{SEARCHED} epochs; each number is the mean of four seeds."
    return [Table("search", "Accuracy on held-out images by learning rate", columns, rows, caption)]


def _seeds(subjects: Subjects) -> list[Figure]:
    kept = {name: _earlier(subject) for name, subject in subjects.items()}
    if not any(kept.values()):
        return []
    names = [name for name, values in kept.items() for _ in values]
    points = [100 * value for values in kept.values() for value in values]
    series = [
        Series("earlier runs, one per seed", names, points, style="points", colour=6),
        Series(
            "this run", list(subjects), [100 * _result(subject)["test_accuracy"] for subject in subjects.values()], style="points", colour=1
        ),
    ]
    return [Figure("seeds", "Test accuracy from seed to seed", Axis("network"), Axis("accuracy", "%"), series)]


# --- in training ----------------------------------------------------------------------------------------------------------------


def _curves(subjects: Subjects) -> Page:
    last = "; ".join(
        f"{name} {subject.run.epochs[0]['loss']:.2f} → {subject.run.epochs[-1]['loss']:.3f}" for name, subject in subjects.items()
    )
    text = (
        "An epoch is one pass over all training images; the learning rate follows half a cosine down to zero. Mean loss, first epoch → "
        f"last: {last}."
    )
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
    changes = {name: (sum(subject.run.epochs[0]["nfe"]), _cost(subject)) for name, subject in _continuous(subjects).items()}
    text = (
        "The solver chooses its steps by an error tolerance, so depth is not fixed but follows the dynamics that are learned. The "
        f"number of evaluations of f (NFE) in all blocks {trend(changes)} from the first epoch to the last: {_arrows(changes, 1)}."
    )
    return Page("Evaluations of f", [text, Figure("nfe", "NFE per solve", Axis("epoch", whole=True), Axis("evaluations of f"), series)])


# --- inside -----------------------------------------------------------------------------------------------------------------------


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
    ends = {series.name: (float(series.y[0]), float(series.y[-1])) for series in layers}
    text = (
        "Each N-jet layer has learned its own scale σ, the width of its Gaussians in pixels of its own map; filters are sampled up to "
        "about 2σ on either side, so a larger σ is a larger receptive field without more parameters. From the first epoch to the last σ "
        f"{trend(ends, 'layers')}: {_arrows(ends, 2)}."
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


def _inputs(subject: Subject) -> Maps:
    preprocess = subject.run.preprocess
    mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (preprocess.mean or (0.0,), preprocess.std or (1.0,)))
    image = (subject.images().first(EXAMPLE + 1)[0][EXAMPLE].cpu() * std + mean).mean(0)  # pixel values again
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


# --- under changes ----------------------------------------------------------------------------------------------------------------


def _masks(subjects: Subjects, masks: Mapping[str, Answer]) -> Page:
    page = overlaid({name: answer.page for name, answer in masks.items()})
    changes = _differences(subjects, masks)
    text = (
        "A square in the middle of each test image is set to black. D compares the features of masked and intact images relative to their "
        f"size: where it falls, the block fills in what is missing. In block 1 D {trend(changes)} from start to end: {_arrows(changes, 2)}."
    )
    accuracy, difference = page.every(Figure)[:2]
    curves = [replace(series, name=series.name.split(":")[0], error=None) for series in difference.series if not series.dashed]
    shown = [series for series in curves if series.name in _continuous(subjects)]
    difference = replace(difference, series=shown, caption="D = Σ|h intact − h masked| / Σ|h intact|, over all features of the block.")
    return Page("Robustness to a mask", [text, accuracy, difference])


def _differences(subjects: Subjects, masks: Mapping[str, Answer]) -> dict[str, tuple[float, float]]:
    timed = {name: masks[name].result.difference.mean for name in _continuous(subjects)}
    return {name: (float(values[0]), float(values[-1])) for name, values in timed.items()}


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
    naive, scaled, costs = _followed(result)
    return f"{100 * naive:.1f}\u00a0% → {100 * scaled:.1f}\u00a0%, {costs[0]:.1f} → {costs[1]:.1f} evaluations of f in block 1"


def _followed(result: Contrast) -> tuple[float, float, tuple[float, float]]:
    at = int(np.abs(np.log(np.array(result.contrasts) / DIM)).argmin())
    naive, scaled = (next(curve for curve in result.curves if curve.mode == mode) for mode in ("naive", "scaled"))
    return naive.accuracy[at], scaled.accuracy[at], (naive.nfe[at][0], scaled.nfe[at][0])


# --- at the end -------------------------------------------------------------------------------------------------------------------


def _learnt(subjects: Subjects, masks: Mapping[str, Answer], contrasts: Mapping[str, Answer]) -> Page:
    accuracy = {name: 100 * _result(subject)["test_accuracy"] for name, subject in subjects.items()}
    sizes = {name: _result(subject)["parameters"] for name, subject in subjects.items()}
    least = min(sizes, key=lambda name: sizes[name])
    seconds = {name: _result(subject)["seconds"] for name, subject in subjects.items()}
    slow, quick = max(seconds, key=lambda name: seconds[name]), min(seconds, key=lambda name: seconds[name])
    differences = _differences(subjects, masks)
    gains = {name: _followed(contrasts[name].result)[:2] for name in _continuous(subjects)}
    helped = [name for name, (naive, scaled) in gains.items() if scaled > naive]
    sentences = [
        f"Accuracy: {', '.join(f'{name} {value:.1f} %' for name, value in accuracy.items())}. {least} has the fewest parameters, "
        f"{sizes[least]:,}: "
        "a filter of Gaussian derivatives needs six numbers where 3×3 pixels need nine, whatever its size.",
        f"Continuous depth is paid for in time: {slow} took {seconds[slow]:.0f} s to train, {quick} {seconds[quick]:.0f} s.",
        f"Pattern completion: D {trend(differences)} along block 1. The DCN paper finds that it falls in networks trained on CIFAR-10.",
        f"Contrast: letting the end time follow c helps {_list(helped) or 'neither network'} at c = {DIM:g}"
        + (f", and not {_list([name for name in gains if name not in helped])}." if 0 < len(helped) < len(gains) else "."),
    ]
    after = (
        "What next: `make explore` (or `continua explore`) opens these networks in the browser, and takes your own pictures; "
        "`continua train --recipe demo --model dcn_full` trains another one; `continua train --recipe dcn --data image_folder64 "
        "--data-dir FOLDER` trains on your own images (docs/own-images.md); `continua reproduce --list` lists the papers' tables and "
        "figures, each reproduced by one command."
    )
    return Page("What was learnt, and what next", [*sentences, after])


# --- words and numbers -------------------------------------------------------------------------------------------------------------


def trend(changes: Mapping[str, tuple[float, float]], what: str = "networks") -> str:
    """What the pairs (start, end) do, in words: "rises in both networks", "falls in A, and rises in B".

    A change of less than one per cent counts as none.
    """
    words = {"rises": [], "falls": [], "stays the same": []}
    for name, (start, end) in changes.items():
        still = abs(end - start) <= 0.01 * max(abs(start), abs(end))
        words["stays the same" if still else "rises" if end > start else "falls"].append(name)
    found = {word: names for word, names in words.items() if names}
    if len(found) == 1 and len(changes) > 1:
        everywhere = f"both {what}" if len(changes) == 2 else f"all {len(changes)} {what}"
        return f"{next(iter(found))} in {everywhere}"
    return ", and ".join(f"{word} in {_list(names)}" for word, names in found.items())


def _list(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _arrows(changes: Mapping[str, tuple[float, float]], digits: int) -> str:
    return "; ".join(f"{name} {start:.{digits}f} → {end:.{digits}f}" for name, (start, end) in changes.items())


def _continuous(subjects: Subjects) -> dict[str, Subject]:
    return {name: subject for name, subject in subjects.items() if isinstance(subject.model.blocks[0], ODEBlock)}


def _points(subject: Subject, key: str, factor: float = 1.0) -> tuple[list[float], list[float]]:
    lines = [line for line in subject.run.epochs if line.get(key) is not None]
    return [line["epoch"] for line in lines], [factor * line[key] for line in lines]


def _result(subject: Subject) -> dict[str, Any]:
    return subject.run.result or {}


def _rate(subject: Subject) -> float:
    return subject.run.recipe.optimiser.lr


def _cost(subject: Subject) -> float:
    return float(sum(subject.run.epochs[-1]["nfe"]))
