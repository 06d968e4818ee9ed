"""Tuning curves: responses to gratings of one changing parameter, and the numbers that physiologists read off them.

A grating is shown at several phases (or drifts). The mean response over a cycle is F0, the amplitude of its first harmonic F1. A linear
unit has F0 = 0 and F1 = contrast · |F̂|, the Fourier transform of its filter at the grating's frequency.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from continua.errors import ConfigError, unknown_name
from continua.neuro.cells import FilmResponses, Responses, respond
from continua.neuro.gratings import drifting_grating, grating
from continua.neuro.screen import Number, Screen
from continua.report import Axis, Figure, Series

PARAMETERS = {
    "orientation": "°",
    "direction": "°",
    "frequency": "cycles/°",
    "temporal_frequency": "cycles/s",
    "size": "°",
    "contrast": "",
}
"""What a tuning curve may be over, and its unit."""
Measure = Literal["larger", "f0", "f1"]


@dataclass(frozen=True, eq=False)
class TuningCurve:
    """Responses of units to gratings of one changing parameter.

    Attributes:
        values: the parameter, (points,)
        f0: mean response over a cycle minus that to grey, (points, units)
        f1: amplitude of the first harmonic over a cycle, (points, units)
        baseline: response to grey, (units,)
        fixed: the other parameters of the gratings
    """

    parameter: str
    values: np.ndarray
    f0: np.ndarray
    f1: np.ndarray
    baseline: np.ndarray
    fixed: dict[str, float] = field(default_factory=dict)

    @property
    def units(self) -> int:
        """How many units were measured."""
        return self.f0.shape[1]

    @property
    def response(self) -> np.ndarray:
        """For each unit F1 where its largest F1 is larger than its largest |F0|, as for simple cells, else F0: (points, units)."""
        return np.where(self.f1.max(0) > np.abs(self.f0).max(0), self.f1, self.f0)

    @property
    def preferred(self) -> np.ndarray:
        """The value with the largest response, (units,): one of those shown. A fit reads between them."""
        return self.values[self.response.argmax(0)]

    @property
    def modulation(self) -> np.ndarray:
        """F1/F0 at the preferred value: above 1 simple, below 1 complex (Skottun et al. 1991, Vision Res. 31). Infinite where F0 ≤ 0."""
        best, each = self.response.argmax(0), np.arange(self.units)
        mean, harmonic = self.f0[best, each], self.f1[best, each]
        small = 1e-9 * np.abs(harmonic)  # rounding of a linear unit, whose mean is 0
        return np.where(mean > small, harmonic / np.where(mean > small, mean, 1.0), np.inf)

    def figure(self, chosen: Sequence[int] | None = None) -> Figure:
        """The curves of some units (by default the first eight) as a figure of `continua.report`."""
        places = list(range(min(8, self.units))) if chosen is None else list(chosen)
        series = [Series(f"unit {place}", self.values, self.response[:, place], style="both") for place in places]
        log = self.parameter in ("frequency", "temporal_frequency", "contrast") and bool((self.values > 0).all())
        words = self.parameter.replace("_", " ")
        return Figure(
            f"tuning-{self.parameter}", f"Tuning to {words}", Axis(words, PARAMETERS[self.parameter], log=log), Axis("response"), series
        )


def tuning(
    responses: Responses,
    screen: Screen,
    parameter: str,
    values: "Sequence[float] | Tensor",
    *,
    phases: int = 8,
    batch_size: int = 256,
    **fixed: float,
) -> TuningCurve:
    """Show gratings of each value at equally spaced phases.

    Args:
        responses: Stimuli -> responses (batch, units).
        screen: Where the gratings are drawn.
        parameter: "orientation", "frequency", "size" or "contrast".
        values: Those of the parameter, in its unit.
        phases: How many phases of a cycle; at least 3 tell F1 from F0.
        batch_size: How many stimuli are shown at once.
        fixed: Other parameters of `grating`: frequency=2.0, orientation=45.0, size=3.0, …

    Returns:
        The curve: responses of all units to each value.

    Raises:
        ConfigError: fewer than three phases.

    Examples:
        >>> import torch
        >>> from continua.neuro import tuning
        >>> tuning(cells, screen, "orientation", torch.arange(0.0, 180.0, 15.0))  # doctest: +SKIP
    """
    shown = _shown(parameter, values, ("orientation", "frequency", "size", "contrast"), fixed)
    if phases < 3:
        raise ConfigError(f"{phases} phases do not tell F1 from F0; expected at least 3")
    phase = torch.arange(phases, dtype=torch.float64) * 360 / phases
    options: dict[str, Number] = {parameter: shown.repeat_interleave(phases), "phase": phase.repeat(len(shown))}
    stimuli = grating(screen, **{**fixed, **options})
    answers = respond(responses, stimuli, batch_size).unflatten(0, (len(shown), phases)).numpy()
    baseline = respond(responses, screen.grey())[0].numpy()
    f0, f1 = harmonics(answers, phase.numpy() / 360, axis=1)
    return TuningCurve(parameter, shown.numpy(), f0 - baseline, f1, baseline, dict(fixed))


def film_tuning(
    responses: FilmResponses,
    screen: Screen,
    parameter: str,
    values: "Sequence[float] | Tensor",
    *,
    cycles: int = 2,
    skip: int = 1,
    frames: int = 16,
    temporal_frequency: float = 4.0,
    **fixed: float,
) -> TuningCurve:
    """Show gratings that drift; also for "direction" and "temporal_frequency". Each value is a film of its own length.

    Args:
        responses: A film -> responses at the times of its frames, (time, batch, units).
        screen: Where the gratings are drawn.
        parameter: One of those of `tuning`, "direction" or "temporal_frequency".
        values: Those of the parameter, in its unit; frequencies in time are positive.
        cycles: Whole cycles that count.
        skip: Cycles before them, in which the units settle.
        frames: Per cycle.
        temporal_frequency: Cycles per second, where it is not the parameter.
        fixed: Other parameters of `grating`.

    Returns:
        The curve.

    Raises:
        ConfigError: the gratings do not drift.

    Examples:
        >>> import torch
        >>> from continua.neuro import film_tuning
        >>> film_tuning(watch, screen, "direction", torch.arange(0.0, 360.0, 30.0))  # doctest: +SKIP
    """
    shown = _shown(parameter, values, tuple(PARAMETERS), fixed)
    options = dict(fixed)
    means, harmonic = [], []
    for value in shown.tolist():
        speed = value if parameter == "temporal_frequency" else temporal_frequency
        if speed <= 0:
            raise ConfigError(f"a grating that drifts at {speed} cycles per second has no cycle; expected a positive number")
        if parameter == "direction":
            options["orientation"] = value + 90
        elif parameter != "temporal_frequency":
            options[parameter] = value
        times = [1000 * k / (frames * speed) for k in range((skip + cycles) * frames)]
        movie = drifting_grating(screen, times, temporal_frequency=speed, **options)
        with torch.no_grad():
            answers = responses(movie)[skip * frames :, 0].detach().cpu().double().numpy()
        mean, amplitude = harmonics(answers, np.arange(cycles * frames) / frames, axis=0)
        means.append(mean)
        harmonic.append(amplitude)
    with torch.no_grad():
        still = [1000 * k / (frames * temporal_frequency) for k in range((skip + cycles) * frames)]
        grey = drifting_grating(screen, still, temporal_frequency=0.0, frequency=0.0, contrast=0.0)
        baseline = responses(grey)[skip * frames :, 0].detach().cpu().double().numpy().mean(0)
    return TuningCurve(parameter, shown.numpy(), np.stack(means) - baseline, np.stack(harmonic), baseline, dict(fixed))


def harmonics(answers: np.ndarray, cycle: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """F0 and F1 of responses at moments of a cycle that are equally spaced over whole cycles."""
    wave = np.exp(-2j * math.pi * cycle)
    return answers.mean(axis), 2 * np.abs(np.tensordot(wave, answers, axes=(0, axis))) / len(cycle)


def _shown(parameter: str, values: "Sequence[float] | Tensor", known: tuple[str, ...], fixed: dict[str, float]) -> Tensor:
    if parameter not in known:
        see = "film_tuning shows drifting gratings" if parameter in PARAMETERS else ""
        raise unknown_name("parameter of a tuning curve", parameter, known, see=see)
    if parameter in fixed:
        raise ConfigError(f"{parameter} is what changes, and is also given as {fixed[parameter]}; leave it out")
    shown = torch.as_tensor(values, dtype=torch.float64).cpu()
    if shown.ndim != 1 or not len(shown):
        raise ConfigError(f"the values of {parameter} have shape {tuple(shown.shape)}; expected a list of numbers")
    return shown
