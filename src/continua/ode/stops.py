"""Times that adaptive steps land on: `step_at`, and `jump_at`, where f jumps.

A step that lands on a jump ends at the last moment before it that f can tell apart, and the next one starts at the first moment after it:
f is never asked at the jump itself, so it does not matter to which side its value there belongs. Asked times between the two moments
mean the first of them; the state does not jump.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from continua.float64 import widest
from continua.ode.control import StepControl
from continua.ode.solution import Time


@dataclass
class Stop:
    """Where a landing step ends, where the next one starts, and whether f jumps in between."""

    end: float
    resume: float
    jump: bool


class Stops:
    """The stops of one interval, in the order of the solve."""

    def __init__(self, control: StepControl, t0: float, t1: float, dtype: torch.dtype) -> None:
        low, high, forward = min(t0, t1), max(t0, t1), t1 > t0
        jumps = {time for time in control.jump_at if low < time < high or time == t1}
        times = {time for time in control.step_at if low < time < high} | jumps
        self.list: list[Stop] = []
        for time in sorted(times, reverse=not forward):
            before, after = around(time, dtype) if time in jumps else (time, time)
            before, after = (before, after) if forward else (after, before)
            self.list.append(Stop(before, t1 if (after >= t1) == forward else after, time in jumps))
        if not self.list or self.list[-1].resume != t1:
            self.list.append(Stop(t1, t1, False))


def around(time: float, dtype: torch.dtype) -> tuple[float, float]:
    """The numbers next to a time, in the arithmetic in which f is given its time."""
    there = torch.tensor(time, dtype=torch.float64).to(dtype)
    below, above = (float(torch.nextafter(there, torch.full_like(there, side))) for side in (-torch.inf, torch.inf))
    return below, above


class SampleStops:
    """The same for samples that each have their own time, in either direction."""

    def __init__(self, control: StepControl, dtype: torch.dtype, device: torch.device) -> None:
        jumps, times = set(control.jump_at), sorted({*control.step_at, *control.jump_at})
        sides = [around(time, dtype) if time in jumps else (time, time) for time in times]
        self.below, self.above = (torch.tensor(side, dtype=widest(device), device=device) for side in zip(*sides, strict=True))
        self.is_jump = torch.tensor([time in jumps for time in times], device=device)

    def next(self, t: Tensor, t1: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of every sample: where a landing step ends, where the next one starts, and whether f jumps in between."""
        forward, count, t = t1 > t, len(self.below), t.contiguous()
        ahead = torch.searchsorted(self.below, t, right=True)  # the first stop that ends after t
        behind = torch.searchsorted(self.above, t) - 1  # the last stop whose far side lies before t
        index = torch.where(forward, ahead, behind)
        there = (index >= 0) & (index < count)
        index = index.clamp(0, count - 1)
        end = torch.where(forward, self.below[index], self.above[index])
        resume = torch.where(forward, self.above[index], self.below[index])
        inside = there & torch.where(forward, end < t1, end > t1)
        jump = inside & self.is_jump[index]
        over = torch.where(forward, resume >= t1, resume <= t1)
        return torch.where(inside, end, t1), torch.where(inside & ~over, resume, t1), jump


def snapped(times: "list[float] | Tensor", control: StepControl, t0: Time, t1: Time, dtype: torch.dtype) -> "list[float] | Tensor":
    """Asked times, with those that lie on a jump put where the step before it ends."""
    for jump in control.jump_at:
        below, above = around(jump, dtype)
        if isinstance(times, Tensor):
            forward = torch.as_tensor(t1, device=times.device) > torch.as_tensor(t0, device=times.device)
            low, high = times.new_tensor(below), times.new_tensor(above)
            near = torch.where(forward, low, high).expand_as(times)
            times = torch.where((times > below) & (times < above) & (times != t0), near, times)
        else:
            near = below if bool(t1 > t0) else above
            times = [near if below < time < above and time != t0 else time for time in times]
    return times
