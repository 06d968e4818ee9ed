"""Fuzzing: whatever a file holds, the answer is its data or a `ContinuaError`, soon and in bounded memory.

.venv/bin/python scripts/fuzz.py --inputs 10000   (250 of each kind in `make test`)
"""

import functools
import io
import shutil
import tarfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from fuzzing import VALUES, changed, fuzzed, only_our_errors
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from training import QUIET, tiny_recipe

from continua.analysis.trainings import runs_page
from continua.data.fetch import unpack
from continua.data.image_folder import read_rgb
from continua.explore.image import read_upload
from continua.models import create_model, from_pretrained
from continua.runs import Run, RunIndex, RunView, load_recipe, recipe_fields, recipe_names, resolve, write_yaml
from continua.train import train
from continua.train.checkpoint import CheckpointError, load_last_checkpoint

FIELDS = [name for name, _ in recipe_fields()]
MODEL_OPTIONS = ["channels", "order", "solver", "norm_groups", "num_classes", "in_channels", "t1", "stages", "growth", "steps", "evolution"]
pytestmark = pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")


def nested(name: str, value: Any) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    return value


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny_recipe(epochs=1, per_class=2, batch_size=8), tmp_path_factory.mktemp("fuzz") / "run", QUIET)


# --- recipes ------------------------------------------------------------------------------------------------------------


@fuzzed("recipes", 0.4)
@given(name=st.sampled_from(FIELDS), value=VALUES, base=st.sampled_from(["demo", "dcn", "rknet_cifar"]))
def test_a_recipe_with_any_value_in_any_field(name: str, value: Any, base: str, tmp_path: Path) -> None:
    assert base in recipe_names()
    path = tmp_path / "r.yaml"
    text = yaml.safe_dump(load_plain(base) | nested(name, value), allow_unicode=True)
    path.write_text(text, "utf-8", errors="surrogatepass")
    with only_our_errors():
        resolve(load_recipe(path))


@functools.cache
def written(name: str) -> str:
    return write_yaml(load_recipe(name))


@functools.cache
def load_plain(name: str) -> dict[str, Any]:
    data = yaml.safe_load(written(name))
    data.pop("format")
    return data


@fuzzed("recipes", 0.4)
@given(data=st.data())
def test_a_recipe_with_damaged_bytes(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(changed(written("demo").encode(), data.draw))
    with only_our_errors():
        resolve(load_recipe(path))


@fuzzed("recipes", 0.2)
@given(
    name=st.sampled_from(["dcn_ode", "erknet", "resnet4_anodev2_c1", "resnet_blocks"]), option=st.sampled_from(MODEL_OPTIONS), value=VALUES
)
def test_a_network_of_any_options(name: str, option: str, value: Any) -> None:
    from continua.models import buildable

    small = {"dcn_ode": {"channels": [4]}, "resnet_blocks": {"channels": [4]}}.get(name, {})
    with only_our_errors(), buildable(name, "fuzzed"):
        create_model(name, **{**small, option: value})


# --- run folders ----------------------------------------------------------------------------------------------------------


@fuzzed("run folders", 0.4)
@given(name=st.sampled_from(["config.yaml", "metrics.jsonl", "result.json", "environment.json"]), data=st.data())
def test_a_run_folder_with_damaged_bytes(name: str, data: st.DataObject, finished: Run, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "run"
    if not folder.exists():
        shutil.copytree(finished.folder, folder)
    whole = (finished.folder / name).read_bytes()
    (folder / name).write_bytes(changed(whole, data.draw))
    try:
        with only_our_errors():
            view = RunView(folder)
            runs_page([view])
            _ = view.environment.get("packages", {}).items()
        with only_our_errors():
            RunIndex(tmp_path / "runs")
    finally:
        (folder / name).write_bytes(whole)


@fuzzed("run folders", 0.3)
@given(name=st.sampled_from(["model.safetensors", "config.json"]), checked=st.booleans(), data=st.data())
def test_weights_with_damaged_bytes(name: str, checked: bool, data: st.DataObject, finished: Run, tmp_path: Path) -> None:
    folder = tmp_path / "best"
    shutil.copytree(finished.best, folder, dirs_exist_ok=True)
    config = (folder / "config.json").read_text()
    if not checked:
        (folder / "config.json").write_text(config.replace("weights_sha256", "unknown"))
    (folder / name).write_bytes(changed((folder / name).read_bytes(), data.draw))
    with only_our_errors():
        from_pretrained(folder)


@fuzzed("run folders", 0.3)
@given(data=st.data(), forged=st.booleans())
def test_checkpoints_with_damaged_bytes(data: st.DataObject, forged: bool, finished: Run, tmp_path: Path) -> None:
    import hashlib

    folder = tmp_path / "checkpoints"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(finished.checkpoints, folder)
    for path in folder.glob("*.pt"):
        path.write_bytes(changed(path.read_bytes(), data.draw))
        if forged:
            path.with_suffix(".sha256").write_text(hashlib.sha256(path.read_bytes()).hexdigest())
    with only_our_errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            load_last_checkpoint(folder)
        except CheckpointError:
            return


# --- images and archives ----------------------------------------------------------------------------------------------------


def picture(kind: str) -> bytes:
    file = io.BytesIO()
    Image.effect_noise((20, 12), 40).convert("RGB").save(file, kind)
    return file.getvalue()


PICTURES = {kind: picture(kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "EPS", "ICO", "TGA")}


@fuzzed("images")
@given(kind=st.sampled_from(sorted(PICTURES)), data=st.data())
@pytest.mark.filterwarnings("ignore")
def test_images_with_damaged_bytes(kind: str, data: st.DataObject, tmp_path: Path) -> None:
    content = changed(PICTURES[kind], data.draw)
    (tmp_path / "x.png").write_bytes(content)
    with only_our_errors():
        read_rgb(tmp_path / "x.png")
    with only_our_errors():
        read_upload(content, "x.png")


def archive(kind: str, names: list[str]) -> bytes:
    file = io.BytesIO()
    if kind == "zip":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # names that are there twice
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as pack:
                for name in names:
                    pack.writestr(name, b"contents" * 20)
    else:
        with tarfile.open(fileobj=file, mode="w:gz") as pack:
            for name in names:
                entry = tarfile.TarInfo(name)
                entry.size = 160
                pack.addfile(entry, io.BytesIO(b"contents" * 20))
    return file.getvalue()


@fuzzed("archives")
@given(
    kind=st.sampled_from(["zip", "tar.gz"]),
    names=st.lists(st.sampled_from(["set/a", "set/b/c", "set/../../x", "/x", "set", "other/x", "set/\\x"]), min_size=1, max_size=4),
    damaged=st.booleans(),
    data=st.data(),
)
def test_archives_of_any_names_and_damaged_bytes(kind: str, names: list[str], damaged: bool, data: st.DataObject, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    content = archive(kind, names)
    (root / f"a.{kind}").write_bytes(changed(content, data.draw) if damaged else content)
    with only_our_errors():
        unpack(root / f"a.{kind}", root, "set")
    assert {path.name for path in tmp_path.iterdir()} == {"root"}, "nothing outside"
    assert {path.name for path in root.iterdir()} <= {f"a.{kind}", "set"}, "all of it or nothing"
