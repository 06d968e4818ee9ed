"""A network that watches a film: what the matrix exponential says of linear ones, and the forward pass where nothing drives it."""

import gc
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from continua import ConfigError, Network, create_model
from continua.blocks import ODEBlock
from continua.errors import ContinuaWarning
from continua.models import model_entry
from continua.neuro import (
    DrivenNetwork,
    Movie,
    Screen,
    contrast_steps,
    drifting_grating,
    film,
    film_tuning,
    frame_times,
    grating,
    still,
    streamed,
    to_images,
)

TIGHT = dict(rtol=1e-9, atol=1e-11)


class Linear(nn.Module):
    """dh/dt = A h over channels; counts how often, and when, it was asked."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = matrix

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        return torch.einsum("ij,bjyx->biyx", self.matrix, h)


def linear_network(*matrices: Tensor, t1: float = 1.0, stem: nn.Module | None = None) -> Network:
    net = Network()
    net.stem = stem or nn.Identity()
    net.blocks = nn.ModuleList(ODEBlock(Linear(matrix), t1=t1) for matrix in matrices)
    net.transitions = nn.ModuleList(nn.Identity() for _ in matrices[1:])
    net.head = nn.Identity()
    return net


def plain(stimuli: Tensor) -> Tensor:
    return stimuli


def through(matrix: Tensor, drive: Tensor, start: Tensor, time: float) -> Tensor:
    """x(time) of dx/dt = matrix x + drive, by the matrix exponential of the system with a constant."""
    size = len(start)
    whole = torch.zeros(size + 1, size + 1, dtype=torch.float64)
    whole[:size, :size], whole[:size, size] = matrix, drive
    return (torch.linalg.matrix_exp(whole * time) @ torch.cat([start, start.new_ones(1)]))[:size]


def pixels(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).view(1, -1, 1, 1)


def test_a_driven_linear_field_is_the_matrix_exponential_across_jumps(dtype: torch.dtype) -> None:
    matrix = torch.tensor([[-0.3, 2.0], [-2.0, -0.1]], dtype=torch.float64)
    gain, tau, jump = 1.5, 20.0, 100 / 3
    frames = torch.stack([pixels(1.0, 0.0), pixels(-2.0, 3.0)])
    movie = Movie(frames, (0.0, jump), 90.0, jumps=(jump,)).to(dtype)
    driven = DrivenNetwork(
        linear_network(matrix.to(dtype)),
        gain=gain,
        tau=tau,
        solver=TIGHT if dtype == torch.float64 else dict(rtol=1e-5, atol=1e-6),
        prepare=plain,
    )
    times = [10.0, jump, 50.0, 90.0]
    states = [states[0].flatten().double() for _, states in driven.walk(movie, times)]
    system = (matrix - gain * torch.eye(2, dtype=torch.float64)) / tau
    first = frames[0].flatten()
    at_jump = through(system, gain * first / tau, first, jump)
    after = [through(system, gain * frames[1].flatten() / tau, at_jump, time - jump) for time in times[2:]]
    expected = [through(system, gain * first / tau, first, 10.0), at_jump, *after]
    close: dict = dict(rtol=1e-6, atol=1e-8) if dtype == torch.float64 else dict(rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.stack(states), torch.stack(expected), **close)


def test_two_linear_blocks_are_one_coupled_system() -> None:
    one, two = torch.tensor([[-0.5]], dtype=torch.float64), torch.tensor([[0.2]], dtype=torch.float64)
    driven = DrivenNetwork(linear_network(one, two), gain=0.8, tau=10.0, solver=TIGHT, prepare=plain)
    movie = still(pixels(3.0), 60.0)
    ((_, states),) = driven.walk(movie, [60.0])
    at_wake = through((one - 0.8) / 10, torch.tensor([0.8 * 3 / 10], dtype=torch.float64), torch.tensor([3.0], dtype=torch.float64), 10.0)
    both = torch.tensor([[-0.5 - 0.8, 0.0], [0.8, 0.2 - 0.8]], dtype=torch.float64) / 10
    drive = torch.tensor([0.8 * 3 / 10, 0.0], dtype=torch.float64)
    expected = through(both, drive, torch.cat([at_wake, at_wake]), 50.0)
    torch.testing.assert_close(torch.cat([state.flatten() for state in states]), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["dcn_ode", "ode_only_net"])
def test_with_a_still_film_and_no_drive_it_is_the_forward_pass(name: str) -> None:
    torch.manual_seed(0)
    tight = dict(method="dopri5", rtol=1e-8, atol=1e-8)
    small: dict = dict(channels=(4, 4), norm_groups=2) if name != "ode_only_net" else dict(model_entry(name).tiny)
    net = create_model(name, **{**small, "solver": tight}).eval().double()
    channels = net.in_channels or 1
    stimulus = grating(Screen(12, 12, 0.1, dtype=torch.float64), frequency=torch.tensor([1.0, 2.0]))
    driven = DrivenNetwork(net, gain=0.0, tau=7.0, solver=tight)
    wakes = driven.wakes()
    movie = still(stimulus, wakes[-1] + 50)
    with torch.no_grad():
        expected = [net.states(to_images(stimulus, channels), block)[-1] for block in range(len(net.blocks))]
    ends = {round(time, 9): states for time, states in driven.walk(movie, wakes[1:])}
    for block, wanted in enumerate(expected):
        state = driven._own(ends[round(wakes[block + 1], 9)], block)
        torch.testing.assert_close(state, wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max()))


def test_no_frame_is_stepped_over() -> None:
    """One bright frame of 1 ms in 400 ms of grey, and wide tolerances: the response is there."""
    frames = torch.zeros(400, 1, 1, 1, 1, dtype=torch.float64)
    frames[250] = 100.0
    movie = film(frames[:, 0], 1.0)
    driven = DrivenNetwork(
        linear_network(torch.zeros(1, 1, dtype=torch.float64)), gain=1.0, tau=10.0, solver=dict(rtol=1e-2, atol=1e-2), prepare=plain
    )
    values = {time: float(states[0]) for time, states in driven.walk(movie, [249.0, 251.0, 261.0])}
    peak = 100 * (1 - np.exp(-0.1))
    assert [values[249.0], values[251.0], values[261.0]] == pytest.approx([0.0, peak, peak * np.exp(-1)], rel=0.01, abs=1e-9)


def test_bins_hold_mean_responses_and_nothing_before_a_block_wakes() -> None:
    """A leaky integrator of a step of contrast at 50 ms: its mean over a bin has a closed form."""
    movie = contrast_steps(pixels(1.0), [0.0, 1.0], [50.0, 100.0])
    zero = torch.zeros(1, 1, dtype=torch.float64)
    driven = DrivenNetwork(linear_network(zero, zero), gain=1.0, tau=10.0, solver=TIGHT, prepare=plain)
    edges = np.arange(0.0, 151.0, 5.0)
    result = driven.respond(movie, edges)
    assert result.responses.shape == (30, 1, 1)
    after = edges[edges >= 50] - 50
    expected = 1 + 10 * np.diff(np.exp(-after / 10)) / 5
    np.testing.assert_allclose(result.responses[10:, 0, 0].numpy(), expected, atol=1e-4)
    assert result.course(onset=50.0).latency()[0] == pytest.approx(10 * np.log(2), abs=0.5)
    second = driven.respond(movie, edges, block=1)
    assert torch.isnan(second.responses[:2]).all()  # block 1 wakes at 10 ms
    assert torch.isfinite(second.responses[2:]).all()
    assert second.course(onset=50.0).latency()[0] > 10 * np.log(2) + 5


def test_states_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the film, a solve is asked for no more than a chunk of states."""
    import continua.neuro.driven as module

    asked: list[int] = []
    whole: Callable = module.solve_with

    def watching(*args, save_at, **options):
        asked.append(len(save_at or []))
        return whole(*args, save_at=save_at, **options)

    monkeypatch.setattr(module, "solve_with", watching)
    driven = DrivenNetwork(linear_network(torch.zeros(1, 1, dtype=torch.float64)), prepare=plain)
    driven.respond(still(pixels(1.0), 300.0), np.arange(0.0, 301.0, 1.0))
    assert sum(asked) >= 600
    assert max(asked) <= 16


def live_bytes() -> int:
    """Bytes of all tensors that are alive."""
    gc.collect()
    plain = [part for part in gc.get_objects() if type(part) in (Tensor, nn.Parameter)]  # not the stand-ins that other tests leave
    storages = [part.untyped_storage() for part in plain if part.layout == torch.strided and part.device.type == "cpu"]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def test_memory_does_not_grow_with_the_film() -> None:
    """The most bytes alive at any moment are the same for a film ten times as long; its frames alone would be ten times as many."""
    screen = Screen(48, 48, 0.1, dtype=torch.float64)

    def most(duration: float) -> int:
        movie = streamed(frame_times(duration, 1.0), lambda ms: grating(screen, phase=0.36 * ms))
        driven = DrivenNetwork(linear_network(torch.zeros(1, 1, dtype=torch.float64)), tau=10.0, prepare=plain)
        before = live_bytes()
        times = np.arange(0.0, duration, 1.0).tolist()
        return max(live_bytes() - before for place, _ in enumerate(driven.walk(movie, times)) if place % 20 == 19)

    short, long = most(40.0), most(400.0)
    assert short > 5 * 48 * 48 * 8, "states and frames were seen"
    assert long <= 1.2 * short
    assert long < 0.2 * 400 * 48 * 48 * 8


def test_a_streamed_film_is_the_film() -> None:
    """The same frames, made late: the same u(t), jumps included, and the same responses."""
    screen, times = Screen(4, 4, 0.1, dtype=torch.float64), [0.0, 10.0, 20.0, 30.0]

    def frame(ms: float) -> Tensor:
        return grating(screen, phase=5 * ms, contrast=1.0 if ms < 20 else -0.5)

    whole = Movie(torch.stack([frame(ms) for ms in times]), tuple(times), 40.0, jumps=(20.0,))
    late = streamed(times, frame, end=40.0, jumps=[20.0])
    for moment in (-1.0, 0.0, 3.3, 10.0, 15.0, 19.999, 20.0, 27.0, 30.0, 39.0):
        torch.testing.assert_close(late.at(moment), whole.at(moment))
    driven = DrivenNetwork(linear_network(torch.full((1, 1), -0.2, dtype=torch.float64)), prepare=plain, solver=TIGHT)
    bins = np.arange(0.0, 41.0, 4.0)
    torch.testing.assert_close(driven.respond(late, bins).responses, driven.respond(whole, bins).responses)
    with pytest.raises(ConfigError, match="no frame begins"):
        streamed(times, frame, jumps=[15.0])
    with pytest.raises(ConfigError, match="ascend"):
        streamed([0.0, 0.0], frame)


def test_temporal_tuning_of_a_driven_network() -> None:
    """A leaky integrator of gain g and time constant τ/g: F1 falls as 1/√(1 + (2π f τ/g)²)."""
    driven = DrivenNetwork(linear_network(torch.zeros(1, 1)), gain=2.0, tau=100.0, prepare=plain, solver=dict(rtol=1e-5, atol=1e-6))
    speeds = np.array([1.0, 4.0])
    curve = film_tuning(driven.units(), Screen(5, 5, 0.1), "temporal_frequency", speeds.tolist(), skip=2, cycles=1, frames=24)
    np.testing.assert_allclose(curve.f1[:, 0], 1 / np.sqrt(1 + (2 * np.pi * speeds * 0.05) ** 2), rtol=0.01)


def test_a_network_of_the_zoo_watches_a_drifting_grating() -> None:
    net = create_model("dcn_ode", channels=(4, 4), norm_groups=2, in_channels=1).eval()
    movie = drifting_grating(Screen(12, 12, 0.1), frame_times(60.0, 20.0), orientation=torch.tensor([0.0, 90.0]))
    result = DrivenNetwork(net, tau=10.0, solver=dict(rtol=1e-2, atol=1e-2)).respond(movie, np.arange(0.0, 61.0, 10.0), block=-1)
    assert result.responses.shape[:2] == (6, 2)
    assert torch.isfinite(result.responses[-1]).all()


def test_what_cannot_be_driven_is_refused() -> None:
    with pytest.raises(ConfigError, match="without a time"):
        DrivenNetwork(create_model("resnet_blocks", channels=(4, 8)))
    driven = DrivenNetwork(linear_network(torch.zeros(1, 1)), prepare=plain)
    with pytest.raises(ConfigError, match="within the film"):
        list(driven.walk(still(torch.zeros(1, 1, 1, 1), 10.0), [11.0]))
    with pytest.raises(ConfigError, match="no block 3"):
        driven.respond(still(torch.zeros(1, 1, 1, 1), 10.0), [0.0, 1.0], block=3)
    with pytest.raises(ConfigError, match="tau above 0"):
        DrivenNetwork(linear_network(torch.zeros(1, 1)), tau=0.0)


def test_bins_rise_and_are_in_milliseconds() -> None:
    driven, movie = DrivenNetwork(linear_network(torch.zeros(1, 1)), prepare=plain), still(torch.zeros(1, 1, 1, 1), 30.0)
    for bins in ([20.0, 10.0], [10.0, 0.0, 20.0], [0.0, 0.0], [0.0, np.nan], [5.0]):
        with pytest.raises(ConfigError, match="at least two, rising"):
            driven.respond(movie, bins)
    with pytest.warns(ContinuaWarning, match="milliseconds"):
        driven.respond(movie, [0.0, 0.03, 0.06])


def test_only_a_film_is_watched_and_only_by_steps_that_land_on_frames() -> None:
    driven = DrivenNetwork(linear_network(torch.zeros(1, 1)), prepare=plain)
    for show in (lambda x: driven.respond(x, [0.0, 1.0]), lambda x: list(driven.walk(x, [0.0]))):
        with pytest.raises(ConfigError, match="Tensor is no film"):
            show(torch.zeros(5, 1, 1, 1))
    with pytest.raises(ConfigError, match="land on its frames"):
        DrivenNetwork(linear_network(torch.zeros(1, 1)), solver=dict(method="rk4", steps=4))
