"""`continua train` and `continua evaluate` as a person types them."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import failed
from training import QUIET, lasting_lines, tiny_recipe

from continua.cli import main
from continua.models import create_model, list_models
from continua.runs.loading import recipe_fields
from continua.train import Run, train
from continua.train.loop import Training
from continua.train.metrics import remarks

WORDS = [
    *("train", "--recipe", "demo", "--data", "digits", "--per-class", "4", "--epochs", "2", "--batch_size=16", "--optimiser.lr", "1e-2"),
    *("--model-options.channels", "[4, 8]", "--model-options.stem_padding", "1", "--model_options.solver.rtol", "0.1"),
    *("--model_options.solver.atol", "0.1", "--schedule.warmup", "0", "--threads", "1", "--device", "cpu"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("commands") / "run"
    assert main([*WORDS, "--out", str(folder)]) == 0
    return Run(folder)


def test_train_uses_what_was_typed_and_prints_plain_lines_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Run) -> None:
    recipe = run.recipe
    assert (recipe.data, recipe.per_class, recipe.epochs, recipe.batch_size, recipe.optimiser.lr) == ("digits", 4, 2, 16, 0.01)
    assert recipe.model_options["channels"] == [4, 8]
    assert (recipe.solver["rtol"], recipe.solver["atol"]) == (0.1, 0.1)
    assert main([*WORDS, "--out", str(tmp_path / "again")]) == 0
    shown = capsys.readouterr()
    assert f"finished {tmp_path / 'again'}: test accuracy" in shown.out
    ends = [
        line for line in shown.err.splitlines() if "  batch " not in line and not line.startswith("training begins")
    ]  # a busy machine also says how far an epoch is
    assert [line.split("  ")[0] for line in ends] == ["epoch 1/2", "epoch 2/2"]
    assert "\x1b" not in shown.err
    assert "NFE" in shown.err
    assert lasting_lines(Run(tmp_path / "again")) == lasting_lines(run)


def test_print_config_shows_the_resolved_recipe_and_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Run) -> None:
    assert main([*WORDS, "--out", str(tmp_path / "new"), "--print-config"]) == 0
    shown = capsys.readouterr().out
    assert yaml.safe_load(shown) == yaml.safe_load(run.config.read_text("utf-8"))
    assert not (tmp_path / "new").exists()


def test_without_out_the_folder_is_named_after_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(Training, "fit", lambda self: {"test_accuracy": 0.5})
    monkeypatch.setenv("CONTINUA_RUNS", str(tmp_path / "all"))
    monkeypatch.setattr("continua.cli.train._say", lambda folder, result: None)
    assert main(WORDS) == 0
    (made,) = (tmp_path / "all").iterdir()
    assert made.name.startswith("dcn_ode-digits-seed0-")
    assert run.result is not None
    assert made.name.endswith(run.result["identity"][:8])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--recipe", "demo", "--optimisr.lr", "3"], "unknown option '--optimisr.lr'; did you mean --optimiser.lr?"),
        (["--recipe", "demo", "--epoch", "3"], "did you mean --epochs?"),
        (["--recipe", "demo", "--lr", "3"], "did you mean --optimiser.lr?"),
        (["--recipe", "demo", "--epochs", "many"], "epochs"),
        (["--recipe", "dmo"], "did you mean demo?"),
        (["--recipe", "demo", "--model", "dcn_oed"], "did you mean dcn_ode"),
        (["--recipe", "demo", "--augmentation.flip", "perhaps"], "augmentation.flip"),
        (["--epochs", "3"], "give either --recipe"),
        (["--recipe", "demo", "--resume", "x"], "give either --recipe"),
        (["--resume", "nowhere"], "is not a run"),
        (["--resume", "nowhere", "--epochs", "3"], "--epochs cannot be changed"),
        (["--recipe", "demo", "--device", "gpu"], "expected auto, cpu, cuda, mps, xpu"),
        (["--recipe", "demo", "--progress", "loud", "--out", "{tmp}"], "expected auto, bar, lines or off"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in failed(capsys, "train", *(word.replace("{tmp}", str(tmp_path / "run")) for word in words))


def test_an_interrupted_training_says_how_to_go_on_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    step, folder = Training._train_batch, tmp_path / "run"

    def signalled(self: Training, batch: Any) -> bool:
        if self.step == 1:
            signal.raise_signal(signal.SIGTERM)
        return step(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_train_batch", signalled)
        with pytest.raises(SystemExit) as ended:
            main([*WORDS, "--out", str(folder)])
    assert ended.value.code == 128 + signal.SIGTERM
    assert capsys.readouterr().out.endswith(f"go on with: continua train --resume {folder}\n")
    assert "--resume" in failed(capsys, *WORDS, "--out", str(folder))
    assert main(["train", "--resume", str(folder), "--threads", "1", "--progress", "off"]) == 0
    assert lasting_lines(Run(folder)) == lasting_lines(run)
    assert "is finished" in failed(capsys, "train", "--resume", str(folder))


def test_evaluate_shows_a_table_and_writes_json(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run.folder), "--tolerance", "0.5", "--out", str(tmp_path / "found.json")]) == 0
    shown, found = capsys.readouterr().out, json.loads((tmp_path / "found.json").read_text())
    assert f"{found['top1']:.2%}" in shown, "fractions are shown in per cent"
    assert "most often taken for" in shown
    assert (found["data"], found["split"], found["images"], found["tolerance"]) == ("digits", "test", 359, 0.5)
    assert main(["evaluate", str(run.folder), "--device", "cpu"]) == 0
    assert "None" not in capsys.readouterr().out, "a tolerance that was not asked for is not shown"
    own = json.loads((run.folder / "evaluation-digits-test.json").read_text())
    assert own["top1"] == pytest.approx((run.result or {})["test_accuracy"])
    assert sum(own["nfe"]) > sum(found["nfe"]), "a tighter tolerance costs more evaluations"


def test_a_tolerance_solves_fixed_steps_adaptively_as_it_does_for_analyses(tmp_path: Path) -> None:
    fixed = train(tiny_recipe(epochs=1, per_class=2), tmp_path / "fixed", QUIET).folder
    assert main(["evaluate", str(fixed), "--tolerance", "0.1", "--device", "cpu"]) == 0
    assert main(["evaluate", str(fixed), "--tolerance", "1e-4", "--device", "cpu"]) == 0
    loose, tight = (json.loads((fixed / f"evaluation-digits-test-tolerance{value}.json").read_text("utf-8")) for value in ("0.1", "0.0001"))
    assert sum(tight["nfe"]) > sum(loose["nfe"])


def test_evaluate_refuses_what_has_no_meaning(tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Run) -> None:
    plain = train(tiny_recipe(epochs=1, per_class=2, model="resnet_blocks", model_options=dict(channels=[4, 8])), tmp_path / "plain", QUIET)
    assert "has no effect" in failed(capsys, "evaluate", str(plain.folder), "--tolerance", "0.1")
    assert "is not a run" in failed(capsys, "evaluate", str(tmp_path))
    assert "unknown split of digits 'val'" in failed(capsys, "evaluate", str(run.folder), "--split", "val")


def test_help_explains_every_field_of_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    _, _, fields = shown.partition("fields of the recipe")
    explained = {part.split()[0]: part for part in fields.split(" --") if "(type:" in part}
    assert {name for name, _ in recipe_fields()} <= {name.replace("-", "_") for name in explained}
    assert "images per update, over all ranks [128] (type: int)" in explained["batch-size"]
    assert not [part for part in explained.values() if part.split("(type:")[0].split()[-1].isupper()], "a name and its type, and no words"


def test_a_network_whose_head_reads_norms_of_single_channels_is_remarked_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The default of 32 groups is made for up to 128 channels; with 8 of them a newcomer's loss stayed at log(classes)."""
    words = [*WORDS, "--epochs", "1", "--per-class", "2"]
    assert main([*words, "--model-options.norm_groups", "32", "--out", str(tmp_path / "single")]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert "8 groups of one channel each" in line
    assert line.endswith("--model-options.norm_groups 2")
    assert main([*words, "--model-options.norm_groups", "2", "--out", str(tmp_path / "pairs")]) == 0
    assert "note: " not in capsys.readouterr().err
    assert main([*words, "--model-options.norm_groups", "channels", "--out", str(tmp_path / "wanted")]) == 0
    assert "note: " not in capsys.readouterr().err


@pytest.mark.parametrize("model", [name for name in list_models() if name.startswith(("dcn", "odenet", "resnet_", "res_ode", "ode_only"))])
def test_networks_as_published_are_not_remarked_on(model: str) -> None:
    assert remarks(create_model(model)) == []
