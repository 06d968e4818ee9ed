"""At a prompt and in a notebook: objects say what they hold in a few lines, names and options are completed, modules are at hand."""

import inspect
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import continua as ct
from continua.models import model_options
from continua.ode import Stats, Status
from continua.runs import RunView, load_recipe
from continua.showing import Shown, brief, harmless, show_table

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.arange(6000.0).reshape(2, 3000), "(2, 3000) float32, 0 … 5999, mean 3000"),
        (np.ones((40, 2)), "(40, 2) float64, 1 … 1, mean 1"),
        (torch.tensor([1, 2, 3]), "[1, 2, 3]"),
        (torch.tensor(0.25), "0.25"),
        (torch.empty(3, 4, device="meta"), "(3, 4) float32"),
        (torch.empty(0, 4), "(0, 4) float32"),
        (list(range(300)), "[0, 1, …, 299], 300 numbers"),
        ((Status.SUCCESS,) * 64, "64 × SUCCESS"),
        ([1 / 3, "a"], "[0.3333, 'a']"),
        (dict.fromkeys("abcdefgh", 1), "8 entries: a, b, c, …"),
        (Path("runs/x"), "runs/x"),
        ([[1.0] * 9] * 9, "9 × list"),
        (None, "None"),
    ],
)
def test_a_value_is_one_short_line(value: object, text: str) -> None:
    assert brief(value) == text


def test_nothing_is_long() -> None:
    @dataclass(frozen=True, repr=False)
    class Big(Shown):
        maps: torch.Tensor
        words: str
        inner: list[dict[str, torch.Tensor]]

    big = Big(torch.rand(64, 128, 32, 32), "word " * 500, [{"a": torch.rand(9, 9)}] * 40)
    assert len(repr(big)) < 600
    assert "(64, 128, 32, 32) float32" in repr(big)
    assert "<table>" in big._repr_html_()


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_a_solution_and_its_statistics_are_shapes_and_counts(control: str) -> None:
    sol = ct.solve(lambda t, y: -y, torch.rand(64, 3, 8, 8), 0.0, 1.0, control=control, save_at=[0.0, 0.5, 1.0], record_steps=True)
    text = repr(sol)
    assert len(text) < 700
    for part in ("(64, 3, 8, 8) float32", "(3, 64, 3, 8, 8) float32", "SUCCESS: 64", "nfe"):
        assert part in text
    assert len(repr(sol.stats)) < 1200
    assert "nfe" in sol._repr_html_()
    assert repr(Stats(nfe=3)).startswith("Stats(nfe=3, nfe_backward=0")


@pytest.mark.parametrize("name", ["dcn_ode", "resnet10_anodev2_c1", "irknet", "reconstruction"])
def test_a_network_is_a_table_in_a_notebook(name: str) -> None:
    html = ct.create_model(name)._repr_html_()
    assert len(html) < 12_000
    assert name in html
    assert "parameters" in html
    assert "block 1" in html
    plain = ct.Network()
    assert plain._repr_html_().startswith("<pre>")


def test_a_run_says_what_tells_it_apart() -> None:
    folder = ROOT / "results/anodev2/resnet4-cifar10-seed0-7457114f"
    if not folder.is_dir():
        pytest.skip("the run is not under results/ here")
    text = repr(RunView(folder))
    for part in ("resnet4", "cifar10, 250 per class", "15 of 15", "test_accuracy", "0.5186"):
        assert part in text
    assert len(text) < 500


def test_names_and_options_of_models_are_completed() -> None:
    assert set(ct.list_models()) == set(dir(ct.zoo))
    make = ct.zoo.dcn_ode
    assert list(inspect.signature(make).parameters) == ["pretrained", *(item.name for item in model_options("dcn_ode"))]
    assert "highest Gaussian derivative" in (make.__doc__ or "")
    assert make(channels=(4, 8), num_classes=3).config == ct.create_model("dcn_ode", channels=(4, 8), num_classes=3).config
    with pytest.raises(AttributeError, match="did you mean dcn_ode"):
        ct.zoo.dcn_odd()


def test_modules_are_reached_from_the_package_and_imported_when_they_are_used() -> None:
    code = (
        "import sys, continua as ct\n"
        "assert 'continua.train' not in sys.modules and 'continua.analysis' not in sys.modules\n"
        "assert {'analysis', 'train', 'data'} <= set(dir(ct))\n"
        "assert ct.data.load and ct.train.train and ct.analysis.answer\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="its modules are analysis"):
        ct.analyses  # noqa: B018


# --- strangers' text on the terminal ---------------------------------------------------------------------------------------

COMMANDING = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202etxt\r\x08"  # colours, a window's title, an empty screen, another direction


def test_what_would_command_the_terminal_is_written_out() -> None:
    assert harmless(COMMANDING) == r"\x1b[31mred\x1b]0;title\x07\x9b2J\u202etxt\r\x08"
    assert harmless("σ = 1,\n\ttwo lines; 中文, é, 🙂") == "σ = 1,\n\ttwo lines; 中文, é, 🙂"


def test_names_of_strangers_do_not_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from continua.cli import main
    from continua.report import Page, show_page
    from continua.train import show_status
    from continua.train.sweeps.cells import Cell, CellStatus

    show_table(COMMANDING, [COMMANDING], [[COMMANDING]])
    show_page(Page(COMMANDING, [COMMANDING]))
    cell = Cell("0", {COMMANDING: COMMANDING}, load_recipe("demo"), tmp_path / COMMANDING)
    show_status([CellStatus(cell, "failed", error=COMMANDING)], COMMANDING)
    assert main(["evaluate", str(tmp_path / COMMANDING)]) == 2
    said = capsys.readouterr()
    assert COMMANDING[:8] not in said.out + said.err
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\x08"} & set(said.out + said.err)
    assert all("x1b[31mred" in text for text in (said.out, said.err))
