"""What `continua demo` says last: the line to type next."""

from pathlib import Path

import pytest

from continua.demo.run import MODELS, _next_line


def test_make_demo_ends_with_make_explore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])  # the clone
    assert _next_line(Path("runs/demo")) == "make explore"


def test_elsewhere_the_line_names_the_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = _next_line(Path("my runs"))
    assert line.startswith("continua explore 'my runs/dcn_ode'")
    assert len(MODELS) == line.count("my runs")
