"""The reconstruction decoder: its size, its order, its frozen encoder, and what it is compared with."""

import pytest
import torch
from torch.nn import functional

from continua import ConfigError, create_model, from_pretrained
from continua.models import Reconstructor, complete_options, describe_model, model_entry

pytestmark = pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
SMALL = dict(channels=(4, 8, 6), solver=dict(method="euler", steps=1))
PLAIN = dict(channels=(4, 8, 6))


@pytest.mark.parametrize(("name", "size"), [("dcn_ode", 257_799), ("odenet", 382_211), ("resnet_blocks", 377_987)])
def test_the_decoder_has_the_papers_size(name, size):
    with torch.device("meta"):
        made = Reconstructor(create_model(name))
    assert sum(p.numel() for p in made.parameters() if p.requires_grad) == size


def test_the_reconstruction_is_28_pixels_wide_and_compared_with_the_middle_of_the_image():
    made, images = Reconstructor(create_model("dcn_ode", **SMALL)), torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert made(images).shape == (2, 3, 28, 28)
    assert torch.equal(made.target(images), images[..., 2:30, 2:30])


@pytest.mark.parametrize(("name", "size"), [("dcn_full", 33), ("odenet", 30), ("resnet_blocks", 25)])
@torch.no_grad()
def test_reconstruction_and_target_have_one_size_for_any_image(name, size):
    made, images = Reconstructor(create_model(name, **(PLAIN if name == "resnet_blocks" else SMALL))), torch.rand(1, 3, size, size)
    assert made(images).shape == made.target(images).shape


@torch.no_grad()
def test_the_layers_come_in_the_papers_order():
    made, h = Reconstructor(create_model("resnet_blocks", channels=(4, 8))), torch.randn(1, 8, 5, 5)

    def upscale(h):
        return functional.interpolate(h, scale_factor=2, mode="bilinear", align_corners=False)

    expected = made.transitions[0].conv(upscale(made.blocks[0](h)))
    expected = made.head.conv(torch.relu(made.head.norm(upscale(made.blocks[1](expected)))))
    torch.testing.assert_close(made.decode(h), expected)


def test_only_the_decoder_learns_and_the_given_network_is_left_alone():
    encoder = create_model("dcn_ode", **SMALL)
    made, images = Reconstructor(encoder).train(), torch.rand(2, 3, 16, 16)
    before = {name: value.clone() for name, value in made.encoder.state_dict().items()}
    optimiser = torch.optim.SGD([p for p in made.parameters() if p.requires_grad], lr=0.05)
    losses = []
    for _ in range(8):
        loss = functional.mse_loss(made(images), made.target(images))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(torch.equal(value, before[name]) for name, value in made.encoder.state_dict().items())
    assert not made.encoder.training
    assert all(p.requires_grad and p.grad is None for p in encoder.parameters())
    assert all(stats is not None and stats.nfe >= 1 for stats in made.stats)


def test_decoder_blocks_take_the_solver_of_a_twin():
    net = create_model("dcn_ode", **SMALL).with_solver(method="rk4", steps=3)
    assert Reconstructor(net).blocks[0].solver.steps == 3


def test_what_cannot_be_an_encoder_is_refused():
    with pytest.raises(ConfigError, match="at least two blocks"):
        Reconstructor(create_model("dcn_ode", channels=(4,)))
    with pytest.raises(ConfigError, match="got Linear"):
        Reconstructor(torch.nn.Linear(2, 2))  # pyright: ignore[reportArgumentType]


def test_it_is_a_network_like_every_other(tmp_path):
    torch.manual_seed(3)
    made = create_model("reconstruction", encoder="odenet", encoder_options=SMALL).eval()
    torch.manual_seed(3)
    twin = Reconstructor(create_model("odenet", **SMALL)).eval()
    images = torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(made(images), twin(images))
        torch.testing.assert_close(made.decode(made.encoder.forward_features(images)), made.forward_head(made.forward_features(images)))
        assert torch.equal(made.states(images, block=0)[0], made.encoder.forward_features(images))
    assert made.config == twin.config == {"model": "reconstruction", "options": complete_options("reconstruction", made.config["options"])}
    assert made.config["options"]["encoder_options"] == made.encoder.config["options"]
    other = made.with_solver(method="rk4", steps=2)
    assert other.config["options"]["encoder_options"]["solver"] == {"method": "rk4", "steps": 2}
    made.save_pretrained(tmp_path)
    back = from_pretrained(tmp_path)
    assert isinstance(back, Reconstructor)
    with torch.no_grad():
        assert torch.equal(back(images), made(images))
    with pytest.raises(ConfigError, match=r"\(batch, 3, height, width\)"):
        made(images[:, :1])
    with pytest.raises(ConfigError, match="resnet_blocks has no option 'solver'"):
        create_model("reconstruction", encoder="resnet_blocks", encoder_options=SMALL)


def test_its_description_begins_with_the_encoder():
    described = describe_model("reconstruction", **model_entry("reconstruction").tiny)
    encoder = describe_model("dcn_ode", channels=(4, 8, 8))
    assert [part.name for part in described.parts][:2] == ["encoder stem", "encoder block 1"]
    assert [part.flops for part in described.parts][:6] == [part.flops for part in encoder.parts[:-1]]
    made = create_model("reconstruction", **model_entry("reconstruction").tiny)
    assert described.parameters == sum(p.numel() for p in made.parameters())
    with torch.device("meta"):
        full = create_model("reconstruction")
    assert sum(p.numel() for p in full.parameters()) == model_entry("reconstruction").parameters
