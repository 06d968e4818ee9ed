"""The figures of the DCN paper, asked of the networks that its tables train."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from continua.analysis import (
    Contrast,
    ContrastSaving,
    Difference,
    ReactionTime,
    black,
    completion,
    examples_maps,
    find_question,
    pattern_completion,
    savings,
    scales,
    short_name,
)
from continua.filters import fit_pixel_kernel, jet_orders
from continua.report import Axis, Cell, Claim, Column, Figure, Look, Maps, Part, Series, Table
from continua.studies.claims import claim_above, claim_ahead, claim_behind, claim_below
from continua.studies.compare import over_seeds
from continua.studies.dcn import ASKED, LOOK, PAPER, SETTINGS, THREE, decoder_label, rows2b, rows_of, training_reached
from continua.studies.dcn import STUDIES as TABLES
from continua.studies.runs import Runs
from continua.studies.study import ADAPTIVE, OF_FORMULAS, Finding, Row, Setting, Study

CONTRAST, COMPLETION, SCALES, RECONSTRUCTION, REACTION = map(
    find_question, ("contrast", "pattern_completion", "scales", "reconstruction", "reaction_time")
)


# --- Figure 1 -----------------------------------------------------------------------------------------------------------


def _edge(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(2 * (x * math.cos(0.6) + y * math.sin(0.6))) * torch.exp(-0.5 * (x**2 + y**2))


def _bar(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    along, across = x * math.cos(1.0) + y * math.sin(1.0), y * math.cos(1.0) - x * math.sin(1.0)
    return torch.cos(1.5 * across) * torch.exp(-0.5 * (along**2 + across**2))


FIGURE1 = {2.28: _edge, 0.90: _bar}  # the two σ of the paper


def _fig1(runs: Runs) -> Finding:
    """An oriented edge and a blob, made of pixels, and the N-jets nearest to them at the paper's two scales."""
    parts: list[Part] = []
    rows = []
    for sigma, make in FIGURE1.items():
        radius = math.ceil(3 * sigma)
        x = torch.arange(-radius, radius + 1, dtype=torch.float64) / sigma
        target = make(x[None, :], x[:, None])[None, None]
        fit = fit_pixel_kernel(target, sigma=sigma)
        fine = torch.linspace(-3 * sigma, 3 * sigma, 61, dtype=torch.float64)
        smooth = fit.filter.sample(fine, fine).detach()[0, 0]
        rows.append([sigma, fit.residual, *fit.filter.alpha.detach().flatten().tolist()])
        name = f"sigma_{sigma:.2f}".replace(".", "_")
        sampled = fit.filter.kernel(fit.filter.state()).weight().detach()[0, 0]
        values = np.stack([target[0, 0].numpy(), sampled.double().numpy()])[None]
        parts.append(Maps(name, f"A pixel filter and its N-jet, σ = {sigma:.2f}", ["filter"], ["pixels", "N-jet"], values, "weight"))
        title = f"The same N-jet as a function, σ = {sigma:.2f}"
        parts.append(Maps(f"{name}_fine", title, ["filter"], ["N-jet"], smooth[None, None].numpy(), "weight"))
    columns = [Column("σ", "pixels", 2), Column("residual of the fit", digits=3), *(Column(f"α{i}{j}", digits=3) for i, j in jet_orders(2))]
    return Finding([*parts, Table("alpha", "Coefficients", columns, rows)])


# --- Figure 3 -----------------------------------------------------------------------------------------------------------


def _fig3a(runs: Runs) -> Finding:
    """σ begins at random values that rise with depth as often as they fall, so what counts is all seeds, and the change from the start."""
    series: list[Series] = []
    claims: list[Claim] = []
    rows: list[list[Cell]] = []
    for place, label in enumerate(("DCN-ODE", "DCN-full")):
        networks = {seed: answer.result for seed, answer in runs.ask_each(SCALES, label).items()} if label in runs.by_label else {}
        start = {seed: scales(net) for seed, net in runs.untrained(label).items()}
        after = {seed: found.correlation for seed, found in networks.items()}
        before = {seed: found.correlation for seed, found in start.items()}
        of = "rank correlation of σ with depth"
        claims.append(claim_above(f"σ of {label} grows with depth", list(after.values()), of=of))
        claims.append(claim_ahead(f"training makes σ of {label} grow with depth", after, before, unit="of rank correlation"))
        if not networks:
            continue
        names = [short_name(layer.name) for layer in next(iter(networks.values())).layers]
        series.append(_over_networks(label, names, np.stack([found.typical for found in networks.values()]), place))
        first = np.stack([found.typical for found in start.values()]).mean(0)
        series.append(Series(f"{label}, before training", names, first, style="both", dashed=True, colour=place))
        rows += [[label, str(seed), before[seed], after[seed]] for seed in after]
    series.sort(key=lambda curve: -len(curve.x))  # who has all layers first: names stand in the order in which they first appear
    figure = Figure("sigma_by_depth", "Learned σ by depth", Axis("layer, from input to output"), Axis("σ", "pixels"), series)
    columns = ["model", "seed", Column("before training", digits=2), Column("after", digits=2)]
    return Finding([figure, Table("correlation", "Rank correlation of σ with depth", columns, rows), *training_reached(runs)], claims)


def _over_networks(label: str, x: Sequence[float] | Sequence[str], values: np.ndarray, place: int) -> Series:
    """The mean of the rows, each of one network, with their standard deviation."""
    return Series(label, x, values.mean(0), values.std(0, ddof=1) if len(values) > 1 else None, style="both", colour=place)


def _fig3b(runs: Runs) -> Finding:
    """σ_ji are log-normal before training, with a skewness that follows from how they are drawn: what counts is the change."""
    label = "DCN σ_ji"
    answers, untrained = runs.ask_each(SCALES, label), {seed: scales(net) for seed, net in runs.untrained(label).items()}
    first = next(iter(answers.values()))
    parts = [part for part in first.page.parts if isinstance(part, Figure | Table) and part.name in ("distribution", "distributions")]
    claims = []
    for place, block in enumerate(first.result.distributions):
        after = {seed: answer.result.distributions[place].skewness for seed, answer in answers.items()}
        before = {seed: found.distributions[place].skewness for seed, found in untrained.items()}
        hypothesis = f"training makes σ_ji of {block.where} more skewed to the right"
        claims.append(claim_ahead(hypothesis, after, before, unit="of skewness"))
    return Finding(parts, claims)


def _fig3c(runs: Runs) -> Finding:
    series: list[Series] = []
    kept: dict[str, dict[int, float]] = {}
    for place, label in enumerate(label for label in THREE if label in runs.by_label):
        networks = {seed: answer.result for seed, answer in runs.ask_each(COMPLETION, label).items()}
        values = {seed: 100 * np.array(result.accuracies) for seed, result in networks.items()}
        sizes = next(iter(networks.values())).sizes
        series.append(_over_networks(label, sizes, np.stack(list(values.values())), place))
        kept[label] = {seed: float(100 * (accuracy[1:] / accuracy[0]).mean()) for seed, accuracy in values.items()}
    claims = [
        claim_ahead(
            f"DCN-ODE keeps more of its accuracy under a mask than {other}",
            kept.get("DCN-ODE", {}),
            kept.get(other, {}),
            unit="% of its accuracy",
        )
        for other in THREE[:2]
    ]
    figure = Figure("accuracy", "Accuracy against the size of the mask", Axis("side of the mask", "pixels"), Axis("accuracy", "%"), series)
    rows = [[label, over_seeds(list(shares.values()))] for label, shares in kept.items()]
    table = Table("kept", "Share of the accuracy that is kept, mean over masks", ["model", Column("kept", "%", 1)], rows)
    return Finding([figure, table], claims)


# --- Figures 4, 6, 7 ------------------------------------------------------------------------------------------------------


UNTRAINED = "DCN-ODE, untrained"


def _differences(runs: Runs, label: str) -> dict[int, Difference]:
    return {seed: answer.result.difference for seed, answer in runs.ask_each(COMPLETION, label).items()}


def _untrained(runs: Runs) -> dict[int, Difference]:
    """D(t) of the same networks before training, on the same images."""
    seen = runs.setting.look
    found = {}
    for (seed, net), subject in zip(runs.untrained("DCN-ODE").items(), runs.subjects("DCN-ODE"), strict=True):
        images = subject.images(limit=seen.get("limit"), batch_size=seen.get("batch_size"))
        found[seed] = completion(net, images, images=seen.get("trajectories", 1000), zero=black(subject.run.preprocess))
    return found


def _completion(runs: Runs) -> Finding:
    """Figures 4a and 7: D(t) and the absolute difference where the mask is, with controls that nothing has taught to complete anything."""
    found = {label: _differences(runs, label) for label in reversed(THREE) if label in runs.by_label}
    found[UNTRAINED] = _untrained(runs)
    curves, holes, rows = [], [], []
    for place, (label, by_seed) in enumerate(found.items()):
        d = next(iter(by_seed.values()))
        scaled = [t / max(d.times[-1], 1e-9) for t in d.times]
        look: Look = {"spread": "band", "style": "both" if len(d.times) < 5 else "line", "colour": place}
        curves.append(_averaged(label, scaled, [each.mean for each in by_seed.values()], look))
        holes.append(_averaged(label, scaled, [each.hole_mean for each in by_seed.values()], look))
        ends = [[getattr(each, name)[at] for each in by_seed.values()] for name in ("mean", "hole_mean") for at in (0, -1)]
        rows.append([label, *(over_seeds(values) for values in ends), len(by_seed)])
    axis = Axis("t / T (residual network: before and after the block)")
    columns = [f"{what} {when}" for what in ("D,", "absolute difference in the mask,") for when in ("start", "end")]
    parts: list[Part] = [
        Figure("difference", "Difference between features of intact and masked images", axis, Axis("D(t)"), curves),
        Figure("inside", "The same where the mask is, as it is", axis, Axis("mean absolute difference"), holes),
        Table("ends", "Block 1, start and end", ["model", *(Column(name, digits=3) for name in columns), "seeds"], rows),
    ]
    return Finding([D_IN_WORDS, *parts], _completion_claims(found))


D_IN_WORDS = "D is the difference between the features of an intact and of a masked image, as a share of the features of the intact one."

SHORT_D = "the difference D between features of intact and masked images"


def _completion_claims(found: Mapping[str, Mapping[int, Difference]]) -> list[Claim]:
    """That D falls is the paper's claim. D may rise everywhere and still rise less in one network: controls are compared by its change."""
    change = {label: {seed: d.mean[-1] - d.mean[0] for seed, d in by_seed.items()} for label, by_seed in found.items()}
    ours = change.get("DCN-ODE", {})
    hypothesis = "within block 1 of DCN-ODE the features of masked images come closer to those of intact ones (D falls)"
    claims = [claim_below(hypothesis, list(ours.values()), of="D at the end minus at the start", unit="of D")]
    for label, words in ((UNTRAINED, "the same network untrained"), ("ODE-Net", "ODE-Net"), ("ResNet-blocks", "ResNet-blocks")):
        hypothesis = f"{SHORT_D} rises less, or falls more, within block 1 of DCN-ODE than in {words}"
        claims.append(claim_behind(hypothesis, ours, change.get(label, {}), unit="of D"))
    return claims


def _averaged(label: str, x: Sequence[float], curves: Sequence[Sequence[float]], look: Look) -> Series:
    values = np.array(curves)
    return Series(label, x, values.mean(0), values.std(0, ddof=1) if len(values) > 1 else None, **look)


def _maps(*labels: str) -> Callable[[Runs], Finding]:
    """Feature maps over t of one image, of the first network of each kind."""

    def ask(runs: Runs) -> Finding:
        parts: list[Part] = []
        for place, label in enumerate(labels):
            page = runs.ask(COMPLETION, runs.subjects(label)[:1]).page
            parts += [replace(maps, name=f"maps_{place}", title=f"{label}: {maps.title}") for maps in page.every(Maps)]
        return Finding(parts)

    return ask


def _fig6(runs: Runs) -> Finding:
    """The paper's three models, and as a control DCN-ODE before training, which nothing has taught to complete anything."""
    subject, net = runs.subjects("DCN-ODE")[0], next(iter(runs.untrained("DCN-ODE").values()))
    result = pattern_completion(net, subject.images(limit=1, batch_size=1), sizes=[0], zero=black(subject.run.preprocess))
    control = [replace(maps, name="maps_untrained", title=f"{UNTRAINED}: {maps.title}") for maps in COMPLETION.present(result).every(Maps)]
    return Finding([*_maps(*THREE)(runs).parts, *control])


def _fig4a(runs: Runs) -> Finding:
    about = _completion(runs)
    return Finding([*about.parts, *_maps("DCN-ODE")(runs).parts], about.claims)


LOSS = 0.005  # of accuracy, which the paper allows for a saving
SAVED = 1 / 3  # of the evaluations: the paper's saving, rounded (60 instead of 102 evaluations is 41 %)


def _fig4b(runs: Runs) -> Finding:
    results = {
        label: {seed: answer.result for seed, answer in runs.ask_each(CONTRAST, label, ADAPTIVE).items()}
        for label in ("DCN-ODE", "ODE-Net")
        if label in runs.by_label
    }
    curves: dict[str, list[Series]] = {"accuracy": [], "nfe_block_1": [], "nfe_all": []}
    template: dict[str, Figure] = {}
    parts: list[Part] = [TWO_READINGS]
    for place, label in enumerate(results):
        first = runs.ask(CONTRAST, runs.subjects(label, solver=ADAPTIVE)[:1])
        template = {part.name: part for part in first.page.every(Figure)}
        for name, series in curves.items():
            series += [replace(curve, name=f"{label}: {curve.name}", colour=place) for curve in template[name].series]
        parts += [f"{label}, first seed: {sentence[0].lower()}{sentence[1:]}" for sentence in savings(first.result)]
    figures = [replace(template[name], series=series, y=replace(template[name].y, limits=None)) for name, series in curves.items()]
    return Finding([*parts, *figures], _contrast_claims(results))


TWO_READINGS = (
    "The bottom of the figure has two readings. The paper's words are that the inputs of all blocks are scaled by c (“inputs of all blocks "
    "× c”). Ours scales the time T of each block as well (“inputs and T of all blocks × c”), which is what f(c h) = f(h) asks for."
)
READINGS = {"inputs_only": "the inputs of all blocks (the paper's words)", "inputs": "the inputs and T of all blocks (our reading)"}


def _contrast_claims(results: Mapping[str, Mapping[int, Contrast]]) -> list[Claim]:
    """A field with f(c h) = f(h) is robust by construction, whatever it has learnt: so accuracy is held against no loss at all."""
    claims = []
    for label, by_seed in results.items():
        lost = [100 * float((result.plain.accuracy - _accuracy(result, "scaled")).mean()) for result in by_seed.values()]
        hypothesis = f"if brightness and T of block 1 are scaled by the same c, {label} loses less than half a point of accuracy"
        claims.append(claim_below(hypothesis, lost, 100 * LOSS, of="accuracy as it is minus at c, mean over c", unit="points"))
    kept = {
        label: {seed: 100 * float(_accuracy(result, "scaled").mean() / result.plain.accuracy) for seed, result in by_seed.items()}
        for label, by_seed in results.items()
    }
    hypothesis = "if brightness and T of block 1 are scaled by the same c, DCN-ODE keeps a larger share of its accuracy than ODE-Net"
    claims.append(claim_ahead(hypothesis, kept.get("DCN-ODE", {}), kept.get("ODE-Net", {}), unit="% of its accuracy"))
    for mode, words in READINGS.items():
        savings_of = [saving for result in results.get("DCN-ODE", {}).values() if (saving := result.saving(mode)) is not None]
        saved = [100 * saving.saved for saving in savings_of]
        chosen = "at a c chosen on the other half of the images"
        hypothesis = f"scaling {words} by a small c saves DCN-ODE a third of its evaluations of f"
        claims.append(claim_above(hypothesis, saved, 100 * SAVED, of=f"evaluations saved {chosen}", unit="%"))
        hypothesis = f"scaling {words} by that c costs DCN-ODE less than half a point of accuracy"
        claims.append(_cost_of_scaling(hypothesis, savings_of, f"accuracy lost {chosen}"))
    return claims


def _cost_of_scaling(hypothesis: str, savings_of: Sequence[ContrastSaving], of: str) -> Claim:
    """Over the networks in which a c was chosen that changes anything: c = 1 costs nothing, which says nothing."""
    lost = [100 * saving.lost for saving in savings_of if any(c != 1.0 for c in saving.contrasts)]
    if savings_of and not lost:
        return Claim(hypothesis, "undecided", f"{of}: no c but 1 was chosen, so nothing could be lost", threshold=100 * LOSS, below=True)
    return claim_below(hypothesis, lost, 100 * LOSS, of=of, unit="points")


def _accuracy(result: Contrast, mode: str) -> np.ndarray:
    return np.array(next(curve for curve in result.curves if curve.mode == mode).accuracy)


# --- beyond the paper: reaction times ---------------------------------------------------------------------------------------


def _reaction_time(runs: Runs) -> Finding:
    """Images stop in the last block when the head is sure. The threshold is chosen on one half of the images and asked of the other."""
    results: dict[str, dict[int, ReactionTime]] = {
        label: {seed: answer.result for seed, answer in runs.ask_each(REACTION, label).items()}
        for label in ("DCN-ODE", "ODE-Net")
        if label in runs.by_label
    }
    curves, rows, claims = [], [], []
    for place, (label, by_seed) in enumerate(results.items()):
        costs, accuracies = (np.stack([getattr(result, name) for result in by_seed.values()]) for name in ("cost", "accuracy"))
        cost, accuracy = np.roll(costs.mean(0), -1), 100 * np.roll(accuracies.mean(0), -1)
        error = 100 * np.roll(accuracies.std(0, ddof=1), -1) if len(by_seed) > 1 else None
        curves.append(Series(label, cost, accuracy, error, style="both", colour=place))  # T at the end of the line
        savings_of = {seed: result.saving() for seed, result in by_seed.items()}
        thirds = [[100 * getattr(saving, name) for saving in savings_of.values()] for name in ("saved", "saved_last", "lost")]
        right, wrong = ([_mean_time(result, answer) for result in by_seed.values()] for answer in (True, False))
        rows.append([label, 100 * accuracies[:, 0].mean(), costs[:, 0].mean(), *map(over_seeds, [*thirds, right, wrong]), len(by_seed)])
        of = "evaluations saved at a threshold chosen on the other half of the images"
        hypothesis = f"{label} saves a tenth of its evaluations of f if it answers as soon as it is sure"
        claims.append(claim_above(hypothesis, thirds[0], 10.0, of=of, unit="%"))
        hypothesis = f"{label} loses less than half a point of accuracy if it answers as soon as it is sure"
        claims.append(claim_below(hypothesis, thirds[2], 100 * LOSS, of="accuracy lost at that threshold", unit="points"))
        sooner = [second - first for first, second in zip(right, wrong, strict=True)]
        claims.append(
            claim_above(f"right answers of {label} come sooner than wrong ones", sooner, of="difference of mean times, in units of t")
        )
    columns = ["model", Column("accuracy to T", "%", 1), Column("NFE to T", digits=1), Column("saved", "%", 1)]
    columns += [Column("saved in the last block", "%", 1), Column("lost", "points", 2), Column("t, right", digits=2)]
    columns += [Column("t, wrong", digits=2), "seeds"]
    axes = Axis("evaluations of f per image"), Axis("accuracy", "%")
    parts: list[Part] = [
        f"Images stop when the largest probability reaches a threshold; times are those at the threshold {_middle(results)}.",
        Figure("cost", "Accuracy for the evaluations paid, from the lowest threshold to T", *axes, curves),
        Table("saving", "The cheapest threshold at no more than half a point lost on the other half of the images", columns, rows),
    ]
    return Finding(parts, claims)


def _mean_time(result: ReactionTime, right: bool) -> float:
    """When images with right, or wrong, answers stop, at the middle threshold."""
    row = 1 + len(result.thresholds) // 2
    chosen = result.right[row] == right
    return float(result.times[row, chosen].mean()) if chosen.any() else math.nan


def _middle(results: Mapping[str, Mapping[int, ReactionTime]]) -> str:
    first = next((result for by_seed in results.values() for result in by_seed.values()), None)
    return "in the middle" if first is None else first.names[1 + len(first.thresholds) // 2]


# --- Figure 5 -----------------------------------------------------------------------------------------------------------


def _fig5(runs: Runs) -> Finding:
    answers = {label: runs.ask(RECONSTRUCTION, runs.subjects(decoder_label(label))[:1]).result for label in THREE}
    shown = examples_maps({"image": answers["DCN-ODE"].targets, **{label: answers[label].reconstructed for label in reversed(THREE)}})
    errors = np.stack([answer.errors for answer in answers.values()])
    best = 100 * np.bincount(errors.argmin(0), minlength=len(answers)) / errors.shape[1]
    rows: list[list[Cell]] = [[label, answer.error, float(share)] for (label, answer), share in zip(answers.items(), best, strict=True)]
    columns = ["model", Column("mean squared error per pixel", digits=4), Column("smallest of the three for", "% of the images", 0)]
    edges = np.linspace(0, np.quantile(errors, 0.99), 41)
    counts = [np.histogram(each, edges)[0] for each in errors]
    curves = [Series(label, (edges[:-1] + edges[1:]) / 2, count, style="steps") for label, count in zip(answers, counts, strict=True)]
    axes = Axis("mean squared error per pixel"), Axis("images")
    figure = Figure("errors", "Errors of the images", *axes, curves, "One decoder of each kind; the largest hundredth is left out.")
    return Finding([shown, figure, Table("error", "Error over all images looked at", columns, rows)])


def _looked_at(cpu: Mapping[str, object], **smoke: object) -> Mapping[str, Setting]:
    """The settings of questions, with options of the figure's own analysis at `cpu` and at `smoke`."""
    changed = {"cpu": cpu, "smoke": smoke}
    return {
        **ASKED, **{scale: replace(ASKED[scale], look={**ASKED[scale].look, **options}) for scale, options in changed.items()}
    }  # fmt: skip


def _one_seed(settings: Mapping[str, Setting]) -> Mapping[str, Setting]:
    """For figures that show one network of each kind: more seeds would be trained for nothing."""
    return {scale: replace(setting, seeds=1) for scale, setting in settings.items()}


_DECODED = next(study.settings for study in TABLES if study.id == "dcn/table2b")  # the same runs
_MASKED = _looked_at(LOOK)
_REACTION = _looked_at(dict(limit=160, batch_size=40, thresholds=[0.4, 0.6, 0.8, 0.9, 0.95]), thresholds=[0.2, 0.5], limit=10)
_CONTRAST = _looked_at(dict(limit=250, batch_size=250, contrasts=12), contrasts=3, limit=10)


def _rows(*labels: str) -> Callable[[str], list[Row]]:
    """The same models at every scale."""
    return lambda scale: rows_of(*labels)


_BASE = _rows(*THREE)

STUDIES = [
    Study("dcn/fig1", f"{PAPER}, Figure 1", "two filters as N-jets at two scales", "What does an N-jet look like?", OF_FORMULAS, _fig1),
    Study("dcn/fig3a", f"{PAPER}, Figure 3a", "learned σ by depth", "Do receptive fields grow with depth?",
          ASKED, _fig3a, _rows("DCN-ODE", "DCN-full"), printed="upward trend", claims=4),
    Study("dcn/fig3b", f"{PAPER}, Figure 3b", "distribution of σ_ji", "Are the scales of a layer log-normal?",
          SETTINGS, _fig3b, _rows("DCN σ_ji"), printed="positive skew", claims=3),
    Study("dcn/fig3c", f"{PAPER}, Figure 3c", "accuracy against mask size", "Who is robust to missing pixels?", _MASKED, _fig3c, _BASE,
          printed="DCNs marginally more robust", claims=2),
    Study("dcn/fig4a", f"{PAPER}, Figure 4a", "feature maps of intact and masked images", "Are patterns completed?",
          _MASKED, _fig4a, _BASE, printed="D(t) falls", claims=4),
    Study("dcn/fig4b", f"{PAPER}, Figure 4b", "contrast", "Does integration time that follows contrast help?",
          _CONTRAST, _fig4b, _rows("DCN-ODE", "ODE-Net"), printed="60 instead of 102 evaluations at c = 0.06, with less than 0.5 % lost",
          claims=7),
    Study("dcn/reaction_time", f"beyond {PAPER}", "images that stop when the network is sure",
          "How much of the computation can be left out at half a point of accuracy?",
          _REACTION, _reaction_time, _rows("DCN-ODE", "ODE-Net"), claims=6),
    Study("dcn/fig5", f"{PAPER}, Figure 5", "reconstructed images", "What do the decoders of Table 2b make?",
          _one_seed(_DECODED), _fig5, rows2b, shows_images=True),
    Study("dcn/fig6", f"{PAPER}, Figure 6", "feature maps over t of three models, and of an untrained one",
          "What do block 1's features do?", _one_seed(_MASKED), _fig6, _BASE),
    Study("dcn/fig7", f"{PAPER}, Figure 7", "D(t) of three models", "Whose features converge to those of the intact image?",
          _MASKED, _completion, _BASE, printed="D(t) falls", claims=4),
]  # fmt: skip
