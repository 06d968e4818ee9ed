"""Slips of people who know timm and torchdiffeq: each is answered in one sentence that says what to write instead."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import continua as ct
from continua.blocks import ODEBlock
from continua.errors import typed


@pytest.fixture(scope="module")
def net() -> ct.Network:
    return ct.create_model("dcn_ode", channels=(4, 8), norm_groups=2, in_channels=1, solver=dict(method="rk4", steps=1))


IMAGES = torch.rand(2, 1, 16, 16)


@pytest.mark.parametrize(
    ("slip", "said"),
    [
        (lambda net: net.with_solver("rk4"), "options by name, such as method='rk4', steps=2; got 'rk4'"),
        (lambda net: net(IMAGES.numpy()), "reads a tensor of images; got ndarray"),
        (lambda net: net.states(IMAGES, times=[]), "times has shape (0,)"),
        (lambda net: net.states(IMAGES, times=[0, 5]), "times asks for t = 5, outside the interval"),
        (lambda net: ct.create_model("dcn_ode", pretrained=True, in_channels=1), "these weights of dcn_ode are for in_channels=3"),
        (lambda net: ct.create_model("dcn_ode", pretrained=True, channels=(4, 8)), "for channels=[16, 32, 64]; num_classes and solver"),
        (lambda net: ODEBlock(torch.nn.Conv2d(8, 8, 3, padding=1)), "a field is called as f(t, h), and Conv2d does not take that"),
        (lambda net: ODEBlock(torch.nn.Conv2d), "a module or a function that is called as f(t, h)"),
        (lambda net: ODEBlock(lambda h: -h), "a field is called as f(t, h)"),
        (lambda net: ODEBlock(lambda t, h: -h, t1="a"), "t1='a'; expected a number"),
        (lambda net: ct.from_pretrained("nope"), "nope does not exist; expected a folder"),
        (lambda net: ct.from_pretrained(__file__), "is a file; expected a folder"),
    ],
)
def test_a_slip_is_told_what_to_write(slip: Callable[[ct.Network], object], said: str, net: ct.Network) -> None:
    with pytest.raises(ct.ConfigError) as caught:
        slip(net)
    assert said in str(caught.value)


def test_one_time_is_a_list_of_one(net: ct.Network) -> None:
    assert torch.equal(net.states(IMAGES, times=1.0), net.states(IMAGES, times=[1.0]))


def test_a_path_in_an_advised_command_can_be_pasted() -> None:
    assert typed(Path("runs/my shapes")) == "'runs/my shapes'"
    assert typed(Path("runs/x")) == "runs/x"


def test_a_folder_without_splits_holds_out_the_share_that_is_asked_for(tmp_path: Path) -> None:
    from PIL import Image

    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        for index in range(10):
            Image.fromarray(np.full((9, 9, 3), 20 * index, dtype=np.uint8)).save(tmp_path / name / f"{index}.png")
    data = ct.data.load_image_folder(tmp_path, size=8, holdout=0.2, seed=1)
    assert {name: split.labels.bincount().tolist() for name, split in data.splits.items()} == {"train": [8, 8], "holdout": [2, 2]}
