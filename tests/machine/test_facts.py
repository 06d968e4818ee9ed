"""Whether torch.compile works is tried in a child, kept, and never believed."""

import sys
from pathlib import Path

import pytest

from continua.machine import asking, facts
from continua.machine.facts import Inductor, ask_inductor_again, inductor, known_inductor
from continua.machine.number_types import STAND_IN

READY = "import os, signal, time\nprint('continua-probe {\"ready\": true}', flush=True)\n"


@pytest.fixture(autouse=True)
def unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(STAND_IN, raising=False)
    monkeypatch.setattr(facts, "compilers", lambda: {"g++": "g++ 1.0"})
    monkeypatch.setattr(facts, "BUILD_SECONDS", 1.0)
    monkeypatch.setattr(asking, "PROBE", tmp_path / "probe.py")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the probe died (SIGSEGV)"),
        ("time.sleep(60)", "the probe hung: silent for 1 s"),
        ('print(\'continua-probe {"fault": "a small function was wrong by 9%"}\')', "a small function was wrong by 9%"),
    ],
)
def test_a_build_that_fails_is_not_to_be_used(lines: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(READY + lines)
    assert known_inductor() is None
    assert inductor() == Inductor(False, reason)
    (tmp_path / "probe.py").unlink()
    assert inductor() == known_inductor() == Inductor(False, reason), "kept"


def test_a_build_that_succeeds_is_kept(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(READY + "print('continua-probe {\"fault\": null}')")
    assert inductor().works
    (tmp_path / "probe.py").unlink()
    assert inductor().works
    assert not ask_inductor_again().works, "asked again, and there is no answer"


def test_without_a_compiler_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(facts, "compilers", dict)
    assert inductor() == ask_inductor_again() == Inductor(False, "it needs a C++ compiler, and there is none")


@pytest.mark.parametrize(("said", "works"), [("broken", False), ("works", True), ("limited", True), ("inductor=broken", False)])
def test_the_stand_in_decides(said: str, works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STAND_IN, said)
    assert inductor().works is ask_inductor_again().works is works
