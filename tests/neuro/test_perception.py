"""Metamers have the response that was asked for; eigendistortions are the eigenvectors of J'J; models pass plenoptic's checks."""

import pytest
import torch
from torch import Tensor, nn

from continua import ConfigError, create_model, list_models
from continua.models import model_entry, option_names
from continua.neuro import Percept, eigendistortions, metamer, metamer_film

pytestmark = pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")


def image(size: int = 8, channels: int = 1) -> Tensor:
    return torch.rand(1, channels, size, size, generator=torch.Generator().manual_seed(1))


def small(**options) -> Percept:
    torch.manual_seed(0)
    net = create_model(
        "dcn_ode", channels=(4,), norm_groups=2, in_channels=1, stem_padding=1, solver=dict(method="rk4", steps=1), **options
    )
    return Percept(net, 0, t=1.0)


def check_like_plenoptic(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """What `plenoptic.validate.validate_model` (2.1) asks, as its documentation says: written anew, since plenoptic is no dependency."""
    assert not model.training
    x = torch.rand(shape, dtype=dtype)
    assert not model(x).requires_grad, "its parameters are constants"
    y = model(x.requires_grad_())
    assert y.requires_grad, "it lets gradients pass to the image"
    assert y.dtype == dtype
    assert y.device == x.device


ONE_OF_EACH = ["resnet_blocks", "dcn_ode", "ode_only_net", "resnet4_anodev2_c1", "neural_field"]


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_model_passes_the_checks_of_plenoptic(name: str) -> None:
    check_model(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", list_models(task="classify"))
def test_every_model_passes_the_checks_of_plenoptic(name: str) -> None:
    check_model(name)


def check_model(name: str) -> None:
    options = {"solver": dict(method="midpoint", steps=1)} if "solver" in option_names(name) else {}
    net = create_model(name, **{**model_entry(name).tiny, **options})
    check_like_plenoptic(Percept(net, "head"), (1, 3, 12, 12), torch.float32)
    assert all(parameter.requires_grad for parameter in net.parameters()), "the network itself is left alone"


def test_states_pass_the_checks_too_in_either_precision() -> None:
    check_like_plenoptic(small(), (1, 1, 16, 16), torch.float32)
    check_like_plenoptic(small().double(), (1, 1, 16, 16), torch.float64)


def test_plenoptic_itself_accepts_them() -> None:
    """Where plenoptic is installed, which needs an environment of its own."""
    validate = pytest.importorskip("plenoptic", reason="plenoptic is not installed; its checks are written anew above").validate
    for name in list_models(task="classify"):
        options = {"solver": dict(method="midpoint", steps=1)} if "solver" in option_names(name) else {}
        net = create_model(name, **{**model_entry(name).tiny, **options})
        validate.validate_model(Percept(net, "head"), image_shape=(1, 3, 16, 16))
    validate.validate_model(small(), image_shape=(1, 1, 16, 16))


def test_a_metamer_has_the_response_and_is_another_image() -> None:
    view, wanted = small(), image()
    made = metamer(view, wanted, steps=120)
    with torch.no_grad():
        left, first = ((view(part) - view(wanted)).square().sum() for part in (made.image, made.start))
    assert float(left / first) == pytest.approx(made.losses[-1], rel=1e-3)
    assert made.losses[0] == 1.0
    assert made.losses[-1] < 0.05
    assert made.distance > 0.01
    assert 0 <= float(made.image.min()) <= float(made.image.max()) <= 1


def test_what_a_linear_view_cannot_see_stays_in_its_metamer() -> None:
    """Responses to the mean of neighbours say nothing about their difference, which noise keeps."""
    made = metamer(lambda x: nn.functional.avg_pool2d(x, 2), image(), steps=400, goal=1e-6)
    assert torch.allclose(nn.functional.avg_pool2d(made.image, 2), nn.functional.avg_pool2d(image(), 2), atol=2e-3)
    assert made.distance > 0.1


def test_eigendistortions_are_the_extreme_eigenvectors_of_the_jacobian() -> None:
    view, point = small().double(), image(6).double()
    found = eigendistortions(view, point, steps=40, tolerance=1e-9)
    jacobian = torch.autograd.functional.jacobian(view, point)
    assert isinstance(jacobian, Tensor)
    values, vectors = torch.linalg.eigh(jacobian.reshape(-1, 36).t() @ jacobian.reshape(-1, 36))
    assert float(found.values[0]) == pytest.approx(float(values[-1]), rel=1e-6)
    assert abs(float(found.vectors[0].flatten() @ vectors[:, -1])) == pytest.approx(1, abs=1e-3)
    assert float(values[0]) <= float(found.values[1]) < 0.02 * float(values[-1])
    assert found.vectors.flatten(1).norm(dim=1) == pytest.approx(torch.ones(2), abs=1e-9)


def test_a_film_of_metamers_has_one_for_each_time() -> None:
    picture, made = metamer_film(small().net, image(), 0, [0.5, 1.5], steps=3)
    assert picture.values.shape == (1, 3, 8, 8)
    assert len(made) == 2
    assert not torch.equal(made[0].image, made[1].image)


def test_a_film_of_metamers_is_each_metamer_by_itself() -> None:
    """All moments are made in one solve of fixed steps; each is the one that `metamer` makes alone, in any order of times."""
    net, wanted = small().net, image()
    _, made = metamer_film(net, wanted, 0, [1.5, 0.5], steps=8)
    for t, part in zip([1.5, 0.5], made, strict=True):
        alone = metamer(Percept(net, 0, t), wanted, steps=8)
        torch.testing.assert_close(part.image, alone.image, rtol=1e-3, atol=1e-3)
        assert part.losses == pytest.approx(alone.losses, rel=1e-2)


def test_images_are_prepared_as_the_network_reads_them() -> None:
    net, wanted = small().net, image()
    view = Percept(net, 0, 1.0, prepare=lambda x: (x - 0.4) / 0.2)
    torch.testing.assert_close(view(wanted), Percept(net, 0, 1.0)((wanted - 0.4) / 0.2))
    _, made = metamer_film(net, wanted, 0, [1.0], steps=4, prepare=lambda x: (x - 0.4) / 0.2)
    torch.testing.assert_close(made[0].image, metamer(view, wanted, steps=4).image, rtol=1e-3, atol=1e-3)


def test_what_cannot_be_looked_at_is_refused() -> None:
    net = small().net
    for block, t in ((5, None), ("tail", None), ("stem", 1.0)):
        with pytest.raises(ConfigError, match=r"no block|no time"):
            Percept(net, block, t)
    with pytest.raises(ConfigError, match="one image"):
        metamer(small(), torch.rand(2, 1, 8, 8))
    for make in (lambda x: metamer(small(), x), lambda x: metamer(small(), image(), start=x), lambda x: metamer_film(net, x, 0, [1.0])):
        for wrong in (255 * image(), image() - 0.5, image() * torch.nan):
            with pytest.raises(ConfigError, match="expected luminances"):
                make(wrong)
