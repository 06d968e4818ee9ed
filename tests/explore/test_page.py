"""The page from top to bottom, without a browser: every panel for every kind of network, and the first use of a demo network."""

import io
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import streamlit as st
import torch
from exploring import make_run
from PIL import Image
from streamlit.testing.v1 import AppTest

from continua import explore
from continua.explore import answers, frame, lens
from continua.explore.demo_networks import demos

PAGE = Path(explore.__file__).with_name("page.py")


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs the page with the words of a command line."""
    monkeypatch.setattr(frame, "demos", lambda: demos(tmp_path / "cache", {"epochs": 1, "per_class": 2, "test_every": 0}))
    monkeypatch.setattr(answers, "PATIENCE", 100.0)  # a busy machine must not show "computing" where answers are looked for
    st.cache_resource.clear()

    def run(*folders: Path) -> AppTest:
        monkeypatch.setattr(sys, "argv", [str(PAGE), *map(str, folders), f"--runs={tmp_path / 'none'}"])
        return AppTest.from_file(str(PAGE), default_timeout=120).run()

    return run


def words(app: AppTest) -> str:
    return "\n".join(str(part.value) for kind in ("markdown", "caption", "info", "warning", "error") for part in getattr(app, kind))


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("dcn_ode", {}),
        ("resnet4_anodev2_c1", {"channels": [4]}),
        ("resnet_blocks", {"channels": [4, 6], "norm_groups": 2, "stem_padding": 1}),
    ],
)
def test_every_panel_shows_every_kind_of_network(opened, tmp_path: Path, model: str, options: dict) -> None:
    app = opened(make_run(tmp_path / "run", model, **options))
    assert not app.exception
    assert "12.5%" in words(app)
    for panel in frame.PANELS:
        app.segmented_control(key="panel").set_value(panel).run()
        assert not app.exception, panel
        assert "paper" in words(app), "each panel names its figure"
    no_solver = "no ODE block" in words(app)
    assert no_solver == (model == "resnet_blocks")


def test_a_spoilt_run_is_one_sentence_on_the_page(opened, tmp_path: Path) -> None:
    spoilt = make_run(tmp_path / "run")
    shutil.rmtree(spoilt / "best")
    app = opened(spoilt)
    assert not app.exception
    assert "has no weights in best/" in words(app)


def test_the_list_of_networks_tells_them_apart(opened, tmp_path: Path) -> None:
    app = opened(make_run(tmp_path / "first"), make_run(tmp_path / "second", "resnet4_anodev2_c1", channels=[4]))
    labels = app.selectbox(key="network").options
    assert labels[0].startswith("DCN-ODE · digits · 12.5% · ")
    assert labels[0].endswith("/first")
    assert labels[-1] == "demo: ANODEV2 (to be trained first)"


def test_comparing_offers_to_train_a_demo_network_and_does_not_begin_by_itself(opened, tmp_path: Path) -> None:
    app = opened(make_run(tmp_path / "run"))
    app.segmented_control(key="panel").set_value("Compare").run()
    assert not app.exception
    assert "Train it now" in [button.label for button in app.button]
    assert not list(tmp_path.glob("cache/*"))


def test_a_picture_that_is_no_digit_is_told_so(opened, tmp_path: Path) -> None:
    app = opened(make_run(tmp_path / "run"))
    assert "unlike the images" not in words(app)
    noise, file = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8), io.BytesIO()
    Image.fromarray(noise).save(file, "PNG")
    app.radio(key="image-source").set_value("your own").run()
    app.file_uploader(key="image-file").upload("noise.png", file.getvalue(), "image/png").run()
    assert not app.exception
    assert "unlike the images that the network was trained on" in words(app)


def test_a_slow_answer_leaves_the_page_usable_and_can_be_stopped(opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = opened(make_run(tmp_path / "run"))
    monkeypatch.setattr(answers, "PATIENCE", 0.0)
    monkeypatch.setattr(answers, "ABANDONED", 1000.0)
    monkeypatch.setattr(lens, "outcome", lambda *_, **__: endless())
    app.slider(key=next(slider.key for slider in app.slider if str(slider.key).startswith("image-place"))).set_value(5).run()
    assert not app.exception
    assert "computing" in words(app)
    app.button(key="computing-stop").click().run()
    assert "Stopped after" in words(app)
    monkeypatch.undo()


def endless() -> None:
    while True:
        torch.zeros(1).add(1)
        time.sleep(0.01)


@pytest.mark.slow
def test_without_a_run_the_demo_network_is_trained_when_asked_and_once(opened) -> None:
    app = opened()
    assert not app.exception
    assert not [demo for demo in frame.demos() if demo.folder.exists()]
    app.button(key="train-demo: DCN-ODE").click().run()
    while not any(demo.ready for demo in frame.demos()):
        time.sleep(0.5)
    app = opened()
    assert "could not be trained" not in words(app)
    assert "evaluations of f (" in words(app)
    assert app.selectbox(key="network").value == "demo: DCN-ODE"
    folders = [demo.folder for demo in frame.demos() if demo.ready]
    assert len(folders) == 1
    stamp = (folders[0] / "result.json").stat().st_mtime
    app.run()
    assert (folders[0] / "result.json").stat().st_mtime == stamp
