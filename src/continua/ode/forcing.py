"""Driven fields: an input u(t) that is known at certain times, such as the frames of a movie, for f(t, y) to ask for.

Between the times u is held ("previous"), joined by lines ("linear"), or by cubic polynomials whose slopes at the times are those of the
parabola through three neighbours ("cubic", Hermite; it overshoots a little). Before the first time and after the last it is constant. Each
question touches at most four frames, however many there are.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.float64 import widest
from continua.ode.rate import broadcast_time

Interpolation = Literal["linear", "cubic", "previous"]


class Forcing(nn.Module):
    """u(t) from its values at some times.

    values: (time, ...); what follows the time is the shape of u, which may begin with the batch.
    times: (time,), rising.
    interpolation: "linear", "cubic" or "previous".

    Values get gradients: as an `nn.Parameter` of a module that owns this one, else by `solve(..., params=[u.values])`. Pass `u.jumps` as
    `jump_at` of the step control (and `u.knots`, where a line or a cubic bends, as `step_at` where frames are short against the steps).
    """

    values: Tensor

    def __init__(self, values: Tensor, times: "Sequence[float] | Tensor", interpolation: Interpolation = "linear") -> None:
        super().__init__()
        moments = torch.as_tensor(times, dtype=torch.float64).detach()
        if interpolation not in get_args(Interpolation):
            raise ConfigError(f"Forcing(interpolation={interpolation!r}); expected 'linear', 'cubic' or 'previous'")
        if moments.ndim != 1 or len(moments) < 2 or values.ndim == 0 or len(values) != len(moments):
            shapes = f"values have shape {tuple(values.shape)}, times {tuple(moments.shape)}"
            raise ConfigError(f"Forcing: {shapes}; expected (time, ...) and (time,), with at least two times")
        if not bool(torch.isfinite(moments).all()) or not bool((moments.diff() > 0).all()):
            raise ConfigError("Forcing: times must be finite and rising")
        if not values.is_floating_point():
            raise ConfigError(f"Forcing: values have dtype {values.dtype}; expected floating point (values.float())")
        if isinstance(values, nn.Parameter):
            self.values = values
        else:
            self.register_buffer("values", values)
        self._times = moments  # no buffer: module.float() must not round it
        self.interpolation = interpolation

    @property
    def times(self) -> Tensor:
        return self._times

    @property
    def jumps(self) -> tuple[float, ...]:
        """Times at which u jumps: those of all values but the first, where they are held; none where they are joined."""
        return tuple(self._times[1:].tolist()) if self.interpolation == "previous" else ()

    @property
    def knots(self) -> tuple[float, ...]:
        """The times."""
        return tuple(self._times.tolist())

    def forward(self, t: Tensor, sample: Tensor | None = None) -> Tensor:
        """u(t): shaped like one value for a 0-d t, (batch, ...) with one row per sample for a (batch,) t.

        `sample`, (batch,) whole numbers, chooses a column of values that begin with a batch of their own, (time, sample, ...): under
        per-sample control f sees some samples only, so that this number belongs in their state.
        """
        if self._times.device != t.device:
            self._times = self._times.to(t.device, widest(t.device))
        moment = t.detach().to(self._times.dtype)  # which frames; the place between them keeps its graph
        index = (torch.searchsorted(self._times, moment.contiguous(), right=True) - 1).clamp(0, len(self._times) - 1)
        if self.interpolation == "previous":
            return self._value(index, sample)
        index = index.clamp(max=len(self._times) - 2)
        start = self._times[index]
        length = self._times[index + 1] - start
        share = ((t.to(start.dtype) - start) / length).clamp(0.0, 1.0)
        before, after = self._value(index, sample), self._value(index + 1, sample)
        place = broadcast_time(share, before).to(before.dtype)
        if self.interpolation == "linear":
            return torch.lerp(before, after, place.expand_as(before))
        left, right = (self._slope(index + side, sample) for side in (0, 1))
        length = broadcast_time(length, before).to(before.dtype)
        bend = (left * length - (after - before)) * (1 - place) - (right * length - (after - before)) * place
        return torch.lerp(before, after, place.expand_as(before)) + place * (1 - place) * bend

    def _value(self, index: Tensor, sample: Tensor | None) -> Tensor:
        if sample is None:
            return self.values[index]
        if index.ndim == 0:
            return self.values[index][sample]
        return self.values[index, sample]

    def _slope(self, index: Tensor, sample: Tensor | None) -> Tensor:
        """Of the parabola through the neighbours; of the line to the only neighbour at the ends."""
        last = len(self._times) - 1
        low, high = (index - 1).clamp(min=0), (index + 1).clamp(max=last)
        here, before, after = (self._value(i, sample) for i in (index, low, high))
        t, t_low, t_high = (broadcast_time(self._times[i], here).to(here.dtype) for i in (index, low, high))
        back, ahead = t - t_low, t_high - t
        slope_back = (here - before) / torch.where(back == 0, 1.0, back)
        slope_ahead = (after - here) / torch.where(ahead == 0, 1.0, ahead)
        parabola = (slope_back * ahead + slope_ahead * back) / (back + ahead)
        return torch.where(back == 0, slope_ahead, torch.where(ahead == 0, slope_back, parabola))
