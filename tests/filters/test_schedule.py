"""Filters that change with depth: the formulas of DCN table 3, per-sample times, radii known on the host."""

import numpy as np
import pytest
import torch
from njet_reference import njet, radius_of

from continua import ConfigError
from continua.filters import FilterConv2d, ScheduledNJet

SCALES = ["linear", "quadratic", "diffusion"]


def scheduled(scale="linear", alpha="constant", values=(0.9, 0.2, -0.1), **options):
    made = ScheduledNJet(2, 3, scale=scale, alpha=alpha, **options).double()
    with torch.no_grad():
        for name, value in zip(made.scale_names, values, strict=False):
            getattr(made, name).fill_(value)
    return made


def sigma_of(scale, t, a=0.9, b=0.2, c=-0.1):
    u = 0.5 * np.clip(t, -0.5, 2.5)
    if scale == "diffusion":
        return np.sqrt((2.0**b) ** 2 + 2 * 2.0**a * max(t, 0.0))
    return 2 ** (a * u + b) if scale == "linear" else 2 ** (a * u**2 + b * u + c)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("t", [-1.0, -0.2, 0.0, 0.7, 2.0, 4.0])
def test_kernels_follow_the_schedule_and_its_clipping(scale, t):
    made = scheduled(scale)
    sigma = sigma_of(scale, t)
    expected = njet(made.alpha.detach().numpy(), sigma, 2, radius_of(sigma))
    kernel = made.kernel(made.state(), torch.tensor(t))
    assert kernel.size == expected.shape[-2:]
    np.testing.assert_allclose(kernel.weight().detach(), expected, rtol=1e-6, atol=1e-9)


def test_alpha_moves_linearly_with_clipped_time():
    made = scheduled(alpha="linear")
    t, u = 1.6, 0.8
    sigma = sigma_of("linear", t)
    alpha = (u * made.alpha_slope + made.alpha_offset).detach().numpy()
    np.testing.assert_allclose(
        made.kernel(made.state(), t).weight().detach(), njet(alpha, sigma, 2, radius_of(sigma)), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("radius", [None, "max"])
@pytest.mark.parametrize(("scale", "alpha"), [("linear", "constant"), ("quadratic", "linear")])
def test_per_sample_time_equals_one_sample_at_a_time(scale, alpha, radius):
    made = FilterConv2d(scheduled(scale, alpha, radius=radius), time_channel=True, bias=True).double()
    x, t = torch.randn(4, 1, 13, 12, dtype=torch.float64), torch.tensor([0.0, 0.4, 1.9, 0.4], dtype=torch.float64)
    together = made(x, t)
    for k in range(4):
        torch.testing.assert_close(together[k : k + 1], made(x[k : k + 1], t[k]), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("per_sample", [False, True])
def test_gradients_of_the_schedule_pass_gradcheck(scale, per_sample):
    made = FilterConv2d(scheduled(scale, "linear"), time_channel=True, stride=2).double()
    x = torch.randn(2, 1, 8, 7, dtype=torch.float64, requires_grad=True)
    t = torch.tensor([0.3, 1.1], dtype=torch.float64) if per_sample else torch.tensor(0.3, dtype=torch.float64)
    names, values = zip(*made.named_parameters(), strict=True)

    def apply(x, *values):
        return torch.func.functional_call(made, dict(zip(names, values, strict=True)), (x, t))

    torch.autograd.gradcheck(apply, (x, *values), fast_mode=True)


def test_the_solver_sees_the_state_as_the_tensors_of_a_time_dependent_filter():
    made = FilterConv2d(scheduled("quadratic"), time_channel=True).double()
    x = torch.randn(2, 1, 9, 9, dtype=torch.float64)
    ready = made.realise(x.shape, x.dtype)
    assert {id(tensor) for tensor in ready.tensors} == {id(p) for p in made.parameters()}
    torch.testing.assert_close(ready.apply(x, 1.1, *ready.tensors), made(x, 1.1))
    assert ready.route in ("dense", "separable")


def test_the_longest_radius_of_the_interval_serves_all_times():
    made = scheduled(radius="max", interval=(0.0, 2.0))
    size = 2 * radius_of(sigma_of("linear", 2.0)) + 1
    assert {made.kernel(made.state(), t).size for t in (0.0, 1.0, 2.0)} == {(size, size)}


def test_a_frozen_schedule_exports_and_still_depends_on_time():
    made = FilterConv2d(scheduled(radius="max"), time_channel=True).float()
    x = torch.randn(2, 1, 12, 12)
    program = torch.export.export(made.freeze(), (x, torch.tensor(0.1))).module()
    for t in (0.0, 1.5):
        torch.testing.assert_close(program(x, torch.tensor(t)), made(x, torch.tensor(t)), rtol=1e-4, atol=1e-5)


def test_meta_parameters_count_and_start_as_published():
    counts = {("linear", "constant"): 2, ("quadratic", "constant"): 3, ("linear", "linear"): 2 + 6 * 33 * 32}
    for (scale, alpha), extra in counts.items():
        made = ScheduledNJet(33, 32, scale=scale, alpha=alpha)
        assert sum(p.numel() for p in made.parameters()) == 6 * 33 * 32 + extra
    assert abs(float(made.alpha_slope.std()) - 0.1) < 0.005
    assert abs(float(made.alpha_offset.std()) - 0.05) < 0.003
    drawn = torch.stack([torch.cat([m.a, m.b, m.c]) for m in (ScheduledNJet(1, 1, scale="quadratic") for _ in range(600))])
    torch.testing.assert_close(drawn.std(0), torch.tensor([2 / 3, 2 / 3, 0.1]), rtol=0.12, atol=0)


def test_wrong_options_are_refused():
    with pytest.raises(ConfigError, match="scale"):
        ScheduledNJet(1, 1, scale="cubic")
    with pytest.raises(ConfigError, match="time"):
        FilterConv2d(ScheduledNJet(1, 1))(torch.randn(1, 1, 8, 8))
