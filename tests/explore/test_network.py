"""Which network: runs, folders of weights, what is damaged or foreign, and that nothing in a folder is executed."""

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from exploring import SMALL, make_run

from continua import ConfigError, ContinuaError, ContinuaWarning, create_model
from continua.explore.demo_networks import DemoTraining, demos
from continua.explore.network import known_runs, open_run


def test_a_run_opens_with_its_images_and_classes(tmp_path: Path) -> None:
    found = open_run(make_run(tmp_path / "run"))
    assert found.shape == (1, 8, 8)
    assert found.classes == tuple("0123456789")
    assert len(found.pictures) == 200
    assert found.absent == ""
    assert "12.5%" in found.about


def test_the_pictures_are_the_data_sets_own_with_their_labels(tmp_path: Path) -> None:
    from continua.data import load

    found = open_run(make_run(tmp_path / "run"))
    test = load("digits")["test"]
    bytes_of = {image.numpy().tobytes(): int(label) for image, label in zip(test.images, test.labels, strict=True)}
    for picture in found.pictures[:20]:
        assert str(bytes_of[picture.pixels[..., 0].tobytes()]) == picture.label


def test_weights_alone_open_with_stand_ins(tmp_path: Path) -> None:
    create_model("dcn_ode", **SMALL, num_classes=7).save_pretrained(tmp_path)
    found = open_run(tmp_path)
    assert found.shape == (3, 32, 32)
    assert found.classes == tuple(f"class {k}" for k in range(7))
    assert "stand in" in found.absent


def test_a_run_whose_data_are_not_here_opens_with_stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTINUA_DATA", str(tmp_path / "nothing"))
    folder = make_run(tmp_path / "run", "dcn_ode", "digits", in_channels=3, num_classes=10, **SMALL)
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("data: digits", "data: cifar10"))
    found = open_run(folder)
    assert found.shape == (3, 32, 32)
    assert "cifar10 are not here" in found.absent


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda run: shutil.rmtree(run / "best"), "no weights"),
        (lambda run: (run / "best" / "config.json").unlink(), "config.json"),
        (lambda run: (run / "best" / "config.json").write_text("[]"), "not a model configuration"),
        (lambda run: (run / "best" / "model.safetensors").write_bytes(b"not tensors"), "is damaged"),
        (lambda run: (run / "config.yaml").write_text(": ["), "config.yaml"),
        (lambda run: (run / "config.yaml").write_text("shopping: [milk]"), "shopping"),
        (lambda run: (run / "config.yaml").unlink(), "not a run"),
        (lambda run: (run / "metrics.jsonl").write_text("no line of ours\n"), "metrics.jsonl, line 1 cannot be read"),
    ],
)
def test_missing_and_foreign_files_are_said_in_one_sentence(tmp_path: Path, spoil, words: str) -> None:
    run = make_run(tmp_path / "run")
    spoil(run)
    with pytest.raises(ContinuaError, match=words) as error:
        open_run(run)
    assert str(run) in str(error.value)


def test_a_damaged_result_is_named_and_the_network_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "result.json").write_text("{")
    with pytest.warns(ContinuaWarning, match=r"result\.json cannot be read"):
        assert open_run(run).name


def test_a_line_of_metrics_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text("half a li")
    assert open_run(run).name


def forget_checksum(run: Path) -> None:
    """Weights as versions saved them that kept no checksum: what is wrong with them is then seen by their reader."""
    config = json.loads((run / "best" / "config.json").read_text())
    assert config.pop("weights_sha256")
    (run / "best" / "config.json").write_text(json.dumps(config))


def test_a_folder_that_is_none_and_an_empty_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a folder"):
        open_run(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="it is empty"):
        open_run(tmp_path / "empty")


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    run, other = make_run(tmp_path / "run"), make_run(tmp_path / "other", channels=[5, 7], norm_groups=1, stem_padding=1)
    shutil.copy(other / "best" / "model.safetensors", run / "best" / "model.safetensors")
    forget_checksum(run)
    with pytest.raises(ConfigError, match="shape"):
        open_run(run)


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_no_code_of_a_run_is_ever_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, mark = make_run(tmp_path / "run"), tmp_path / "executed"
    monkeypatch.chdir(run)  # even from inside its folder
    for name in ("model.py", "__init__.py", "sitecustomize.py", "best/model.py", "best/modeling_dcn_ode.py"):
        (run / name).write_text(f"import os; os.mkdir({str(mark)!r})")
    for name in ("best/pytorch_model.bin", "best/model.pt", "checkpoints/step-1.pt", "best/model.pkl"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_bytes(pickle.dumps(Bomb(mark)))
    config = run / "best" / "config.json"
    config.write_text(config.read_text().replace('"format": 1', '"format": 1, "auto_map": {"model": "model.py"}, "class_path": "model.X"'))
    open_run(run)
    assert not mark.exists()
    forget_checksum(run)
    (run / "best" / "model.safetensors").write_bytes(pickle.dumps(Bomb(mark)))  # not even under the weights' own name
    with pytest.raises(ConfigError, match="damaged or not safetensors"):
        open_run(run)
    assert not mark.exists()


def test_finished_runs_are_found_and_others_left_out(tmp_path: Path) -> None:
    make_run(tmp_path / "one")
    make_run(tmp_path / "demo" / "two", seed=1)
    shutil.rmtree(make_run(tmp_path / "unfinished", seed=2) / "best")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.yaml").write_text("a: b")
    with pytest.warns(ContinuaWarning, match="foreign is passed over"):
        assert sorted(folder.name for folder in known_runs(tmp_path)) == ["one", "two"]


def test_demo_networks_are_kept_by_their_recipe(tmp_path: Path) -> None:
    first, other = demos(tmp_path), demos(tmp_path, {"epochs": 9})
    assert [demo.recipe.model for demo in first] == ["dcn_ode", "resnet4_anodev2_c1"]
    assert all(a.folder != b.folder for a, b in zip(first, other, strict=True))
    assert [demo.folder for demo in demos(tmp_path)] == [demo.folder for demo in first]
    assert not any(demo.ready for demo in first)


def test_a_training_that_ends_badly_says_why(tmp_path: Path) -> None:
    from dataclasses import replace

    demo = demos(tmp_path)[0]
    training = DemoTraining(replace(demo, recipe=replace(demo.recipe, model="no_such_model")))
    training.start()
    assert training._process is not None
    training._process.wait(120)
    with pytest.raises(ConfigError, match="no_such_model"):
        training.finished()


def test_opening_a_run_leaves_no_gradients_behind(tmp_path: Path) -> None:
    found = open_run(make_run(tmp_path / "run"))
    assert not found.model.training
    with torch.no_grad():
        assert found.model(found.floats(torch.zeros(1, 1, 8, 8, dtype=torch.uint8))).shape == (1, 10)
