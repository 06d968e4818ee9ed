"""Networks outside Python: the same logits from torch.export and onnxruntime, for any batch; adaptive solvers say how to switch."""

import sys

import pytest
import torch

from continua import ConfigError, create_model
from continua.blocks import ODEBlock
from continua.models import export_onnx, export_program, frozen, options_in_common, pinned
from continua.models.export import tabulated

pytestmark = pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
TINY = dict(channels=(4,), num_classes=3, solver=dict(method="midpoint", steps=1))
IMAGES = torch.rand(3, 3, 10, 10, generator=torch.Generator().manual_seed(0))


def logits_of(net) -> torch.Tensor:
    with torch.no_grad():
        return net(IMAGES)


@pytest.mark.parametrize("name", ["resnet_srf_full", "dcn_ode", "dcn_sigma_t"])
def test_an_exported_program_gives_the_same_logits_for_any_batch(name):
    net = create_model(name, **options_in_common(name, TINY))
    program = export_program(net, (3, 10, 10)).module()
    expected = logits_of(net)
    torch.testing.assert_close(program(IMAGES), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(program(IMAGES[:1]), expected[:1], rtol=1e-4, atol=1e-5)


def onnx_logits(path) -> torch.Tensor:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(["logits"], {"images": IMAGES.numpy()})[0])


def test_an_onnx_file_gives_the_same_logits(tmp_path):
    net = create_model("dcn_ode", **TINY)
    path = export_onnx(net, tmp_path / "new" / "net.onnx", (3, 10, 10))
    torch.testing.assert_close(onnx_logits(path), logits_of(net), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["odenet", "dcn_full", "dcn_sigma_ji", "dcn_sigma_alpha_t", "resnet_blocks"])
def test_every_kind_of_filter_becomes_onnx(name, tmp_path):
    net = create_model(name, **options_in_common(name, dict(channels=(4, 8), solver=dict(method="rk4", steps=1))))
    path = export_onnx(net, tmp_path / "net.onnx", (3, 10, 10))
    torch.testing.assert_close(onnx_logits(path), logits_of(net), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("solver", "said"),
    [
        ({}, "dopri5 chooses its steps from the data"),
        (dict(control="sample"), "with_solver"),
        (dict(method="gauss2", steps=2), "iterates until it has converged"),
        (dict(method="midpoint", steps=2, gradient="reversible"), "reversible"),
    ],
)
def test_what_cannot_be_one_graph_is_refused_with_the_way_out(solver, said):
    net = create_model("odenet", channels=(4,), solver=solver)
    with pytest.raises(ConfigError, match=said) as caught:
        export_program(net, (3, 10, 10))
    assert "net.with_solver(method='rk4', steps=4" in str(caught.value)


def test_a_missing_package_is_named_with_the_command(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ConfigError, match="pip install onnx onnxscript"):
        export_onnx(create_model("odenet", **TINY), tmp_path / "net.onnx", (3, 10, 10))


@pytest.mark.parametrize("name", ["dcn_ode", "dcn_full", "dcn_sigma_ji", "dcn_sigma_t2", "resnet_srf_blocks"])
def test_frozen_networks_have_the_same_numbers_and_no_gradients(name):
    net = create_model(name, **options_in_common(name, TINY))
    still = frozen(net)
    torch.testing.assert_close(logits_of(still), logits_of(net), rtol=1e-4, atol=1e-5)
    assert not any(p.requires_grad for p in still.parameters())
    assert all(p.requires_grad for p in net.parameters())


@pytest.mark.parametrize("name", ["dcn_ode", "dcn_sigma_alpha_t"])
def test_pinned_networks_share_weights_and_keep_their_kernel_size(name):
    net = create_model(name, **TINY)
    twin = pinned(net)
    assert {id(p) for p in twin.parameters()} == {id(p) for p in net.parameters()}
    torch.testing.assert_close(logits_of(twin), logits_of(net), rtol=1e-4, atol=1e-5)
    weights = torch.randn(3, 3)
    ours = torch.autograd.grad((net(IMAGES) * weights).sum(), list(net.parameters()))
    theirs = torch.autograd.grad((twin(IMAGES) * weights).sum(), list(twin.parameters()))
    torch.testing.assert_close(theirs, ours, rtol=1e-3, atol=1e-4)


def test_a_pinned_size_stays_while_sigma_moves_and_follows_when_pinned_again():
    net = create_model("dcn_ode", **TINY)
    filter = net.blocks[0].field.conv1.filter
    with torch.no_grad():
        filter.s.fill_(0.0)
        twin = pinned(net)
        filter.s.fill_(1.0)
    kernels = [made.blocks[0].field.conv1.filter for made in (twin, pinned(twin))]
    assert [made.kernel(made.state()).size for made in kernels] == [(7, 7), (11, 11)]


def test_a_block_says_why_it_cannot_be_one_graph():
    block = create_model("odenet", channels=(4,)).blocks[0]
    assert isinstance(block, ODEBlock)
    assert "dopri5" in str(block.why_not_one_graph())
    assert create_model("odenet", **TINY).blocks[0].why_not_one_graph() is None


def test_kernels_that_depend_on_time_are_tabulated_at_the_times_of_the_stages():
    net = create_model("dcn_sigma_alpha_t", channels=(4,), t1=2.0, solver=dict(method="rk4", steps=2))
    table = tabulated(net).blocks[0].field.conv1.filter
    original = net.blocks[0].field.conv1.filter
    assert table.times == [0.0, 0.5, 1.0, 1.5, 2.0]
    for time in table.times:
        found, expected = table.kernel(table.state(), time), original.kernel(original.state(), time)
        torch.testing.assert_close(found.weight(), expected.weight())
    with pytest.raises(ConfigError, match=r"tabulated at t = 0, 0.5.*got t = 0.3"):
        table.kernel(table.state(), 0.3)


def test_tables_of_kernels_follow_the_lengths_of_steps():
    options = dict(channels=(4,), norm_groups=2, solver=dict(method="midpoint", steps=[1, 3], gradient="direct"), t1=2.0)
    net = create_model("dcn_sigma_t", **options).eval()
    images = torch.rand(1, 3, 16, 16)
    torch.testing.assert_close(tabulated(net)(images), net(images))
