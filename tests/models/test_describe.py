"""Descriptions, the table and the diagrams: counts against PyTorch's own counter, files that can be opened."""

import json
import re
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

from continua import create_model, list_models
from continua.blocks import ODEBlock
from continua.cli import main
from continua.cli.models import ROWS_FILE
from continua.filters import Filter
from continua.models import frozen, model_entry
from continua.models.counts import COUNTS_FILE, model_counts
from continua.models.describe import FlopCount, describe, describe_model
from continua.models.draw import draw_model

pytestmark = pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")


@pytest.mark.parametrize("name", list_models(task="classify"))
@torch.no_grad()
def test_flops_are_those_of_pytorchs_counter(name):
    net = create_model(name, **model_entry(name).tiny)
    described = describe(net, (3, 20, 20))
    plain = frozen(net)  # else the counter sees the arithmetic of sampling the Gaussians too
    with FlopCounterMode(display=False) as counter:
        h, scales = plain.stem(torch.rand(1, 3, 20, 20)), []
        for index, block in enumerate(plain.blocks):
            h = plain.transitions[index - 1](h) if index else h
            if isinstance(block, ODEBlock):
                block.field(torch.tensor(0.0), h)
            else:
                h = block(h)
            scales.append(h)
        plain.head(scales if plain.multiscale else h)
    if any(isinstance(m, Filter) and m.time_dependent for m in net.modules()):
        assert described.flops > 0
    else:
        assert described.flops == counter.get_total_flops()
    assert described.parameters == sum(p.numel() for p in net.parameters())


def test_the_counter_computes_as_without_it():
    x, layer = torch.randn(2, 3, 9, 8), torch.nn.Conv2d(3, 4, 3, stride=2, padding=1, dilation=2)
    with FlopCount() as count:
        y = layer(x)
    torch.testing.assert_close(y, layer(x))
    with FlopCount(shapes_only=True) as shapes:
        assert layer(x).shape == y.shape
    assert count.flops == shapes.flops == 2 * y.numel() * 27


def test_parts_follow_the_walk_of_an_image():
    described = describe_model("dcn_sigma_t", channels=(4, 8))
    assert [part.name for part in described.parts] == ["stem", "block 1", "transition 1", "block 2", "head"]
    assert [part.output for part in described.parts] == [(4, 30, 30), (4, 30, 30), (8, 15, 15), (8, 15, 15), (10,)]
    assert all(before.output == after.input for before, after in zip(described.parts, described.parts[1:], strict=False))
    block = described.parts[1]
    assert block.interval == (0.0, 2.0)
    assert block.layers == ("norm", "CELU", "N-jet σ(t) 7×7 + t", "norm", "CELU", "N-jet σ(t) 7×7 + t", "norm")


def test_a_description_leaves_the_random_numbers_and_the_network_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    describe_model("odenet")
    assert torch.equal(torch.rand(3), expected)
    net = create_model("dcn_ode", channels=(4,))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    describe(net, (3, 12, 12))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("name", ["dcn_sigma_alpha_t", "resnet_srf_full"])
def test_diagrams_can_be_opened_and_name_what_they_show(name, tmp_path):
    described = describe_model(name)
    picture = draw_model(described, tmp_path / "new" / "net.png")
    with Image.open(picture) as image:
        assert image.width > 2000
        assert len(image.convert("L").getcolors() or range(99)) > 20
    svg = draw_model(described, tmp_path / "net.svg").read_text("utf-8")
    for part in described.parts:
        assert part.name in svg
        assert f"{part.parameters:,} parameters" in svg
    assert draw_model(described, tmp_path / "again.svg").read_text("utf-8") == svg
    assert draw_model(described, tmp_path / "net.pdf").read_bytes().startswith(b"%PDF")


def test_the_table_shows_counts_ours_and_printed(capsys):
    assert main(["models", "dcn_*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("dcn_full"))
    assert re.split(r"\s{2,}", row.strip()) == ["dcn_full", "DCN", "DCN-full", "325,843", "326K", "0.740", "32×32"]
    assert not any(line.startswith("odenet") for line in lines)


def test_json_lists_every_model(capsys):
    assert main(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == rows_of_all(), "write them anew: python tests/models/test_describe.py"


def test_the_command_draws(tmp_path: Path, capsys):
    target = tmp_path / "a b" / "net.svg"
    assert main(["models", "--draw", "dcn_ode", "--out", str(target)]) == 0
    assert str(target) in capsys.readouterr().out
    assert "σ = 1" in target.read_text("utf-8")


def test_a_drawing_of_a_spelled_network_names_no_row_of_the_paper(tmp_path: Path):
    drawn = {}
    for name in ("irknet_k36_3x1_3x1_3x1", "IRKNet-3x1_3x1_3x1"):
        assert main(["models", "--draw", name, "--out", str(tmp_path / "net.svg")]) == 0
        drawn[name] = (tmp_path / "net.svg").read_text("utf-8")
    assert "table 1" in drawn["irknet_k36_3x1_3x1_3x1"]
    assert "IRKNet-4×1_4×1_4×1" not in drawn["IRKNet-3x1_3x1_3x1"]  # the defaults of `irknet`, which a spelled name replaces


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["models", "zz*"], "no model is named like 'zz*'"),
        (["models", "--draw", "dcn_odd"], "did you mean"),
        (["models", "--draw", "dcn_ode", "--out", "net.gif"], "end it in .svg, .png, .pdf"),
        (["models", "--out", "net.svg"], "--draw NAME"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, said, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def rows_of_all() -> list[dict[str, object]]:
    keys = ("name", "paper", "row", "parameters", "printed", "image_size")
    return [{key: getattr(model_entry(name), key) for key in keys} | {"flops": model_counts(name).flops} for name in list_models()]


def counts_of_all() -> dict[str, list[int]]:
    described = {name: describe_model(name) for name in list_models()}
    return {name: [each.parameters, each.flops] for name, each in described.items()}


def test_kept_counts_are_those_of_the_networks():
    assert json.loads(COUNTS_FILE.read_text("utf-8")) == counts_of_all(), "write them anew: python tests/models/test_describe.py"


def test_a_model_without_kept_counts_is_counted(monkeypatch):
    kept = model_counts("dcn_ode")
    monkeypatch.setattr("continua.models.counts._kept_counts", dict)
    assert model_counts("dcn_ode") == kept


if __name__ == "__main__":
    lines = (f'  "{name}": {json.dumps(counts)}' for name, counts in counts_of_all().items())
    COUNTS_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    lines = (f"  {json.dumps(row, ensure_ascii=False)}" for row in rows_of_all())
    ROWS_FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")
