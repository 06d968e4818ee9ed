"""The figures of the DCN paper, asked of the networks that its tables train."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from continua.analysis import Contrast, examples_maps, find_question, savings, short_name
from continua.filters import fit_pixel_kernel, jet_orders
from continua.report import Axis, Column, Figure, Look, Maps, Part, Series, Table
from continua.studies.compare import claim_above, claim_that
from continua.studies.dcn import PAPER, PLAIN, THREE, decoder_label, rows2b, rows_of
from continua.studies.dcn import STUDIES as TABLES
from continua.studies.runs import Runs
from continua.studies.study import ADAPTIVE, OF_FORMULAS, Finding, Row, Setting, Study

CONTRAST, COMPLETION, SCALES, RECONSTRUCTION = map(find_question, ("contrast", "pattern_completion", "scales", "reconstruction"))


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
    series, claims = [], []
    for place, label in enumerate(("DCN-ODE", "DCN-full")):
        networks = [runs.ask(SCALES, [subject]).result for subject in runs.subjects(label)]
        typical = np.stack([scales.typical for scales in networks])
        names = [short_name(layer.name) for layer in networks[0].layers]
        series.append(_over_networks(label, names, typical, place))
        rising = float(np.mean([scales.correlation for scales in networks]))
        hypothesis = f"σ grows with depth in {label} (rank correlation {rising:+.2f})"
        claims.append(claim_above(hypothesis, rising, test="mean rank correlation of σ with depth"))
    axis = Axis("layer, from input to output")
    series.sort(key=lambda curve: -len(curve.x))  # who has all layers first: names stand in the order in which they first appear
    return Finding([Figure("sigma_by_depth", "Learned σ by depth", axis, Axis("σ", "pixels"), series)], claims)


def _over_networks(label: str, x: Sequence[float] | Sequence[str], values: np.ndarray, place: int) -> Series:
    """The mean of the rows, each of one network, with their standard deviation."""
    return Series(label, x, values.mean(0), values.std(0, ddof=1) if len(values) > 1 else None, style="both", colour=place)


def _fig3b(runs: Runs) -> Finding:
    answer = runs.ask(SCALES, runs.subjects("DCN σ_ji")[:1])
    parts = [part for part in answer.page.parts if isinstance(part, Figure | Table) and part.name in ("distribution", "distributions")]
    claims = [
        claim_above(f"σ_ji of {block.where} are skewed to the right (skewness {block.skewness:+.2f})", block.skewness, test="skewness")
        for block in answer.result.distributions
    ]
    return Finding(parts, claims)


def _fig3c(runs: Runs) -> Finding:
    series, at = [], {}
    for place, label in enumerate(THREE):
        networks = [runs.ask(COMPLETION, [subject]).result for subject in runs.subjects(label)]
        values = 100 * np.array([completion.accuracies for completion in networks])
        series.append(_over_networks(label, networks[0].sizes, values, place))
        at[label] = values.mean(0) / values.mean(0)[0]
    kept = {label: float(values[1:].mean()) for label, values in at.items()}
    test = "difference of the shares kept, means over masks and seeds"
    claims = [
        claim_above(f"DCN-ODE keeps more of its accuracy under a mask than {other}", kept["DCN-ODE"] - kept[other], test=test)
        for other in THREE[:2]
    ]
    figure = Figure("accuracy", "Accuracy against the size of the mask", Axis("side of the mask", "pixels"), Axis("accuracy", "%"), series)
    rows = [[label, 100 * share] for label, share in kept.items()]
    table = Table("kept", "Share of the accuracy that is kept, mean over masks", ["model", Column("kept", "%", 1)], rows)
    return Finding([figure, table], claims)


# --- Figures 4, 6, 7 ------------------------------------------------------------------------------------------------------


def _maps(labels: Sequence[str]) -> Callable[[Runs], Finding]:
    def ask(runs: Runs) -> Finding:
        parts: list[Part] = []
        curves, holes, claims = [], [], []
        for place, label in enumerate(labels):
            answer = runs.ask(COMPLETION, runs.subjects(label)[:1])
            d = answer.result.difference
            parts += [replace(maps, name=f"maps_{place}", title=f"{label}: {maps.title}") for maps in answer.page.every(Maps)]
            scaled = [t / max(d.times[-1], 1e-9) for t in d.times]
            look: Look = {"spread": "band", "style": "both" if len(d.times) < 5 else "line", "colour": place}
            curves.append(Series(label, scaled, d.mean, d.std, **look))
            holes.append(Series(label, scaled, d.inside_mean, d.inside_std, **look))
            if label == "DCN-ODE":
                hypothesis = f"D falls within block 1 of DCN-ODE (for {d.falls:.0%} of the images)"
                claims.append(claim_above(hypothesis, d.mean[0] - d.mean[-1], test="mean D at the start minus at the end"))
        axis = Axis("t / T (residual network: before and after the block)")
        parts.append(Figure("difference", "Difference between features of intact and masked images", axis, Axis("D(t)"), curves))
        unit = Axis("mean difference", "standard deviations of the intact map")
        parts.append(Figure("inside", "The same where the mask is", axis, unit, holes))
        return Finding(parts, claims)

    return ask


LOSS = 0.005  # of accuracy, which the paper allows for a saving


def _fig4b(runs: Runs) -> Finding:
    parts: list[Part] = []
    gain: dict[str, float] = {}
    kept: dict[str, float] = {}
    results: dict[str, Contrast] = {}
    curves: dict[str, list[Series]] = {"accuracy": [], "nfe_block_1": [], "nfe_all": []}
    template: dict[str, Figure] = {}
    for place, label in enumerate(("DCN-ODE", "ODE-Net")):
        answer = runs.ask(CONTRAST, runs.subjects(label, solver=ADAPTIVE)[:1])
        template = {part.name: part for part in answer.page.every(Figure)}
        for name, series in curves.items():
            series += [replace(curve, name=f"{label}: {curve.name}", colour=place) for curve in template[name].series]
        by_mode = {curve.mode: np.array(curve.accuracy) for curve in answer.result.curves}
        gain[label] = float((by_mode["scaled"] - by_mode["naive"]).mean())
        kept[label] = float(by_mode["scaled"].mean() / answer.result.plain.accuracy)
        parts.append(
            f"{label}: scaling T of block 1 with c changes the accuracy by {100 * gain[label]:+.1f} points on average over c, "
            f"which keeps {kept[label]:.0%} of that of the images as they are."
        )
        results[label] = answer.result
        parts += [f"{label}: {sentence[0].lower()}{sentence[1:]}" for sentence in savings(answer.result)]
    figures = [replace(template[name], series=series) for name, series in curves.items()]
    cheaper = claim_that(
        f"scaling inputs and T of all blocks saves at least a third of DCN-ODE's evaluations for under {LOSS:.1%} of accuracy",
        _saves(results["DCN-ODE"]),
    )
    test = "accuracy with T scaled minus without, mean over c"
    claims = [
        claim_above(f"scaling T of block 1 with c makes {label} more robust to contrast", value, test=test) for label, value in gain.items()
    ]
    more = kept["DCN-ODE"] - kept["ODE-Net"]
    claims.append(claim_above("with T scaled, DCN-ODE keeps more of its accuracy than ODE-Net", more, test="difference of the shares kept"))
    return Finding([*parts, *figures], [*claims, cheaper])


def _saves(result: Contrast) -> bool:
    """The paper's saving, rounded: 60 instead of 102 evaluations is 41 %."""
    curve = next(curve for curve in result.curves if curve.mode == "inputs")
    fine = [sum(nfe) for nfe, accuracy in zip(curve.nfe, curve.accuracy, strict=True) if accuracy > result.plain.accuracy - LOSS]
    return bool(fine) and min(fine) <= 2 / 3 * sum(result.plain.nfe)


# --- Figure 5 -----------------------------------------------------------------------------------------------------------


def _fig5(runs: Runs) -> Finding:
    answers = {label: runs.ask(RECONSTRUCTION, runs.subjects(decoder_label(label))[:1]).result for label in THREE}
    shown = examples_maps({"image": answers["DCN-ODE"].targets, **{label: answers[label].reconstructed for label in reversed(THREE)}})
    rows = [[label, answer.error] for label, answer in answers.items()]
    table = Table("error", "Error over all images looked at", ["model", Column("mean squared error per pixel", digits=4)], rows)
    return Finding([shown, table])


def _looked_at(words: str, **smoke: object) -> Mapping[str, Setting]:
    """The settings of the tables, with what the figure's own analysis leaves out: at `cpu` in words, at `smoke` as options of it."""
    small = replace(PLAIN["smoke"], look={**PLAIN["smoke"].look, **smoke})
    return {**PLAIN, "smoke": small, "cpu": replace(PLAIN["cpu"], reduced=[*PLAIN["cpu"].reduced, words])}


def _one_seed(settings: Mapping[str, Setting]) -> Mapping[str, Setting]:
    """For figures that look at one network of each kind: more seeds would be trained for nothing."""
    return {scale: replace(setting, seeds=1) for scale, setting in settings.items()}


_ONE = _one_seed(PLAIN)
_DECODED = next(study.settings for study in TABLES if study.id == "dcn/table2b")  # the same runs
_MASKED = _looked_at("1,000 test images instead of 10,000")
_DIMMED = "1,000 test images instead of 10,000, solved by dopri5 at tolerance 1e-3 although trained with fixed steps"
_CONTRAST = _one_seed(_looked_at(_DIMMED, contrasts=3, limit=10))


def _rows(*labels: str) -> Callable[[str], list[Row]]:
    """The same models at every scale."""
    return lambda scale: rows_of(*labels)


_BASE = _rows(*THREE)

STUDIES = [
    Study("dcn/fig1", f"{PAPER}, Figure 1", "two filters as N-jets at two scales", "What does an N-jet look like?", OF_FORMULAS, _fig1),
    Study("dcn/fig3a", f"{PAPER}, Figure 3a", "learned σ by depth", "Do receptive fields grow with depth?",
          PLAIN, _fig3a, _rows("DCN-ODE", "DCN-full"), printed="upward trend"),
    Study("dcn/fig3b", f"{PAPER}, Figure 3b", "distribution of σ_ji", "Are the scales of a layer log-normal?",
          _ONE, _fig3b, _rows("DCN σ_ji"), printed="positive skew"),
    Study("dcn/fig3c", f"{PAPER}, Figure 3c", "accuracy against mask size", "Who is robust to missing pixels?", _MASKED, _fig3c, _BASE,
          printed="DCNs marginally more robust"),
    Study("dcn/fig4a", f"{PAPER}, Figure 4a", "feature maps of intact and masked images", "Are patterns completed?",
          _ONE, _maps(["DCN-ODE"]), _rows("DCN-ODE"), printed="D(t) falls"),
    Study("dcn/fig4b", f"{PAPER}, Figure 4b", "contrast", "Does integration time that follows contrast help?",
          _CONTRAST, _fig4b, _rows("DCN-ODE", "ODE-Net"), printed="60 instead of 102 evaluations at c = 0.06, with less than 0.5 % lost"),
    Study("dcn/fig5", f"{PAPER}, Figure 5", "reconstructed images", "What do the decoders of Table 2b make?",
          _one_seed(_DECODED), _fig5, rows2b, shows_images=True),
    Study("dcn/fig6", f"{PAPER}, Figure 6", "feature maps over t of three models", "What do block 1's features do?",
          _ONE, _maps(THREE), _BASE, printed="D(t) falls"),
    Study("dcn/fig7", f"{PAPER}, Figure 7", "D(t) of three models", "Whose features converge to those of the intact image?",
          _ONE, _maps(THREE), _BASE, printed="D(t) falls"),
]  # fmt: skip
