"""The figures of the DCN paper, asked of the networks that its tables train."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from continua.analysis import Contrast, find_question, short_name
from continua.report import Axis, Column, Figure, Maps, Part, Series, Table
from continua.studies.dcn import PAPER, PLAIN, THREE, decoder_label, rows2b, rows_of
from continua.studies.dcn import STUDIES as TABLES
from continua.studies.runs import Runs
from continua.studies.settings import DCN_SETTINGS
from continua.studies.study import Claim, Finding, Setting, Study

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
    from continua.filters import fit_pixel_kernel

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
        parts.append(
            Maps(
                f"{name}_fine",
                f"The same N-jet as a function, σ = {sigma:.2f}",
                ["filter"],
                ["N-jet"],
                smooth[None, None].numpy(),
                "weight",
            )
        )
    columns = [Column("σ", "pixels", 2), Column("residual of the fit", digits=3), *(Column(f"α{i}{j}", digits=3) for i, j in _orders())]
    return Finding([*parts, Table("alpha", "Coefficients", columns, rows)])


def _orders() -> list[tuple[int, int]]:
    from continua.filters import jet_orders

    return list(jet_orders(2))


# --- Figure 3 -----------------------------------------------------------------------------------------------------------


def _fig3a(runs: Runs) -> Finding:
    series, claims = [], []
    for place, label in enumerate(("DCN-ODE", "DCN-full")):
        found = [runs.ask(SCALES, [subject]).result for subject in runs.subjects(label)]
        typical = np.stack([one.typical for one in found])
        names = [short_name(layer.name) for layer in found[0].layers]
        spread = typical.std(0, ddof=1) if len(found) > 1 else None
        series.append(Series(label, names, typical.mean(0), spread, style="both", colour=place))
        rising = float(np.mean([one.correlation for one in found]))
        claims.append(Claim(f"σ grows with depth in {label} (rank correlation {rising:+.2f})", rising > 0))
    axis = Axis("layer, from input to output")
    series.sort(key=lambda one: -len(one.x))  # who has all layers first: names stand in the order in which they first appear
    return Finding([Figure("sigma_by_depth", "Learned σ by depth", axis, Axis("σ", "pixels"), series)], claims)


def _fig3b(runs: Runs) -> Finding:
    answer = runs.ask(SCALES, runs.subjects("DCN σ_ji")[:1])
    found = answer.result.distributions
    parts = [part for part in answer.page.parts if isinstance(part, Figure | Table) and part.name in ("distribution", "distributions")]
    claims = [Claim(f"σ_ji of {one.where} are skewed to the right (skewness {one.skewness:+.2f})", one.skewness > 0) for one in found]
    return Finding(parts, claims)


def _fig3c(runs: Runs) -> Finding:
    series, at = [], {}
    for place, label in enumerate(THREE):
        found = [runs.ask(COMPLETION, [subject]).result for subject in runs.subjects(label)]
        values = 100 * np.array([one.accuracies for one in found])
        spread = values.std(0, ddof=1) if len(found) > 1 else None
        series.append(Series(label, found[0].sizes, values.mean(0), spread, style="both", colour=place))
        at[label] = values.mean(0) / values.mean(0)[0]
    kept = {label: float(values[1:].mean()) for label, values in at.items()}
    claims = [Claim(f"DCN-ODE keeps more of its accuracy under a mask than {other}", kept["DCN-ODE"] > kept[other]) for other in THREE[:2]]
    figure = Figure("accuracy", "Accuracy against the size of the mask", Axis("side of the mask", "pixels"), Axis("accuracy", "%"), series)
    table = Table(
        "kept",
        "Share of the accuracy that is kept, mean over masks",
        ["model", Column("kept", "%", 1)],
        [[k, 100 * v] for k, v in kept.items()],
    )
    return Finding([figure, table], claims)


# --- Figures 4, 6, 7 ------------------------------------------------------------------------------------------------------


def _maps(labels: Sequence[str]) -> Any:
    def ask(runs: Runs) -> Finding:
        parts: list[Part] = []
        curves, holes, claims = [], [], []
        for place, label in enumerate(labels):
            answer = runs.ask(COMPLETION, runs.subjects(label)[:1])
            d = answer.result.difference
            parts += [_renamed(part, label, place) for part in answer.page.every(Maps)]
            scaled = [t / max(d.times[-1], 1e-9) for t in d.times]
            look: dict[str, Any] = dict(spread="band", style="both" if len(d.times) < 5 else "line", colour=place)
            curves.append(Series(label, scaled, d.mean, d.std, **look))
            holes.append(Series(label, scaled, d.inside_mean, d.inside_std, **look))
            if label == "DCN-ODE":
                claims.append(Claim(f"D falls within block 1 of DCN-ODE (for {d.falls:.0%} of the images)", d.mean[-1] < d.mean[0]))
        axis = Axis("t / T (residual network: before and after the block)")
        parts.append(Figure("difference", "Difference between features of intact and masked images", axis, Axis("D(t)"), curves))
        unit = Axis("mean difference", "standard deviations of the intact map")
        parts.append(Figure("inside", "The same where the mask is", axis, unit, holes))
        return Finding(parts, claims)

    return ask


def _renamed(maps: Maps, label: str, place: int) -> Maps:
    return replace(maps, name=f"maps_{place}", title=f"{label}: {maps.title}")


LOSS = 0.005  # of accuracy, which the paper allows for a saving
ADAPTIVE = dict(method="dopri5", rtol=1e-3, atol=1e-3, steps=None)  # the cost is of interest where steps are chosen


def _fig4b(runs: Runs) -> Finding:
    parts: list[Part] = []
    gain: dict[str, float] = {}
    kept: dict[str, float] = {}
    savings: dict[str, Contrast] = {}
    curves: dict[str, list[Series]] = {"accuracy": [], "nfe_block_1": [], "nfe_all": []}
    template: dict[str, Figure] = {}
    for place, label in enumerate(("DCN-ODE", "ODE-Net")):
        answer = runs.ask(CONTRAST, runs.subjects(label, solver=ADAPTIVE)[:1])
        for name in curves:
            figure = next(part for part in answer.page.every(Figure) if part.name == name)
            curves[name] += [_of(series, label, place) for series in figure.series]
        found = {curve.mode: np.array(curve.accuracy) for curve in answer.result.curves}
        gain[label] = float((found["scaled"] - found["naive"]).mean())
        kept[label] = float(found["scaled"].mean() / answer.result.plain.accuracy)
        parts.append(
            f"{label}: scaling T of block 1 with c changes the accuracy by {100 * gain[label]:+.1f} points on average over c, "
            f"which keeps {kept[label]:.0%} of that of the images as they are."
        )
        savings[label] = answer.result
        parts += [f"{label}: {part[0].lower()}{part[1:]}" for part in answer.page.parts if isinstance(part, str) and "inputs and T" in part]
        template = {part.name: part for part in answer.page.every(Figure)}
    figures = [Figure(name, template[name].title, template[name].x, template[name].y, series) for name, series in curves.items()]
    cheaper = Claim(
        f"scaling inputs and T of all blocks saves at least a third of DCN-ODE's evaluations for under {LOSS:.1%} of accuracy",
        _saves(savings["DCN-ODE"]),
    )
    claims = [Claim(f"scaling T of block 1 with c makes {label} more robust to contrast", value > 0) for label, value in gain.items()]
    claims.append(Claim("with T scaled, DCN-ODE keeps more of its accuracy than ODE-Net", kept["DCN-ODE"] > kept["ODE-Net"]))
    return Finding([*parts, *figures], [*claims, cheaper])


def _saves(found: Contrast) -> bool:
    """The paper's saving, rounded: 60 instead of 102 evaluations is 41 %."""
    curve = next(curve for curve in found.curves if curve.mode == "inputs")
    fine = [sum(nfe) for nfe, accuracy in zip(curve.nfe, curve.accuracy, strict=True) if accuracy > found.plain.accuracy - LOSS]
    return bool(fine) and min(fine) <= 2 / 3 * sum(found.plain.nfe)


def _of(series: Series, label: str, place: int) -> Series:
    return replace(series, name=f"{label}: {series.name}", colour=place)


# --- Figure 5 -----------------------------------------------------------------------------------------------------------


def _fig5(runs: Runs) -> Finding:
    answers = {label: runs.ask(RECONSTRUCTION, runs.subjects(decoder_label(label))[:1]).result for label in THREE}
    first = answers["DCN-ODE"]
    rows = [first.targets, *(answers[label].reconstructed for label in reversed(THREE))]
    pictures = np.stack(rows).clip(0, 1)
    values = np.moveaxis(pictures, 2, -1) if pictures.shape[2] == 3 else pictures[:, :, 0]
    names = ["image", *reversed(THREE)]
    shown = Maps(
        "examples",
        "Images and their reconstructions",
        names,
        [str(i + 1) for i in range(values.shape[1])],
        values,
        "intensity, 0 to 1",
        one_scale=True,
    )
    table = Table(
        "error",
        "Error over all images looked at",
        ["model", Column("mean squared error per pixel", digits=4)],
        [[k, v.error] for k, v in answers.items()],
    )
    return Finding([shown, table])


def _looked_at(words: str, **smoke: Any) -> Mapping[str, Setting]:
    """The settings of the tables, with what the figure's own analysis leaves out: at `cpu` in words, at `smoke` as options of it."""
    small = replace(PLAIN["smoke"], look={**PLAIN["smoke"].look, **smoke})
    return {**PLAIN, "smoke": small, "cpu": replace(PLAIN["cpu"], reduced=[*PLAIN["cpu"].reduced, words])}


def _one_seed(settings: Mapping[str, Setting]) -> Mapping[str, Setting]:
    """For figures that look at one network of each kind: more seeds would be trained for nothing."""
    return {scale: replace(setting, seeds=1) for scale, setting in settings.items()}


_ONE = _one_seed(PLAIN)
_DECODED = next(study.settings for study in TABLES if study.id == "dcn/table2b")  # the same runs
_MASKED = _looked_at("1,000 test images instead of 10,000")
_CONTRAST = _one_seed(
    _looked_at(
        "1,000 test images instead of 10,000, solved by dopri5 at tolerance 1e-3 although trained with fixed steps", contrasts=3, limit=10
    )
)
_FORMULA: Mapping[str, Setting] = {scale: Setting(seeds=0) for scale in DCN_SETTINGS}
_JI = lambda scale: rows_of("DCN σ_ji")  # noqa: E731
_PAIR = lambda scale: rows_of("DCN-ODE", "ODE-Net")  # noqa: E731
_BASE = lambda scale: rows_of(*THREE)  # noqa: E731

STUDIES = [
    Study("dcn/fig1", f"{PAPER}, Figure 1", "two filters as N-jets at two scales", "What does an N-jet look like?", _FORMULA, _fig1),
    Study("dcn/fig3a", f"{PAPER}, Figure 3a", "learned σ by depth", "Do receptive fields grow with depth?",
          PLAIN, _fig3a, lambda scale: rows_of("DCN-ODE", "DCN-full"), printed="upward trend"),
    Study("dcn/fig3b", f"{PAPER}, Figure 3b", "distribution of σ_ji", "Are the scales of a layer log-normal?",
          _ONE, _fig3b, _JI, printed="positive skew"),
    Study("dcn/fig3c", f"{PAPER}, Figure 3c", "accuracy against mask size", "Who is robust to missing pixels?", _MASKED, _fig3c, _BASE,
          printed="DCNs marginally more robust"),
    Study("dcn/fig4a", f"{PAPER}, Figure 4a", "feature maps of intact and masked images", "Are patterns completed?",
          _ONE, _maps(["DCN-ODE"]), lambda scale: rows_of("DCN-ODE"), printed="D(t) falls"),
    Study("dcn/fig4b", f"{PAPER}, Figure 4b", "contrast", "Does integration time that follows contrast help?",
          _CONTRAST, _fig4b, _PAIR, printed="60 instead of 102 evaluations at c = 0.06, with less than 0.5 % lost"),
    Study("dcn/fig5", f"{PAPER}, Figure 5", "reconstructed images", "What do the decoders of Table 2b make?",
          _one_seed(_DECODED), _fig5, rows2b, shows_images=True),
    Study("dcn/fig6", f"{PAPER}, Figure 6", "feature maps over t of three models", "What do block 1's features do?",
          _ONE, _maps(THREE), _BASE, printed="D(t) falls"),
    Study("dcn/fig7", f"{PAPER}, Figure 7", "D(t) of three models", "Whose features converge to those of the intact image?",
          _ONE, _maps(THREE), _BASE, printed="D(t) falls"),
]  # fmt: skip
