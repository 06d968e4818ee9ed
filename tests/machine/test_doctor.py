"""`continua doctor`: one screen, no names of people, exit code 1 if something is broken."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from continua.cli import main
from continua.cli.doctor import one_screen
from continua.machine import facts
from continua.machine.asking import Reply
from continua.machine.number_types import STAND_IN


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home and a working folder of its own; probes that answer at once."""
    home = tmp_path / "home" / "ada"
    (home / "here").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CACHE_HOME", "CONTINUA_DATA", "CONTINUA_RUNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(STAND_IN, "works")
    monkeypatch.chdir(home / "here")


def doctor(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    try:
        code = main(["doctor", *words])
    except SystemExit as end:
        code = int(str(end.code))
    return code, capsys.readouterr().out


def examined(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code, text = doctor(capsys, "--json", *words)
    return code, json.loads(text)


def test_one_screen_says_what_there_is_and_what_follows(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = doctor(capsys)
    assert code == 0, text
    assert len(text.splitlines()) <= 40
    names = "cpu features cores memory gpus torch float32 bfloat16 float16 compilers inductor packages folders"
    for name in [*names.split(), "oneDNN limit", "data sets", "precision auto", "What Continua will therefore do", "Nothing is broken."]:
        assert name in text
    assert "digits (embedded)" in text


def test_nobody_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words in ([], ["--json"]):
        text = doctor(capsys, "--quick", *words)[1]
        assert "ada" not in text.split("What Continua")[0].replace("adaptive", "")
        assert os.uname().nodename not in text.split()
        assert str(tmp_path) not in text


@pytest.mark.parametrize(
    ("said", "automatic", "asked"),
    [("works", "bfloat16", "computes in"), ("limited", "float32", "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"), ("broken", "float32", "refused")],
)
def test_a_failed_probe_is_a_remark_and_changes_what_follows(
    said: str, automatic: str, asked: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setenv(STAND_IN, said)
    monkeypatch.setattr(facts, "gpus", list)
    code, found = examined(capsys, "--quick")
    assert code == 0
    assert found["will"]["precision auto"] == automatic
    assert asked in found["will"]["precision bfloat16"]
    assert any("bfloat16" in remark for remark in found["remarks"]) is (said != "works")


@pytest.mark.parametrize(("words", "variable"), [(["--runs", "closed/runs"], "CONTINUA_RUNS"), ([], "XDG_CACHE_HOME")])
def test_a_folder_that_cannot_be_written_is_broken(
    words: list[str], variable: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("closed").write_text("no folder")
    if variable == "XDG_CACHE_HOME":
        monkeypatch.setenv(variable, str(Path("closed").absolute()))
    code, found = examined(capsys, "--quick", *words)
    assert code == 1
    assert any("cannot be written" in fault and variable in fault for fault in found["broken"])


def test_wrong_float32_is_broken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "ask_child", lambda question: Reply(None, "the probe died (SIGILL)"))
    code, text = doctor(capsys)
    assert code == 1
    assert "Broken\n  - float32 does not work: the probe died (SIGILL)" in text


def test_a_read_only_data_folder_is_a_remark(capsys: pytest.CaptureFixture[str]) -> None:
    Path("closed").write_text("no folder")
    code, found = examined(capsys, "--quick", "--data-dir", "closed/data")
    assert code == 0
    assert any("read only" in remark for remark in found["remarks"])


def test_what_is_missing_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "OPTIONAL", {"no-such-package": "continua sing"})
    monkeypatch.setenv(STAND_IN, "inductor=broken,bfloat16=works,float16=works")
    _, found = examined(capsys, "--quick")
    assert "no-such-package is not installed: no continua sing" in found["remarks"]
    assert any("torch.compile does not work" in remark for remark in found["remarks"])
    assert "aot_eager" in found["will"]["torch.compile"]


def test_a_machine_with_gpus_computes_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "gpus", lambda: [{"name": "Card", "memory": 8 << 30, "bfloat16": False}] * 2)
    _, found = examined(capsys, "--quick")
    assert found["will"]["device auto"] == "cuda, 2 GPUs"
    assert facts.consequences(found)["precision auto"] == "float32"
    assert "Card (8.6 GB), Card (8.6 GB)" in one_screen(found)


def test_kernels_that_do_not_run_are_a_remark(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("continua.native.kernels_text", lambda: "none: CONTINUA_NATIVE=quantum, which is none of these")
    _, found = examined(capsys, "--quick")
    assert any("quantum" in remark and "slower" in remark for remark in found["remarks"])
    assert "N-jets" not in found["will"]["filters in bfloat16"]
