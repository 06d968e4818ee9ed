"""What trained networks are tuned to, measured as one would measure cells: orientation and spatial frequency, block by block.

Asked of the networks of DCN's Table 2a (52 images per class). Each number of a network is a median over the units of a block in the centre
of its map; claims are about those numbers over seeds. Theory: a Gaussian derivative of order n prefers √n / (2πσ) cycles per pixel, so the
preferred frequency of N-jets falls as 1/σ. Whether that holds for units of a trained network, which are many filters and nonlinearities
deep, is what is asked.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from continua.filters import NJet
from continua.models import Network
from continua.neuro import BlockTuning, Screen, block_sigma, rescaled_block, survey, to_images
from continua.report import Axis, Cell, Claim, Column, Figure, PlusMinus, Series, Table
from continua.studies.claims import claim_above, claim_ahead
from continua.studies.compare import over_seeds
from continua.studies.dcn import NAMES, SETTINGS, SMALL_CPU, THREE
from continua.studies.runs import Runs, Wanted
from continua.studies.study import OWN, Finding, Row, Study, smoke

PER_CLASS = 52
LOWEST, HIGHEST = 1 / 32, 0.47  # cycles per pixel: one cycle in an image, and just below what pixels can show
FACTORS = (0.5, math.sqrt(0.5), math.sqrt(2), 2.0)  # of σ, one block at a time
SHOWN = {
    "orientation selectivity": ("", 2),
    "circular variance": ("", 2),
    "preferred frequency": ("cycles/pixel", 3),
    "bandwidth": ("octaves", 1),
}

Numbers = dict[str, np.ndarray]
Surveys = dict[int, list[Numbers]]  # by seed, the numbers of every unit of each block


def _rows(scale: str) -> list[Row]:
    size = {"per_class": 6 if scale == "smoke" else PER_CLASS}
    return [Row(label, "small_data", dict(model=NAMES[label], **size)) for label in THREE]


def _survey(runs: Runs, wanted: Wanted, net: Network, blocks: Sequence[int] | None = None) -> list[BlockTuning]:
    """The units of a network on full-field gratings, prepared as its images were."""
    look = runs.setting.look
    images = wanted.recipe.augmentation

    def prepare(contrasts: torch.Tensor) -> torch.Tensor:
        luminance = to_images(contrasts, net.in_channels or 1)
        if images.mean is None or images.std is None:
            return luminance
        mean, std = (luminance.new_tensor(values)[:, None, None] for values in (images.mean, images.std))
        return (luminance - mean) / std

    frequencies = np.geomspace(LOWEST, HIGHEST, look.get("frequencies", 8))
    how = dict(orientations=look.get("orientations", 12), phases=look.get("phases", 6))
    return survey(net, Screen(32, 32, degrees_per_pixel=1.0), frequencies=frequencies.tolist(), blocks=blocks, prepare=prepare, **how)


def _surveys(runs: Runs, label: str, nets: Sequence[Network]) -> Surveys:
    """The networks of a row, which are trained or not, in the order of its runs."""
    return {
        run.recipe.seed: [part.numbers() for part in _survey(runs, run, net)] for run, net in zip(runs.by_label[label], nets, strict=True)
    }


def _tuning(runs: Runs) -> Finding:
    labels = [label for label in THREE if label in runs.by_label]
    trained = {label: _surveys(runs, label, [subject.model for subject in runs.subjects(label)]) for label in labels}
    before = {label: _surveys(runs, label, list(runs.untrained(label).values())) for label in labels}
    claims = [
        claim_above(
            f"units of block 3 of {label} prefer lower frequencies than those of block 1",
            [math.log2(_median(parts[0], "preferred frequency") / _median(parts[-1], "preferred frequency")) for parts in surveys.values()],
            of="octaves between the medians",
            unit="octaves",
        )
        for label, surveys in trained.items()
    ] + [
        claim_ahead(
            f"training makes units of {label} more selective for orientation",
            _selectivity(trained[label]),
            _selectivity(before[label]),
            unit="of selectivity, mean of the blocks' medians",
        )
        for label in labels
    ]
    figures = [
        _by_block("orientation selectivity", "", trained, before),
        _by_block("preferred frequency", "cycles/pixel", trained, before, log=True),
    ]
    spread = [_spread(label, trained[label], name) for label in labels for name in ("orientation selectivity", "preferred frequency")]
    parts = [*figures, *spread, _table(trained)]
    if "DCN-ODE" in labels:
        scale, claim = _scale(runs, trained["DCN-ODE"])
        return Finding([*parts, *scale], [*claims, claim])
    return Finding(parts, claims)


def _median(part: Numbers, name: str) -> float:
    values = part[name]
    return float(np.median(values[np.isfinite(values)])) if np.isfinite(values).any() else math.nan


def _over_known(values: Sequence[float]) -> PlusMinus | None:
    """Over the seeds that have the number at all: in a network of which no unit falls to half, there is no bandwidth."""
    return over_seeds([value for value in values if math.isfinite(value)])


def _selectivity(surveys: Surveys) -> dict[int, float]:
    return {seed: float(np.mean([_median(part, "orientation selectivity") for part in parts])) for seed, parts in surveys.items()}


# --- distributions --------------------------------------------------------------------------------------------------------


def _by_block(name: str, unit: str, trained: Mapping[str, Surveys], before: Mapping[str, Surveys], log: bool = False) -> Figure:
    """Medians by block, mean over networks ± standard deviation; dashed: before training."""
    series = []
    for place, label in enumerate(trained):
        for surveys, title, dashed in ((trained[label], label, False), (before[label], f"{label}, before training", True)):
            values = np.array([[_median(part, name) for part in parts] for parts in surveys.values()])
            spread = values.std(0, ddof=1) if len(values) > 1 and not dashed else None
            blocks = [f"block {index + 1}" for index in range(values.shape[1])]
            series.append(Series(title, blocks, values.mean(0), spread, style="both", dashed=dashed, colour=place))
    key = name.replace(" ", "_")
    return Figure(key, f"Median {name} by block", Axis("block"), Axis(name, unit, log=log), series)


def _spread(label: str, surveys: Surveys, name: str) -> Figure:
    """The distribution over the units of all networks of a row, one curve for each block: the share of units below a value."""
    series = []
    for index, parts in enumerate(zip(*surveys.values(), strict=True)):
        values = np.sort(np.concatenate([part[name][np.isfinite(part[name])] for part in parts]))
        series.append(Series(f"block {index + 1}", values, 100 * (np.arange(len(values)) + 0.5) / len(values), colour=index))
    unit = SHOWN[name][0]
    title = f"{label}: {name} of all units"
    key = f"{NAMES[label]}_{name.replace(' ', '_')}"
    return Figure(key, title, Axis(name, unit, log=unit != ""), Axis("units below", "%"), series)


def _table(trained: Mapping[str, Surveys]) -> Table:
    """Medians over units, mean ± standard deviation over seeds; beside them the units that modulate with the phase (F1/F0 > 1)."""
    rows: list[list[Cell]] = []
    for label, surveys in trained.items():
        for index, parts in enumerate(zip(*surveys.values(), strict=True)):
            medians = [_over_known([_median(part, name) for part in parts]) for name in SHOWN]
            simple = over_seeds([100 * float(np.mean(part["F1/F0"] > 1)) for part in parts])
            rows.append([label, f"block {index + 1}", sum(len(part["F1/F0"]) for part in parts), *medians, simple])
    columns = [
        "model",
        "block",
        "units",
        *(Column(name, unit, digits) for name, (unit, digits) in SHOWN.items()),
        Column("F1/F0 above 1", "% of units", 0),
    ]
    caption = (
        "Medians over units, ± standard deviation over seeds. Bandwidths of units that do not fall to half are left out of the median, and "
        "networks that have no other units out of the mean."
    )
    return Table("tuning", "Tuning of units by block", columns, rows, caption)


# --- scale and frequency --------------------------------------------------------------------------------------------------

Curve = tuple[np.ndarray, np.ndarray]  # σ of a block, rising, and the median preferred frequency of its units


def _scale(runs: Runs, trained: Surveys) -> tuple[list[Figure | Table], Claim]:
    """σ against preferred frequency: of the filters by themselves, and of units when σ of their block is changed and nothing else."""
    wanted = runs.by_label["DCN-ODE"]
    nets = [subject.model for subject in runs.subjects("DCN-ODE")]
    curves = {run.recipe.seed: _with_other_scales(runs, run, net, trained[run.recipe.seed]) for run, net in zip(wanted, nets, strict=True)}
    exponents = {seed: [_exponent(curve) for curve in blocks] for seed, blocks in curves.items()}
    claim = claim_above(
        "units of DCN-ODE prefer lower frequencies when σ of their block grows",
        [float(np.mean(values)) for values in exponents.values()],
        of="exponent of 1/σ, mean over blocks",
    )
    series, rows = [], []
    for block, name in enumerate(f"block {index + 1}" for index in range(len(nets[0].blocks))):
        series += [Series(f"{name}, seed {seed}", *blocks[block], style="both", colour=block) for seed, blocks in curves.items()]
        sigma = over_seeds([float(blocks[block][0][len(FACTORS) // 2]) for blocks in curves.values()])
        rows.append([name, sigma, over_seeds([values[block] for values in exponents.values()])])
    title = "Preferred frequency of units when σ of their block alone is changed"
    x, y = Axis("σ", "pixels of the map", log=True), Axis("preferred frequency", "cycles/pixel of the image", log=True)
    figure = Figure("sigma_and_frequency", title, x, y, series, "A line for each network; its middle is the network as trained.")
    columns = ["block", Column("σ as trained", "pixels", 2), Column("exponent of 1/σ", digits=2)]
    caption = "A linear unit has 1 (preferred frequency ∝ 1/σ); 0 means that σ does not matter."
    return [_filters(runs), figure, Table("exponent", "How preferred frequency falls with σ", columns, rows, caption)], claim


def _with_other_scales(runs: Runs, run: Wanted, net: Network, trained: Sequence[Numbers]) -> list[Curve]:
    """For each block, the median preferred frequency of its units as trained and with σ of that block times each factor."""
    curves = []
    for block, numbers in enumerate(trained):
        medians = {1.0: _median(numbers, "preferred frequency")}
        for factor in FACTORS:
            (part,) = _survey(runs, run, rescaled_block(net, block, factor), [block])
            medians[factor] = _median(part.numbers(), "preferred frequency")
        factors = sorted(medians)
        curves.append((np.array(factors) * block_sigma(net, block), np.array([medians[factor] for factor in factors])))
    return curves


def _exponent(curve: Curve) -> float:
    """p of a preferred frequency ∝ 1/σ^p, by least squares of the logarithms."""
    sigma, frequency = np.log2(curve[0]), np.log2(curve[1])
    return -float(np.polyfit(sigma, frequency, 1)[0])


def _filters(runs: Runs) -> Figure:
    """Each layer's σ and the median peak of its filters' Fourier transforms, in closed form, between the theory's two lines."""
    points = []
    for subject in runs.subjects("DCN-ODE"):
        for jet in (part for part in subject.model.blocks.modules() if isinstance(part, NJet)):
            peak = jet.tuning().frequency
            points.append((float(jet.sigma.detach().mean()), float(peak[peak > 0].median()) if bool((peak > 0).any()) else math.nan))
    sigma, peak = np.array(sorted(points)).T
    line = np.geomspace(sigma.min(), sigma.max(), 50)
    series = [
        Series("median of a layer's filters", sigma, peak, style="points", colour=0),
        Series("first derivative, 1/(2πσ)", line, 1 / (2 * math.pi * line), dashed=True, colour=1),
        Series("second derivative, √2/(2πσ)", line, math.sqrt(2) / (2 * math.pi * line), dashed=True, colour=2),
    ]
    x, y = Axis("σ", "pixels of the map", log=True), Axis("preferred frequency", "cycles/pixel of the map", log=True)
    return Figure("filters", "Preferred frequency of the filters themselves, in closed form", x, y, series, "Layers of all seeds.")


TINY = dict(orientations=3, frequencies=3, phases=3)
STUDIES = [
    Study(
        "neuro/tuning",
        OWN,
        "what units are tuned to",
        "How selective are units of trained networks for orientation and spatial frequency, and does σ set the frequency?",
        {**SETTINGS, "smoke": smoke(look=TINY, **{key: value for key, value in SETTINGS["smoke"].change.items() if key == "model_options"}),
         "cpu": replace(SMALL_CPU, seeds=4, look={})},
        _tuning,
        _rows,
        claims=7,
    )
]  # fmt: skip
