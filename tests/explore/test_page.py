"""The page from top to bottom, without a browser: every panel for every kind of network, and the first use of a demo network."""

import shutil
import sys
from pathlib import Path

import pytest
import streamlit as st
from exploring import make_run
from streamlit.testing.v1 import AppTest

from continua import explore
from continua.explore import frame
from continua.explore.demo_networks import demos

PAGE = Path(explore.__file__).with_name("page.py")


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs the page with the words of a command line."""
    monkeypatch.setattr(frame, "demos", lambda: demos(tmp_path / "cache", {"epochs": 1, "per_class": 2, "test_every": 0}))
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


@pytest.mark.slow
def test_without_a_run_the_demo_network_is_trained_once(opened) -> None:
    app = opened()
    assert not app.exception
    assert "evaluations of f (" in words(app)
    assert app.selectbox(key="network").value == "demo: DCN-ODE"
    folders = [demo.folder for demo in frame.demos() if demo.ready]
    assert len(folders) == 1
    stamp = (folders[0] / "result.json").stat().st_mtime
    app.run()
    assert (folders[0] / "result.json").stat().st_mtime == stamp
