"""Driven networks: a network of ODE blocks that watches a film, all blocks as one coupled system over real time.

    τ dh₀/ds = f₀(t₀, h₀) + gain · (stem(u(s)) − h₀)
    τ dh_b/ds = f_b(t_b, h_b) + gain · (transition(h_{b−1}(s)) − h_b)                      s in ms

A block wakes when the one before it has gone through its depth, t1 − t0, once: block b at s_b = start + τ Σ (t1 − t0) of those before it,
from transition(h_{b−1}(s_b)). Its own time t_b runs from t0 to t1 in the same way and stays at t1 after that. So, with the drive off
(gain 0), every block passes at its end through the state that the network's forward pass gives it.
"""

import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from continua.blocks import Field, ODEBlock
from continua.errors import ConfigError, ContinuaWarning
from continua.models import Network
from continua.neuro.cells import FilmResponses, Place, read_state
from continua.neuro.movie import Film, Movie, StreamedMovie
from continua.neuro.screen import to_images
from continua.neuro.selectivity import TimeCourse
from continua.ode import SolverConfig, solve_with

Rate = Callable[[Tensor, Tensor], Tensor]
States = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class FilmResponse:
    """Responses in time bins: `edges` (bins + 1,) in ms, `responses` (bins, batch, units); NaN in bins before the block was awake."""

    edges: np.ndarray
    responses: Tensor

    @property
    def times(self) -> np.ndarray:
        """The middle of each bin, ms."""
        return (self.edges[1:] + self.edges[:-1]) / 2

    def course(self, sample: int = 0, onset: float = 0.0) -> TimeCourse:
        """The responses to one of the films, with latencies counted from `onset`; bins before the block was awake are left out."""
        rates = self.responses[:, sample].double().numpy()
        awake = np.isfinite(rates).all(1)
        return TimeCourse(self.times[awake], rates[awake], onset)


class DrivenNetwork:
    """A network whose blocks all have a time, to be shown films.

    Args:
        net: The network; its blocks are `ODEBlock`s.
        gain: Strength of the drive, per unit of depth; 0 is off. The film pulls the first block towards the stem's answer to it, and each
            block the next, so that what is left of a difference falls to 1/e within 1/gain units of depth, were there no f.
        tau: Milliseconds per unit of depth.
        solver: Adaptive steps, by default dopri5 with tolerances of 1e-4: they land on every frame, and on jumps exactly.
        prepare: From the film's contrasts to what the network reads; None: luminances around 0.5 in as many channels as it has. A network
            trained on normalised images needs its own.
    """

    def __init__(
        self,
        net: Network,
        *,
        gain: float = 1.0,
        tau: float = 20.0,
        solver: "SolverConfig | Mapping[str, object] | None" = None,
        prepare: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        blocks = [block for block in net.blocks if isinstance(block, ODEBlock)]
        if len(blocks) < len(net.blocks) or not blocks:
            raise ConfigError(f"{net.title} has blocks without a time, which a film cannot drive; expected a network of ODE blocks")
        if any(isinstance(block.field, Field) and block.field.stepwise for block in blocks):
            raise ConfigError(f"{net.title} has fields that change from step to step, which are no function of time")
        if tau <= 0 or gain < 0:
            raise ConfigError(f"tau={tau} ms and gain={gain}; expected tau above 0 and gain at least 0")
        self.net, self.blocks, self.gain, self.tau = net, blocks, gain, tau
        self.solver = SolverConfig.of(dict(rtol=1e-4, atol=1e-4) if solver is None else solver)
        if self.solver.steps is not None:
            raise ConfigError(
                f"steps={self.solver.steps} are equal, and a film needs steps that land on its frames; leave steps out, and choose a "
                "method with an error estimate: solver=dict(method='dopri5', rtol=1e-3, atol=1e-3)"
            )
        self.prepare = prepare or partial(to_images, channels=net.in_channels or 1)

    def wakes(self, start: float = 0.0) -> list[float]:
        """When each block wakes, and when the last has gone through its depth, ms."""
        lengths = [self.tau * (block.t1 - block.t0) for block in self.blocks]
        return [start + sum(lengths[:place]) for place in range(len(lengths) + 1)]

    @torch.no_grad()
    def walk(self, movie: Film, times: Sequence[float], chunk: int = 16, blocks: int | None = None) -> Iterator[tuple[float, States]]:
        """The states of all blocks that are awake, at rising times of the film. No more than `chunk` of them are in memory at once.

        `blocks`: only so many of the first ones; no block feels those after it.
        """
        _check_film(movie)
        asked = [float(time) for time in times]
        if any(later <= earlier for earlier, later in pairwise(asked)) or (asked and not movie.start <= asked[0] <= asked[-1] <= movie.end):
            raise ConfigError(f"times must rise within the film, {movie.start} to {movie.end} ms; got {asked[:3]} … {asked[-1:]}")
        count = len(self.blocks) if blocks is None else blocks
        wakes, now, done = self.wakes(movie.start), movie.start, 0
        states: States = ()
        rates: list[Rate] = []
        while done < len(asked):
            awake = len(states)
            if awake < count and now >= wakes[awake]:
                source = (
                    self.net.stem(self.prepare(movie.at(now)))
                    if not states
                    else self.net.transitions[awake - 1](self._own(states, awake - 1))
                )
                state, rate = self._wake(awake, source)
                states, rates = (*states, state), [*rates, rate]
                continue
            until = wakes[awake] if awake < count else float("inf")
            part = [time for time in asked[done : done + chunk] if time < until]
            end = part[-1] if part else until
            saved, states = self._advance(movie, states, rates, now, end, part)
            yield from zip(part, saved, strict=True)
            now, done = end, done + len(part)

    def respond(
        self,
        movie: Film,
        bins: "Sequence[float] | np.ndarray",
        *,
        block: int = 0,
        place: Place = "centre",
        channels: Sequence[int] | None = None,
    ) -> FilmResponse:
        """The mean response of units of a block, by default the first, in time bins, given by their edges in ms (mean by Simpson's rule).

        Memory does not grow with the film: states are read as they come, and only responses are kept.
        """
        _check_film(movie)
        edges = _edges(bins)
        moments = np.sort(np.concatenate([edges, (edges[1:] + edges[:-1]) / 2]))
        read = torch.stack(list(self._read(movie, moments.tolist(), block, place, channels)))
        return FilmResponse(edges, (read[:-2:2] + 4 * read[1:-1:2] + read[2::2]) / 6)

    def units(self, block: int = 0, *, place: Place = "centre", channels: Sequence[int] | None = None) -> FilmResponses:
        """Units of a block as a function from films to responses at the times of their frames, for `film_tuning`."""

        def answer_film(movie: Film) -> Tensor:
            return torch.stack(list(self._read(movie, movie.times, block, place, channels)))

        return answer_film

    def _read(self, movie: Film, times: Sequence[float], block: int, place: Place, channels: Sequence[int] | None) -> Iterator[Tensor]:
        """Responses at each time; NaN before the block is awake."""
        if not -len(self.blocks) <= block < len(self.blocks):
            raise ConfigError(f"there is no block {block}; {self.net.title} has blocks 0 … {len(self.blocks) - 1}")
        index, early, shape = block % len(self.blocks), 0, None
        for _, states in self.walk(movie, times):
            if len(states) <= index:
                early += 1
                continue
            answer = read_state(self._own(states, index), place, channels).cpu()
            if shape is None:
                shape = answer
                yield from [torch.full_like(answer, torch.nan)] * early
            yield answer
        if shape is None:
            raise ConfigError(
                f"block {block} wakes {self.wakes(movie.start)[index]:g} ms into the film, after the last bin; show a longer film"
            )

    def _wake(self, index: int, source: Tensor) -> tuple[Tensor, Rate]:
        """The first state of a block, with its extra channels, and its rate of change as a function of its own time."""
        block = self.blocks[index]
        state = torch.cat([source, source.new_zeros(len(source), block.augment, *source.shape[2:])], dim=1) if block.augment else source
        field = block.field
        return state, field.prepare(state, block.t0, block.t1).rate if isinstance(field, Field) else field

    def _own(self, states: States, index: int) -> Tensor:
        """The state of a block without its extra channels."""
        state, extra = states[index], self.blocks[index].augment
        return state[:, : state.shape[1] - extra] if extra else state

    def _advance(
        self, movie: Film, states: States, rates: list[Rate], now: float, end: float, part: list[float]
    ) -> tuple[list[States], States]:
        """The states at the times of `part`, and at the end."""
        if end <= now:
            return [states] * len(part), states
        inside = movie.times[bisect_right(movie.times, now) : bisect_right(movie.times, end)]
        jumps = movie.jumps[bisect_right(movie.jumps, now) : bisect_right(movie.jumps, end)]
        control = self.solver.control.replace(step_at=inside, jump_at=jumps)
        wakes = self.wakes(movie.start)

        def coupled(s: Tensor, h: States) -> States:
            changes = []
            for index, (block, rate) in enumerate(zip(self.blocks, rates, strict=False)):
                t = (block.t0 + (s - wakes[index]) / self.tau).clamp(block.t0, block.t1)
                change = rate(t, h[index])
                if self.gain:
                    # A time just before `now` by rounding is still on this side of a jump.
                    source = self.net.stem(self.prepare(movie.at(max(float(s), now)))) if not index else None
                    wanted = self.net.transitions[index - 1](self._own(h, index - 1)) if source is None else source
                    pull = self.gain * (wanted - self._own(h, index))
                    change = change + torch.cat([pull, torch.zeros_like(h[index][:, pull.shape[1] :])], dim=1)
                changes.append(change / self.tau)
            return tuple(changes)

        solution = solve_with(self.solver.replace(control=control), coupled, states, now, end, save_at=part or None)
        saved = [tuple(state[place] for state in solution.ys or ()) for place in range(len(part))]
        return saved, tuple(solution.y1)


def _check_film(movie: object) -> None:
    if not isinstance(movie, Movie | StreamedMovie):
        raise ConfigError(
            f"a {type(movie).__name__} is no film; make one with still(images, 100.0), "
            "or film(frames, 10.0) of frames (time, channels, height, width)"
        )


def _edges(bins: "Sequence[float] | np.ndarray") -> np.ndarray:
    """The edges of bins, if they rise."""
    edges = np.asarray(bins, float)
    if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all():
        raise ConfigError(f"bins are given by their edges in ms, at least two, rising; got {edges.tolist()[:5]}")
    if edges[-1] - edges[0] < 1:
        message = f"all bins together last {edges[-1] - edges[0]:g} ms; times are in milliseconds, so that a second is 1000.0"
        warnings.warn(message, ContinuaWarning, stacklevel=3)
    return edges
