"""`continua analyse` and `continua report` as a person types them."""

import json
from pathlib import Path

import pytest
from command_line import failed
from training import QUIET, tiny_recipe

from continua.cli import main
from continua.train import Run, train


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two finished runs: one with N-jets and a solver, one residual."""
    base = tmp_path_factory.mktemp("analysed")
    train(tiny_recipe(epochs=2), base / "dcn", QUIET)
    residual = dict(channels=[4, 8], stem_padding=1)
    recipe = tiny_recipe(epochs=1, model="resnet_blocks", model_options=residual)
    train(recipe, base / "residual", QUIET)
    return [base / "dcn", base / "residual"]


def test_an_analysis_says_what_it_found_and_the_second_time_it_is_known(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyse", "scales", str(runs[0]), "--bins", "12", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "Scales of 4 N-jet layers" in shown
    assert "scales asked: numbers and pictures in" in shown
    (folder,) = (runs[0] / "analysis" / "scales").iterdir()
    stored = json.loads((folder / "numbers.json").read_text("utf-8"))
    assert stored["options"]["bins"] == 12
    sigma = [line["sigma"] for line in Run(runs[0]).lines() if line["event"] == "epoch"][-1]
    scales = {layer["name"]: layer["sigma"][0] for layer in stored["result"]["layers"]}
    assert scales == pytest.approx(sigma, abs=1e-6)
    assert (folder / "sigma_by_depth.png").is_file()
    assert main(["analyse", "scales", str(runs[0]), "--bins", "12", "--svg"]) == 0
    assert "known already" in capsys.readouterr().out
    assert (folder / "sigma_by_depth.svg").is_file()


def test_several_runs_are_shown_in_one_figure(runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["analyse", "contrast", *map(str, runs), "--limit", "12", "--contrasts", "2", "--modes", "[naive]", "--quiet"]
    assert main([*words, "--html", str(tmp_path / "page.html"), "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "12 images" in shown
    assert [line.split()[0] for line in shown.splitlines() if "images × c" in line] == ["dcn", "dcn", "residual", "residual"]
    (compared,) = (tmp_path / "out" / "contrast").glob("compared-*")
    page = json.loads((compared / "page.json").read_text("utf-8"))
    figure = next(part for part in page["parts"] if isinstance(part, dict) and part["name"] == "accuracy")
    assert [series["name"] for series in figure["series"]] == ["dcn", "residual"]
    assert (tmp_path / "page.html").stat().st_size > 1_000_000
    assert not (runs[1] / "analysis").exists(), "--out keeps the run's folder as it is"


def test_contrast_of_fixed_steps_can_be_asked_at_a_tolerance(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["analyse", "contrast", str(runs[0]), "--limit", "6", "--contrasts", "2", "--low", "0.1", "--modes", "[scaled]", "--quiet"]
    assert main([*words, "--tolerance", "1e-2"]) == 0
    (folder,) = (runs[0] / "analysis" / "contrast").iterdir()
    nfe = json.loads((folder / "numbers.json").read_text("utf-8"))["result"]["curves"][0]["nfe"]
    assert nfe[0][0] < nfe[1][0], "ten times less time takes fewer steps"
    capsys.readouterr()
    assert "has no ODE block" in failed(capsys, "analyse", "contrast", str(runs[1]), "--tolerance", "1e-2")


def test_without_a_name_the_analyses_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyse"]) == 0
    shown = capsys.readouterr().out
    assert "scales" in shown
    assert "Learned scales" in shown


def test_help_shows_the_options_of_that_analysis(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["analyse", "contrast", "--help"])
    assert "--contrasts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["scale", "{run}"], "unknown analysis 'scale'; did you mean scales?"),
        (["scales", "{run}", "--bin", "3"], "unknown option '--bin'; did you mean --bins?"),
        (["scales", "{run}", "--bins", "many"], "bins"),
        (["scales"], "scales is asked of a run"),
        (["scales", "nowhere"], "nowhere is not a run"),
        (["scales", "{run}", "--device", "gpu"], "expected auto, cpu, cuda, mps, xpu"),
        (["contrast", "{run}", "--split", "val"], "unknown split of digits 'val'"),
        (["contrast", "{run}", "--modes", "[louder]"], "unknown mode 'louder'"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str, runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert said in failed(capsys, "analyse", *(word.replace("{run}", str(runs[0])) for word in words))


def test_a_run_without_weights_says_how_to_get_them(tmp_path: Path, runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.yaml").write_bytes((runs[0] / "config.yaml").read_bytes())
    assert "--resume" in failed(capsys, "analyse", "scales", str(tmp_path / "new"))


def test_report_puts_runs_and_their_analyses_on_one_page(runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyse", "scales", str(runs[0]), "--quiet"]) == 0
    target = tmp_path / "report.html"
    assert main(["report", *map(str, runs), "--out", str(target), "--title", "Two runs & more"]) == 0
    text = target.read_text("utf-8")
    assert "<h1>Two runs &amp; more</h1>" in text
    body = text[text.index("<h1>") :]
    for wanted in ("Training loss", "Evaluations of f per solve", "Scales of N-jet layers", "dcn: Scales", "resnet_blocks"):
        assert wanted in body, wanted
    result = Run(runs[0]).result
    assert result is not None
    assert f"{100 * result['test_accuracy']:.2f}" in body
    assert main(["report", str(runs[1])]) == 0
    assert (runs[1] / "report.html").is_file()
    assert "is not a run" in failed(capsys, "report", str(tmp_path))
