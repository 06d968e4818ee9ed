"""Features at any time: against the forward pass, one solve, the file they stream to, what is refused."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from continua import ConfigError, create_model
from continua.analysis import features as features_module_function
from continua.analysis.questions.features import Features, chosen_times, describe_features, features, present
from continua.analysis.stream import StreamedArrays

IMAGES = torch.rand(6, 3, 12, 12, generator=torch.Generator().manual_seed(1))
TIMES = [0.0, 0.25, 0.9, 1.0]


def net_of(name: str, **options):
    torch.manual_seed(3)
    return create_model(name, **{"width": 8, **options}).eval()


def batches(size: int = 2):
    return [(part, torch.arange(len(part))) for part in IMAGES.split(size)]


@pytest.mark.parametrize("name", ["res_ode_net", "ode_only_net"])
@torch.no_grad()
def test_features_at_the_ends_are_those_of_the_forward_pass(name):
    net = net_of(name)
    taken = features(net, IMAGES, TIMES)
    assert taken.values.shape == (4, 6, 8)
    np.testing.assert_array_equal(taken.values[-1], net.head.pool(net.forward_features(IMAGES)).numpy())
    torch.testing.assert_close(net.head.linear(torch.from_numpy(taken.values[-1])), net(IMAGES))
    np.testing.assert_allclose(taken.values[0], net.head.pool(net.stem(IMAGES)).numpy(), atol=1e-6)
    plain = features(net, IMAGES, TIMES, pool="plain")
    np.testing.assert_allclose(plain.values[-1], net.forward_features(IMAGES).mean((2, 3)).numpy(), atol=1e-6)


@torch.no_grad()
def test_all_times_come_from_one_solve_and_agree_with_solves_that_end_there():
    net = net_of("ode_only_net", solver=dict(rtol=1e-7, atol=1e-7)).double()
    calls = []
    block = net.blocks[0]
    solve = block.solve
    block.solve = lambda *args, **options: (calls.append(1), solve(*args, **options))[1]
    taken = features(net, IMAGES.double(), TIMES, pool="plain")
    assert len(calls) == 1
    block.solve = solve
    for t, values in zip(TIMES[1:], taken.values[1:], strict=True):
        np.testing.assert_allclose(values, net.forward_features(IMAGES.double(), t1={0: t}).mean((2, 3)).numpy(), atol=1e-5)


@torch.no_grad()
def test_a_residual_network_has_its_input_and_the_output_of_every_block():
    net = net_of("residual_net", num_blocks=3)
    taken = features(net, IMAGES)
    assert taken.values.shape == (4, 6, 8)
    assert taken.points == [0.0, 1 / 3, 2 / 3, 1.0]
    assert taken.names == ["input", "block 1", "block 2", "block 3"]
    for index in range(3):
        before, after = net.states(IMAGES, index)
        np.testing.assert_allclose(taken.values[index], net.head.pool(before).numpy(), atol=1e-6)
        np.testing.assert_allclose(taken.values[index + 1], net.head.pool(after).numpy(), atol=1e-6)
    assert not net.blocks[0]._forward_pre_hooks


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_a_file_holds_what_memory_would(tmp_path, suffix):
    net, seen = net_of("ode_only_net"), []
    file = tmp_path / f"some{suffix}"
    taken = features(net, batches(), TIMES, file=file, advance=seen.append)
    whole = features(net, batches(), TIMES)
    np.testing.assert_array_equal(taken.values, whole.values)
    np.testing.assert_array_equal(taken.labels, [0, 1] * 3)
    assert (taken.points, taken.names, seen) == (TIMES, whole.names, [2, 2, 2])
    raw = load_file(file) if suffix == ".safetensors" else np.load(file)
    np.testing.assert_array_equal(raw["features"], whole.values)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_an_interrupted_file_is_gone_on_with(tmp_path):
    net, file, made = net_of("ode_only_net"), tmp_path / "some.safetensors", []
    forward = net.states
    net.states = lambda images, **options: (made.append(len(images)), forward(images, **options))[1]

    def broken():
        yield from batches()[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        features(net, broken(), TIMES, file=file, count=6)
    assert not file.exists()
    taken = features(net, batches(), TIMES, file=file, count=6)
    assert len(made) == 2 + 2  # the second time only the first batch, which shows that the data are the same, and the last
    np.testing.assert_array_equal(taken.values, features(net, batches(), TIMES).values)
    with pytest.raises(KeyboardInterrupt):
        features(net, broken(), TIMES, file=file, count=6)
    made.clear()
    features(net, [(images + 1, labels) for images, labels in batches()], TIMES, file=file, count=6)
    assert len(made) == 3  # other images: nothing of what was left behind is used


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("ode_only_net", dict(times=[0.0, 1.5]), r"time 1.5 is outside the interval \[0, 1\] of block 0"),
        ("ode_only_net", dict(times=[-0.1]), "outside the interval"),
        ("ode_only_net", dict(times=[0.5, 0.2]), "in the order"),
        ("ode_only_net", dict(times=[]), "at least one"),
        ("ode_only_net", dict(block=4), "there is no block 4"),
        ("ode_only_net", dict(pool="max"), "pool='max'"),
        ("residual_net", dict(times=[0.5]), "no ODE block"),
    ],
)
def test_what_cannot_be_asked_is_refused(name, options, words):
    with pytest.raises(ConfigError, match=words):
        features(net_of(name), IMAGES, **options)


def test_files_need_a_known_kind_and_a_known_number_of_images(tmp_path):
    net = net_of("ode_only_net")
    with pytest.raises(ConfigError, match=r"\.safetensors or \.npz"):
        features(net, IMAGES, [1.0], file=tmp_path / "some.pt")
    with pytest.raises(ConfigError, match="count=N"):
        features(net, iter(batches()), [1.0], file=tmp_path / "some.npz")
    for wrong in (5, 7):
        with pytest.raises(ConfigError, match=f"count={wrong}"):
            features(net, batches(), [1.0], file=tmp_path / "some.npz", count=wrong)
    with pytest.raises(ConfigError, match="empty"):
        features(net, [], [1.0])


def test_blocks_of_several_widths_are_taken_one_at_a_time():
    net = create_model("resnet_blocks", channels=(4, 8)).eval()
    with pytest.raises(ConfigError, match="4, 8 channels"):
        features(net, IMAGES, pool="plain")
    with pytest.raises(ConfigError, match="use pool='plain'"):
        features(net, IMAGES, block=0)
    assert features(net, IMAGES, block=0, pool="plain").values.shape == (2, 6, 4)
    assert features(net, IMAGES, block=-1).values.shape == (2, 6, 8)


def test_dimensions_and_separation_of_known_clouds():
    draw = np.random.default_rng(0)
    values = np.zeros((2, 4000, 6))
    values[0, :, :3] = draw.normal(size=(4000, 3))  # a round cloud in three dimensions, no classes
    labels = np.arange(4000) % 2
    values[1, :, 0] = labels  # all variance between the classes, in one dimension
    described = describe_features(Features([0.0, 1.0], ["t = 0", "t = 1"], values, labels))
    np.testing.assert_allclose(described.dimensions, [3.0, 1.0], rtol=0.01)
    np.testing.assert_allclose(described.separation, [0.0, 1.0], atol=0.01)
    assert "4,000 images" in present(described).parts[0]


def test_the_default_grid_is_the_paper_s():
    net = net_of("ode_only_net")
    assert features(net, IMAGES[:1]).points == pytest.approx(np.arange(0, 1.001, 0.05).tolist())
    assert features_module_function is features
    from continua.analysis.questions.features import Options

    assert chosen_times(net, Options(times=3)) == [0.0, 0.5, 1.0]
    assert chosen_times(net_of("residual_net"), Options()) is None


def test_a_damaged_mark_starts_anew(tmp_path):
    shapes = {"features": ("F32", (2, 3))}
    first = StreamedArrays(tmp_path / "x.safetensors", shapes, "key")
    first.arrays["features"][:] = 1
    first.reached(2)
    assert StreamedArrays(tmp_path / "x.safetensors", shapes, "key").done == 2
    (tmp_path / ".x.safetensors.reached").write_text("{half")
    assert StreamedArrays(tmp_path / "x.safetensors", shapes, "key").done == 0
