"""Run folders from anyone: nothing outside them is read or written, and damage in them is named, passed over or healed."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from training import QUIET, lasting_lines, tiny_recipe, weights

from continua.cli import main
from continua.errors import ContinuaError, ContinuaWarning
from continua.explore.network import known_runs
from continua.files import ForeignFile
from continua.runs import Run, RunIndex, RunView
from continua.train import Interrupted, resume, train
from continua.train.loop import Training

SHORT = dict(epochs=2, per_class=4)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny_recipe(**SHORT), tmp_path_factory.mktemp("strangers") / "finished", QUIET)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose first epoch is saved."""
    folder = tmp_path_factory.mktemp("strangers") / "interrupted"
    with pytest.MonkeyPatch.context() as patch:
        step = Training._train_batch
        patch.setattr(Training, "_train_batch", lambda self, batch: step(self, batch) or self.step == 2)
        with pytest.raises(Interrupted):
            train(tiny_recipe(**SHORT), folder, QUIET)
    return Run(folder)


def copy_of(run: Run, tmp_path: Path) -> Run:
    return Run(shutil.copytree(run.folder, tmp_path / "run"))


# --- links --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [".result.json.part", ".environment.json.part", "metrics.jsonl", "log.txt", ".lock", "checkpoints", "best", "environment.json"],
)
def test_resuming_a_run_with_links_in_it_leaves_what_they_lead_to_alone(name: str, interrupted: Run, tmp_path: Path) -> None:
    run, victim = copy_of(interrupted, tmp_path), tmp_path / "victim"
    place = run.folder / name
    if name in ("checkpoints", "best"):
        shutil.copytree(place, victim) if place.is_dir() else victim.mkdir()
        shutil.rmtree(place, ignore_errors=True)
    else:
        victim.write_bytes(place.read_bytes() if place.exists() else b"precious\n")
        place.unlink(missing_ok=True)
    place.symlink_to(victim)
    before = {path: path.read_bytes() for path in [victim, *victim.rglob("*")] if path.is_file()}
    listed = sorted(victim.rglob("*"))
    if name.endswith(".part"):  # a name that is only ever written: the link is taken away
        resume(run.folder, QUIET)
    elif name == "environment.json":
        with pytest.warns(ContinuaWarning, match=r"environment\.json is a link"):
            resume(run.folder, QUIET)
    else:
        with pytest.raises(ContinuaError, match=rf"{name}.* is a link"):
            resume(run.folder, QUIET)
    assert sorted(victim.rglob("*")) == listed
    assert {path: path.read_bytes() for path in before} == before


def test_a_file_under_two_names_is_not_appended_to(interrupted: Run, tmp_path: Path) -> None:
    run, victim = copy_of(interrupted, tmp_path), tmp_path / "victim"
    victim.write_bytes(run.metrics.read_bytes())
    run.metrics.unlink()
    os.link(victim, run.metrics)
    before = victim.read_bytes()
    with pytest.raises(ForeignFile, match=r"metrics\.jsonl is one file under 2 names"):
        resume(run.folder, QUIET)
    assert victim.read_bytes() == before


def test_a_pipe_in_place_of_a_file_is_not_waited_for(finished: Run, tmp_path: Path) -> None:
    run = copy_of(finished, tmp_path)
    run.metrics.unlink()
    os.mkfifo(run.metrics)
    with pytest.raises(ContinuaError, match="pipe or a device"):
        run.lines()


def test_weights_of_a_run_are_read_from_its_own_folder_only(finished: Run, tmp_path: Path) -> None:
    run = copy_of(finished, tmp_path)
    shutil.rmtree(run.best)
    run.best.symlink_to(finished.best)
    with pytest.raises(ForeignFile, match="best is a link"):
        _ = RunView(run.folder).network


def test_the_folder_itself_may_be_reached_by_a_link(interrupted: Run, finished: Run, tmp_path: Path) -> None:
    run = copy_of(interrupted, tmp_path)
    (tmp_path / "short").symlink_to(run.folder)
    resume(tmp_path / "short", QUIET)
    assert lasting_lines(run) == lasting_lines(finished)


# --- damage -------------------------------------------------------------------------------------------------------------

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda data: data[: len(data) // 2],
    "zeroed": lambda data: bytes(len(data)),
    "empty": lambda data: b"",
    "binary": lambda data: random.Random(0).randbytes(500),
    "deep": lambda data: b"[" * 3000 + b"]" * 3000 + b"\n",
    "list": lambda data: b"[1, 2]\n",
    "latin-1": lambda data: b'{"a": "\xe9"}\n',
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["result.json", "environment.json", "metrics.jsonl"])
def test_a_damaged_file_of_an_interrupted_run_does_not_keep_it_from_going_on(
    name: str, damage: str, interrupted: Run, finished: Run, tmp_path: Path
) -> None:
    run = copy_of(interrupted, tmp_path)
    path = run.folder / name
    path.write_bytes(DAMAGE[damage](path.read_bytes() if path.exists() else finished.result_file.read_bytes()))
    with pytest.warns(ContinuaWarning, match=name):
        resume(run.folder, QUIET)
    assert lasting_lines(run) == lasting_lines(finished)
    assert all(torch.equal(value, weights(finished)[key]) for key, value in weights(run).items())
    assert run.result is not None
    assert run.machine


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "result.json", "environment.json"])
@pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
def test_no_flipped_bit_is_a_traceback(name: str, finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, draw = copy_of(finished, tmp_path), random.Random(7)
    path = run.folder / name
    whole = path.read_bytes()
    for _ in range(60):
        data = bytearray(whole)
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        assert main(["report", str(run.folder), "--out", str(tmp_path / "page.html")]) in (0, 2)
        RunIndex(tmp_path)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("change", ["no net", "wrong type", "other shape", "numbers as text", "nothing"])
def test_a_forged_checkpoint_is_an_error_that_names_it(change: str, interrupted: Run, tmp_path: Path) -> None:
    from continua.train.checkpoint import checkpoints, read_checkpoint, save_checkpoint

    run = copy_of(interrupted, tmp_path)
    states = {int(path.stem[5:]): read_checkpoint(path) for path in checkpoints(run.checkpoints)}
    for step, state in states.items():
        forged = {
            "no net": {key: value for key, value in state.items() if key != "net"},
            "wrong type": {**state, "optimiser": [1, 2]},
            "other shape": {**state, "net": {key: torch.zeros(3) for key in state["net"]}},
            "numbers as text": {**state, "epoch": "1"},
            "nothing": {"identity": state["identity"]},
        }[change]
        save_checkpoint(run.checkpoints, step, forged)
    with pytest.raises(ContinuaError, match=r"checkpoint .*step-\d+\.pt does not hold the state of this training"):
        resume(run.folder, QUIET)


def test_a_compressed_checkpoint_is_not_unpacked(tmp_path: Path) -> None:
    import hashlib
    import zipfile

    from continua.train.checkpoint import CheckpointError, read_checkpoint

    path = tmp_path / "step-000000001.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(10_000_000))
    path.with_suffix(".sha256").write_text(hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(CheckpointError, match="compressed"):
        read_checkpoint(path)


# --- one bad folder among many -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"\xff\xfe", b"model: [", b"[1]", b"data: null\n", b"seed: 1e400\n"])
def test_a_bad_folder_is_passed_over_and_named(content: bytes, finished: Run, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(finished.folder, runs / "good")
    (runs / "bad").mkdir()
    (runs / "bad" / "config.yaml").write_bytes(content)
    with pytest.warns(ContinuaWarning, match=r"bad.* is passed over"):
        index = RunIndex(runs)
    assert [run.folder.name for run in index.known.values()] == ["good"]
    assert [folder.name for folder in index.skipped] == ["bad"]


@pytest.mark.filterwarnings("always::continua.ContinuaWarning")
def test_lists_of_studies_and_sweeps_are_shown_beside_bad_folders(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    for name, content in (("binary", b"\x00"), ("empty", b"")):
        (runs / name).mkdir(parents=True)
        (runs / name / "config.yaml").write_bytes(content)
    shutil.copytree(finished.folder, runs / "torn")
    (runs / "torn" / "result.json").write_bytes(b'{"identity": ')
    (tmp_path / "sweep.yaml").write_text("recipes: [demo]\nseeds: 2\n")
    for words in (["sweep", str(tmp_path / "sweep.yaml"), "--status"], ["reproduce", "dcn/fig4a", "--list"]):
        assert main([*words, "--runs", str(runs)]) == 0
        said = capsys.readouterr()
        assert said.out
        for name in ("binary is passed over", "empty is passed over", "torn/result.json cannot be read"):
            assert name in said.err, words
    assert [folder.name for folder in known_runs(runs)] == ["torn"], "its weights can be looked at"


# --- a folder that moves ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["_train_batch", "_save", "_finish"])
@pytest.mark.parametrize("how", ["renamed", "removed"])
def test_a_run_whose_folder_goes_away_stops_and_says_so(how: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a line of metrics is written, before a checkpoint after it, and when only weights and result are left to write."""
    work, folder = getattr(Training, when), tmp_path / "run"

    def disturbed(self: Training, *given: object) -> object:
        if self.step >= 3 and folder.exists():
            folder.rename(tmp_path / "moved") if how == "renamed" else shutil.rmtree(folder)
        return work(self, *given)

    monkeypatch.setattr(Training, when, disturbed)
    with pytest.raises(ContinuaError, match=r"run was moved, renamed or removed while it was being trained in"):
        train(tiny_recipe(**SHORT), folder, QUIET)
    assert not folder.exists(), "the old place is not made again"
    monkeypatch.undo()
    if how == "renamed":
        resume(tmp_path / "moved", QUIET)
        assert Run(tmp_path / "moved").result is not None


# --- identities by tensors ---------------------------------------------------------------------------------------------------


def test_a_decoder_that_an_earlier_version_finished_is_found_and_gone_on_with(finished: Run, tmp_path: Path) -> None:
    """Then an encoder was known by the bytes of its file; now by its tensors."""
    from continua.runs import identities, identity, load_recipe, resolve

    recipe = resolve(load_recipe("reconstruction", {"encoder": str(finished.folder), "data": "digits", "epochs": 1}))
    today, former = identities(recipe)
    assert today == identity(recipe) != former
    run = Run(tmp_path / "decoder")
    run.create(recipe)
    run.write_json(run.result_file, {"identity": former})
    found = RunIndex(tmp_path).find(recipe)
    assert found is not None
    assert found.folder == run.folder


def test_an_answer_that_an_earlier_version_kept_is_not_asked_again(finished: Run, tmp_path: Path) -> None:
    from continua.analysis import answer, find_question, subject_of
    from continua.analysis.answers import answer_key

    run = copy_of(finished, tmp_path)
    question, subjects = find_question("scales"), [subject_of(run.folder, device="cpu", quiet=True)]
    first = answer(question, subjects, pictures=())
    first.folder.rename(first.folder.with_name(answer_key(question, subjects, question.Options(), former=True)))
    again = answer(question, subjects, pictures=())
    assert not again.fresh


def test_what_a_failing_disk_left_beside_an_answer_goes_when_the_answer_is_read(finished: Run, tmp_path: Path) -> None:
    from continua.analysis import answer, find_question, subject_of

    run = copy_of(finished, tmp_path)
    question, subjects = find_question("scales"), [subject_of(run.folder, device="cpu", quiet=True)]
    first = answer(question, subjects, pictures=())
    leftover = first.folder.parent / f".{first.folder.name}.abcd1234"
    (leftover / "new").mkdir(parents=True)
    assert not answer(question, subjects, pictures=()).fresh
    assert not leftover.exists()
