"""Contrast: accuracy and cost when images are c times as bright, and when integration time follows c (DCN §3.3, Fig. 4b).

Why time follows contrast: a field that begins by normalising its input has f(c h) = f(h), so if h(t) solves dh/dt = f(h), then c h(t / c)
does too. A block whose input is c times as large reaches c times the same state after c times as long, and what follows normalises again.
With an absolute tolerance small states need fewer steps: that is the saving of Fig. 4b, bottom. The paper names the inputs of all blocks
as what is scaled; by the symmetry T would have to follow them. Both readings are modes: `inputs_only` is the paper's words, `inputs` scales
T as well. Time as an input of f and the ε of normalisation make the symmetry approximate.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from continua.analysis.measure import Measured, SolverOptions, black, kept, measured
from continua.analysis.question import Keep, Plotted, Question, Subject, ask_anew, no_progress, register_question
from continua.blocks import ODEBlock
from continua.errors import ConfigError, unknown_name
from continua.models import Network
from continua.options import option
from continua.report import Axis, Column, Figure, Look, Page, Part, Series, Table
from continua.runs import Batches
from continua.showing import Shown

LOSS = 0.005  # of accuracy, that a saving may cost: the paper's
MODES = {
    "naive": "images × c",
    "scaled": "images × c, T of block 1 × c",
    "inputs": "inputs and T of all blocks × c",
    "inputs_only": "inputs of all blocks × c",
}


@dataclass(frozen=True, repr=False)
class Curve(Shown):
    """One mode: accuracy (a fraction), evaluations of f per block, and images whose solve failed, for each contrast.

    `halves`: the accuracy of the images at even and at odd places alone.
    """

    mode: str
    accuracy: list[float]
    nfe: list[list[float]]
    failed: list[int]
    halves: list[list[float]]


@dataclass(frozen=True, repr=False)
class Contrast(Plotted):
    """The answer of `contrast`; `plain` is the network on the images as they are."""

    contrasts: list[float]
    images: int
    plain: Measured
    curves: list[Curve]

    def saving(self, mode: str) -> "ContrastSaving | None":
        """What the cheapest harmless c saves, where c is chosen on one half of the images and judged on the other; None without `mode`."""
        curve = next((curve for curve in self.curves if curve.mode == mode), None)
        if curve is None:
            return None
        contrasts = [1.0, *self.contrasts]  # as it is comes first: where nothing else is harmless, nothing is changed
        cost = np.array([sum(self.plain.nfe), *(sum(nfe) for nfe in curve.nfe)])
        halves = np.array([self.plain.halves, *curve.halves])
        chosen = [int(np.where(half >= half[0] - LOSS, cost, np.inf).argmin()) for half in halves.T]
        saved = [1 - cost[place] / cost[0] for place in chosen]
        lost = [other[0] - other[place] for other, place in zip(halves.T[::-1], chosen, strict=True)]
        return ContrastSaving([contrasts[place] for place in chosen], float(np.mean(saved)), float(np.mean(lost)))


@dataclass(frozen=True, repr=False)
class ContrastSaving(Shown):
    """The cheapest c at no more than half a point lost, chosen on one half of the images and judged on the other, twice.

    `saved`: share of the evaluations of all blocks; `lost`: accuracy that it cost.
    """

    contrasts: list[float]
    saved: float
    lost: float


def log_spaced(count: int = 30, low: float = 1e-3, high: float = 10**0.7) -> list[float]:
    """The paper's contrasts: 30 values from 0.001 to 5."""
    if count < 2 or not 0 < low < high:
        raise ConfigError(f"contrasts: {count} values from {low} to {high}; expected at least 2, and 0 < low < high")
    return np.logspace(np.log10(low), np.log10(high), count).tolist()


def contrast(
    model: Network,
    batches: Batches,
    *,
    contrasts: Sequence[float] | None = None,
    modes: Sequence[str] | None = None,
    zero: "Tensor | float" = 0.0,
    per_sample: bool = True,
    keep: Keep = ask_anew,
    advance: Callable[[int], None] = no_progress,
) -> Contrast:
    """Accuracy and evaluations of f against contrast c, for each of `MODES` that the network has.

    Args:
        model: the network.
        batches: pairs (images, labels); gone through once for each contrast.
        contrasts: values of c; None: 30 from 0.06 to 1.
        modes: which of `MODES`; None: all that the network has.
        zero: what a black pixel is to the network (0 unless images are normalised); contrast is around it.
        per_sample: where T is scaled, give blocks an end time for each image, as is needed when contrasts differ within a batch; else one
            for the batch.
        keep: stores pieces of the answer, so that an interrupted analysis can be continued.
        advance: called with the number of images after each batch.

    Returns:
        A curve of accuracy and of evaluations for each mode.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> from continua.analysis import contrast
        >>> net = ct.create_model("dcn_ode", channels=[4], norm_groups=2, in_channels=1).eval()
        >>> batches = [(torch.rand(2, 1, 16, 16), torch.zeros(2, dtype=torch.long))]
        >>> found = contrast(net, batches, contrasts=[0.5, 1.0])
    """
    values = list(contrasts) if contrasts is not None else log_spaced()
    modes = modes_of(model) if modes is None else list(modes)
    _check(model, modes)
    plain = kept(keep, "plain", lambda: measured(model, batches))
    advance(1)
    curves = []
    for mode in modes:
        points: list[Measured] = []
        for c in values:
            points.append(kept(keep, f"{mode} {c!r}", lambda c=c, mode=mode: _measured_at(model, batches, mode, c, zero, per_sample)))
            advance(1)
        numbers = ([getattr(point, name) for point in points] for name in ("accuracy", "nfe", "failed", "halves"))
        curves.append(Curve(mode, *numbers))
    return Contrast(values, plain.images, plain, curves)


def modes_of(model: Network) -> list[str]:
    """A network without time has no integration time to scale."""
    return list(MODES) if isinstance(model.blocks[0], ODEBlock) else ["naive", "inputs"]


def _check(model: Network, modes: Sequence[str]) -> None:
    wrong = [mode for mode in modes if mode not in MODES]
    if wrong:
        raise unknown_name("mode", wrong[0], MODES)
    if "scaled" in modes and not isinstance(model.blocks[0], ODEBlock):
        raise ConfigError("mode 'scaled' scales the integration time of block 1, and block 1 of this network has none")


def _measured_at(model: Network, batches: Batches, mode: str, c: float, zero: "Tensor | float", per_sample: bool) -> Measured:
    dimmed = partial(_dimmed, c=c, zero=zero)
    if mode == "naive":
        return measured(model, batches, dimmed)

    timed = {index: block for index, block in enumerate(model.blocks) if isinstance(block, ODEBlock)}

    def ends(blocks: Iterable[int], images: Tensor) -> Mapping[int, "float | Tensor"]:
        """T_j = c T."""
        shared = {index: timed[index].t0 + c * (timed[index].t1 - timed[index].t0) for index in blocks}
        if not per_sample:
            return shared
        return {index: torch.full((len(images),), end, dtype=torch.float64, device=images.device) for index, end in shared.items()}

    if mode == "scaled":
        return measured(model, batches, dimmed, lambda images: model(images, t1=ends([0], images)))
    followed = timed if mode == "inputs" else ()
    return measured(model, batches, forward=lambda images: model(images, t1=ends(followed, images) or None, input_scale=c))


def _dimmed(images: Tensor, c: float, zero: "Tensor | float") -> Tensor:
    zero = zero.to(images) if isinstance(zero, Tensor) else zero
    return zero + c * (images - zero)


@dataclass(frozen=True)
class Options(SolverOptions):
    """Which images, by which solver, which contrasts; fixed steps cost the same at any c."""

    contrasts: int = option(30, "how many values of c, evenly spaced in the logarithm")
    low: float = option(1e-3, "the least c")
    high: float = option(round(10**0.7, 4), "the largest c")
    modes: tuple[str, ...] | None = option(None, "some of naive, scaled, inputs, inputs_only (default: all that the network has)")
    per_sample: bool = option(True, "where T is scaled: an end time for each image instead of one for the batch")


def ask(subject: Subject, options: Options) -> Contrast:
    model, images = subject.model, subject.images(options)
    if changes := options.solver(model):
        model = model.with_solver(**changes)
    values = log_spaced(options.contrasts, options.low, options.high)
    modes = options.modes or modes_of(model)
    _check(model, modes)
    with subject.progress("contrast", 1 + len(modes) * len(values)) as advance:
        return contrast(
            model,
            images,
            contrasts=values,
            modes=modes,
            zero=black(subject.run.preprocess),
            per_sample=options.per_sample,
            keep=subject.keep,
            advance=advance,
        )


def present(result: Contrast) -> Page:
    axis = Axis("contrast c", log=True)
    curves = {curve.mode: curve for curve in result.curves}
    # Line styles tell the modes apart, so that colours can tell runs apart where several are compared.
    looks: dict[str, Look] = {"naive": {}, "scaled": {"dashed": True}, "inputs": {"style": "both"}, "inputs_only": {"dash": 2}}
    accuracy = [Series(MODES[mode], result.contrasts, 100 * np.array(curve.accuracy), **looks[mode]) for mode, curve in curves.items()]
    parts: list[Part] = [
        f"{result.images:,} images; accuracy {result.plain.accuracy:.2%} as they are.",
        *savings(result),
        Figure("accuracy", "Accuracy against contrast", axis, Axis("accuracy", "%", limits=(0, 100)), accuracy),
    ]
    evaluations = Axis("evaluations of f per image")
    first_block = [
        Series(MODES[mode], result.contrasts, [nfe[0] for nfe in curves[mode].nfe], **looks[mode])
        for mode in curves
        if "inputs" not in mode
    ]
    if any(result.plain.nfe):
        parts.append(Figure("nfe_block_1", "Cost of block 1 against contrast", axis, evaluations, first_block))
        total = [
            Series(MODES[mode], result.contrasts, [sum(nfe) for nfe in curve.nfe], **looks[mode])
            for mode, curve in curves.items()
            if "inputs" in mode
        ]
        if total:
            parts.append(Figure("nfe_all", "Cost of all blocks when their inputs are scaled", axis, evaluations, total))
    rows = [
        (MODES[curve.mode], c, 100 * curve.accuracy[i], curve.nfe[i][0], sum(curve.nfe[i]), curve.failed[i])
        for curve in result.curves
        for i, c in enumerate(result.contrasts)
    ]
    columns = ["mode", "c", Column("accuracy", "%", 2), Column("NFE, block 1", digits=1), Column("NFE, all blocks", digits=1), "failed"]
    return Page("Contrast", [*parts, Table("contrast", "All values", columns, rows)])


def savings(result: Contrast) -> list[str]:
    """A sentence on the cheapest c that costs less than half a per cent of accuracy when inputs and T of all blocks are scaled.

    Args:
        result: what `contrast` found.

    Returns:
        Sentences; none where nothing was scaled.

    Examples:
        >>> from continua.analysis import savings
        >>> savings(found)  # doctest: +SKIP
    """
    curve = next((curve for curve in result.curves if curve.mode == "inputs" and any(result.plain.nfe)), None)
    if curve is None:
        return []
    fine = [i for i, accuracy in enumerate(curve.accuracy) if accuracy > result.plain.accuracy - LOSS and not curve.failed[i]]
    if not fine:
        return ["No c leaves the accuracy within 0.5 % when inputs and T of all blocks are scaled."]
    best = min(fine, key=lambda i: sum(curve.nfe[i]))
    return [
        f"Scaling inputs and T of all blocks by c = {result.contrasts[best]:.3g} takes {sum(curve.nfe[best]):.1f} evaluations of f "
        f"instead of {sum(result.plain.nfe):.1f}, at an accuracy of {curve.accuracy[best]:.2%} on the images on which this c was chosen."
    ]


register_question(Question("contrast", __doc__ or "", Options, ask, present, version=4))
