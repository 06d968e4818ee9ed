"""`continua analyse features|transfer|steps|tolerance` on a run: what is written, that the second call only reads, what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from training import QUIET

from continua.analysis import Features
from continua.cli import main
from continua.train import Run, load_recipe, train

LOOK = dict(saturation=0.0, hue=0.0, crop_padding=1, mean=[0.5], std=[0.5])


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """An ODE network and a residual one, hardly trained."""
    made = {}
    for name, options in (("ode_only_net", dict(width=8, solver=dict(rtol=0.1, atol=0.1))), ("residual_net", dict(width=8, num_blocks=2))):
        changes = dict(model=name, model_options=options, data="digits", per_class=4, epochs=1, augmentation=LOOK)
        made[name] = train(load_recipe("features", changes), tmp_path_factory.mktemp("runs") / name, QUIET).folder
    return made


def answer_of(run: Path, name: str) -> Path:
    (folder,) = [path for path in (run / "analysis" / name).iterdir() if (path / "numbers.json").exists()]
    return folder


@pytest.mark.parametrize(
    ("name", "words", "files"),
    [
        ("features", ["--times", "3", "--limit", "60"], {"features.csv", "dimensions.png", "separation.png"}),
        (
            "steps",
            ["--shown", "2", "--tolerance", "1e-5", "--limit", "60"],
            {"steps.csv", "histogram.png", "demanding.png", "margin.png", "correctness.png"},
        ),
        (
            "tolerance",
            ["--tolerances", "[0.01, 0.1]", "--fixed", "[rk4:1]", "--limit", "60"],
            {"tolerance.csv", "dial.png", "accuracy.png", "nfe.png"},
        ),
        (
            "transfer",
            ["--data", "digits", "--per_class", "6", "--times", "2", "--cs", "[0.1, 1]", "--jobs", "1"],
            {"transfer.csv", "transfer.png"},
        ),
        ("retrieval", ["--per_class", "6", "--times", "2", "--nearest", "3"], {"retrieval.csv", "retrieval.png"}),
    ],
)
def test_a_command_writes_numbers_a_picture_and_a_text_once(name, words, files, runs, capsys):
    command = ["analyse", name, str(runs["ode_only_net"]), *words, "--quiet"]
    assert main(command) == 0
    folder = answer_of(runs["ode_only_net"], name)
    assert files | {"page.md", "numbers.json"} <= {path.name for path in folder.iterdir()}
    written = (folder / "numbers.json").stat().st_mtime_ns
    assert "60 images" in (folder / "page.md").read_text("utf-8")
    assert main(command) == 0
    assert (folder / "numbers.json").stat().st_mtime_ns == written
    assert capsys.readouterr().out.strip()


def test_pixels_are_asked_beside_features(runs, tmp_path):
    words = ["--limit", "40", "--times", "2", "--nearest", "3", "--quiet"]
    assert main(["analyse", "retrieval", str(runs["ode_only_net"]), *words, "--out", str(tmp_path / "answer")]) == 0
    (page,) = (tmp_path / "answer").rglob("page.md")
    (numbers,) = (tmp_path / "answer").rglob("numbers.json")
    pixels = json.loads(numbers.read_text("utf-8"))["result"]["pixels"]["precision"]
    assert f"The pixels themselves give {pixels:.2%}." in page.read_text("utf-8")


def test_the_features_file_of_a_command_can_be_read(runs):
    assert main(["analyse", "features", str(runs["residual_net"]), "--limit", "20", "--quiet"]) == 0
    result = json.loads((answer_of(runs["residual_net"], "features") / "numbers.json").read_text("utf-8"))["result"]
    taken = Features.read(result["file"])
    assert taken.values.shape == (3, 20, 8)
    assert taken.names == ["input", "block 1", "block 2"]
    assert np.isfinite(taken.values).all()
    assert set(taken.labels) <= set(range(10))


def test_what_a_run_cannot_be_asked_is_said_in_one_line(runs, capsys):
    for name in ("steps", "tolerance"):
        assert main(["analyse", name, str(runs["residual_net"]), "--limit", "10", "--quiet"]) == 2
        assert "no ODE block" in capsys.readouterr().err
    assert main(["analyse", "transfer", str(runs["residual_net"]), "--data", "digits", "--limit", "12", "--quiet"]) == 2
    assert "fewer than the 5 folds" in capsys.readouterr().err
    assert Run(runs["residual_net"]).result is not None
