"""Stages: what is measured is what the network does, and a method written into it is result again."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import continua
from continua.analysis import find_question, stages
from continua.analysis.questions.stages import present
from continua.blocks import embed_tableau
from continua.errors import ConfigError
from continua.models import familiar_method
from continua.report import Figure, Maps


def some_batches(count: int = 2, size: int = 4) -> list[tuple[Tensor, Tensor]]:
    return [(torch.rand(size, 3, 8, 8), torch.randint(0, 5, (size,))) for _ in range(count)]


def net(name: str = "erknet", **options: object) -> continua.Network:
    return continua.create_model(name, **{"growth": 4, "stages": "3x2_2x1", "num_classes": 5, **options}).eval()


def test_norms_add_up_to_the_step_and_weights_to_one() -> None:
    model, batches = net(), some_batches()
    result = stages(model, batches)
    assert [(step.period, step.step, len(step.increments)) for step in result.steps] == [(0, 0, 3), (0, 1, 3), (1, 0, 2)]
    assert result.images == 8
    images = torch.cat([images for images, _ in batches])
    with torch.no_grad():
        y0, y1, _ = model.states(images, 0)
    first = result.steps[0]
    assert first.state == pytest.approx(float(y0.square().mean((1, 2, 3)).sqrt().mean()), rel=1e-5)
    assert first.change == pytest.approx(float((y1 - y0).square().mean((1, 2, 3)).sqrt().mean()), rel=1e-5)
    assert first.step_size == pytest.approx(float(((y1 - y0).flatten(1).norm(dim=1) / y0.flatten(1).norm(dim=1)).mean()), rel=1e-5)
    for step in result.steps:
        assert sum(step.weights) == pytest.approx(1.0)
        assert 0 < step.agreement <= 1 + 1e-9
        assert step.change <= sum(step.increments) + 1e-9


def test_the_weights_of_a_slow_ode_are_those_of_the_tableau() -> None:
    model = net(stages="4x1", norm="identity", activation="identity")
    embed_tableau(model.blocks[0].first, "rk4", torch.eye(4), 1e-3)
    step = stages(model, some_batches(1), drop=False).steps[0]
    assert step.weights == pytest.approx([1 / 6, 1 / 3, 1 / 3, 1 / 6], abs=1e-3)
    assert step.step_size == pytest.approx(1e-3, rel=1e-3)
    assert step.agreement == pytest.approx(1.0)
    assert step.accuracy_without == []
    a = np.array(familiar_method(4, implicit=False)[1])
    assert ((step.dependence[:, 1:] > 0) == (a > 0)).all()


def test_leaving_a_stage_out_is_a_weight_of_zero() -> None:
    model, batches = net(stages="2x1_2x1", multiscale=False), some_batches(3)
    result = stages(model, batches)
    right = 0
    with torch.no_grad():
        for images, labels in batches:
            y = model.stem(images)
            y = y + model.blocks[0].first.increments(y)[1]  # stage 1 left out
            logits = model.head(model.blocks[1](model.transitions[0](y)))
            right += int((logits.argmax(1) == labels).sum())
            assert torch.allclose(model(images), model.forward_head(model.forward_features(images)))
    assert result.steps[0].accuracy_without[0] == right / 12
    plain = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in batches) / 12
    assert result.accuracy == plain


def test_an_implicit_network_shows_more_than_a_triangle() -> None:
    result = stages(net("irknet", bottleneck=True, share_steps=True), some_batches(1))
    assert all(step.implicit for step in result.steps)
    assert result.steps[0].dependence[0, 2] > 0
    page = present(result)
    grids = [part for part in page.parts if isinstance(part, Maps)]
    assert [grid.values.shape for grid in grids] == [(1, 2, 2, 2), (2, 2, 3, 3)]
    assert [part.name for part in page.parts if isinstance(part, Figure)] == ["norms", "step_sizes", "dropped"]


def test_networks_without_periods_and_empty_data_are_refused() -> None:
    with pytest.raises(ConfigError, match="asks ERKNets and IRKNets"):
        stages(continua.create_model("resnet_blocks", channels=(4,)), some_batches())
    with pytest.raises(ConfigError, match="no images"):
        stages(net(), [])


@pytest.mark.parametrize("name", ["stages", "reconstruction"])
def test_a_network_that_cannot_be_asked_is_refused_before_a_progress_bar_appears(name: str) -> None:
    question = find_question(name)
    early: Any = lambda *_: pytest.fail("work began")  # noqa: E731
    subject: Any = SimpleNamespace(model=continua.create_model("resnet_blocks", channels=(4,)), images=early, progress=early)
    with pytest.raises(ConfigError, match=r"ERKNets|a decoder"):
        question.ask(subject, question.Options())
