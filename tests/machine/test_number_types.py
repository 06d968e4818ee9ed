"""A number type is believed in only after a probe in a child, which may die, hang or lie; asked once, kept, never without need."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from continua.errors import ConfigError
from continua.machine import asking, number_types
from continua.machine.asking import keep_answer, kept_answer
from continua.machine.number_types import LIMIT, STAND_IN, Verdict, ask_again, known_verdict, stand_in, verdict

READY = "print('continua-probe {\"ready\": true}', flush=True)\n"
RIGHT = "print('continua-probe', json.dumps({'flags': {}, 'supported': True, 'fault': None}))\n"
DIES = "os.kill(os.getpid(), signal.SIGILL)\n"
HANGS = "time.sleep(60)\n"
WRONG = "print('continua-probe', json.dumps({'flags': {}, 'supported': True, 'fault': 'a product was wrong by 37%'}))\n"

Faked = Callable[[str], Path]


@pytest.fixture(autouse=True)
def unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that claims everything, on a machine where nothing was asked yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in (STAND_IN, LIMIT, "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(number_types, "_known", {})
    monkeypatch.setattr(number_types, "claims_number_types", lambda: True)


@pytest.fixture
def faked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Faked:
    """A stand-in for probe.py that notes each call in a file and then does what the lines say."""

    def make(lines: str) -> Path:
        calls, script = tmp_path / "calls", tmp_path / "probe.py"
        note = f"import json, os, signal, sys, time\nopen({str(calls)!r}, 'a').write(os.environ.get({LIMIT!r}, 'plain') + ' ')\n"
        script.write_text(note + "limit = os.environ.get('ONEDNN_MAX_CPU_ISA')\n" + READY + lines)
        calls.write_text("")
        monkeypatch.setattr(asking, "PROBE", script)
        monkeypatch.setattr(asking, "SILENT_SECONDS", 1.0)
        return calls

    return make


# --- what a child can do --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (DIES, r"died \(SIGILL, an instruction that this CPU does not carry out\)"),
        (HANGS, "hung: silent for 1 s"),
        (WRONG, "wrong by 37%"),
        ("sys.exit(3)\n", r"without an answer \(exit code 3\)"),
        ("os.kill(os.getpid(), signal.SIGKILL)\n", r"ended from outside \(SIGKILL\)"),
        ("print('continua-probe {nonsense')\nprint('continua-probe [1]')\n", "without an answer"),
    ],
)
def test_a_child_that_dies_hangs_or_is_wrong_means_not_to_be_used(lines: str, reason: str, faked: Faked) -> None:
    calls = faked(lines)
    assert verdict("bfloat16").state == "broken"
    assert re.search(reason, verdict("bfloat16").reason)
    assert calls.read_text().split()[:3] == ["plain", "AVX512_CORE_BF16", "AVX512_CORE"]


def test_lines_that_others_print_do_not_count(faked: Faked) -> None:
    faked("print('onednn_verbose,v1,info')\n" + RIGHT)
    assert verdict("bfloat16") == Verdict("works")


def test_a_limit_under_which_it_works_is_found(faked: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = faked(f"if limit != 'AVX512_CORE_BF16': {DIES}" + RIGHT)
    plain = verdict("bfloat16")
    assert (plain.state, plain.limit) == ("limited", "AVX512_CORE_BF16")
    assert "SIGILL" in plain.reason
    assert LIMIT not in os.environ, "nothing is set behind anybody's back"
    monkeypatch.setenv(LIMIT, "AVX512_CORE_BF16")
    assert verdict("bfloat16").state == "works", "known already, for a process that starts with the limit"
    assert calls.read_text().split() == ["plain", "AVX512_CORE_BF16"]


def test_a_flag_that_is_not_there_needs_no_probe(faked: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = faked(RIGHT)
    monkeypatch.setattr(number_types, "claims_number_types", lambda: False)
    assert verdict("bfloat16").state == ask_again("float16").state == "emulated"
    assert calls.read_text() == ""


def test_no_child_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert "no child process could be started" in verdict("bfloat16").reason


def test_the_real_probe_agrees_with_itself_in_float32() -> None:
    reply = asking.ask_child("float32", seconds=120)
    assert reply.answer is not None
    assert reply.answer["fault"] is None


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_the_real_probe_comes_to_a_verdict(name: str) -> None:
    found = ask_again(name)
    assert found.state in ("works", "limited", "broken", "emulated")
    assert found.state == "works" or found.reason


def test_the_probe_notices_a_wrong_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real cases, with a product that is off in one number of each result."""
    spoilt = asking.PROBE.read_text("utf-8").replace('if __name__ == "__main__":', SPOIL + 'if __name__ == "__main__":')
    (tmp_path / "spoilt.py").write_text(spoilt, "utf-8")
    monkeypatch.setattr(asking, "PROBE", tmp_path / "spoilt.py")
    reply = asking.ask_child("float32", seconds=120)
    assert reply.answer is not None
    assert reply.answer["fault"].startswith("a product of 64×64 by 64×64 in float32 was wrong by")


SPOIL = """
import torch
_mm = torch.mm
def mm(a, b):
    spoilt = _mm(a, b)
    return spoilt + torch.eye(*spoilt.shape, dtype=a.dtype) if a.dtype == torch.float32 else spoilt
torch.mm = mm

"""


# --- asked once -----------------------------------------------------------------------------------------------------------


def test_a_verdict_is_kept_for_the_next_process(faked: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = faked(f"if not limit: {DIES}" + RIGHT)
    first = verdict("bfloat16")
    assert verdict("bfloat16") is first
    monkeypatch.setattr(number_types, "_known", {})
    assert known_verdict("bfloat16") == verdict("bfloat16") == first
    assert calls.read_text().split() == ["plain", "AVX512_CORE_BF16"]


def test_another_torch_or_cpu_is_asked_anew(faked: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(RIGHT)
    verdict("bfloat16")
    for place, name, value in ((torch, "__version__", "99"), (number_types, "cpu_name", lambda: "another")):
        monkeypatch.setattr(number_types, "_known", {})
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            assert known_verdict("bfloat16") is None
        assert known_verdict("bfloat16") is not None


def test_an_end_from_outside_is_not_kept(faked: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    faked("os.kill(os.getpid(), signal.SIGTERM)\n")
    assert verdict("bfloat16").state == "broken"
    monkeypatch.setattr(number_types, "_known", {})
    assert known_verdict("bfloat16") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"about": {}, "answer": {}}', '"\\ud800"', "ÿ"])
def test_a_damaged_or_foreign_file_is_asked_over(text: str, faked: Faked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = faked(RIGHT)
    verdict("bfloat16")
    for path in (tmp_path / "cache").rglob("*.json"):
        path.write_bytes(text.encode("latin-1"))
    monkeypatch.setattr(number_types, "_known", {})
    assert verdict("bfloat16").state == "works"
    assert len(calls.read_text().split()) == 2


def test_an_answer_that_is_no_verdict_is_asked_over(faked: Faked) -> None:
    faked(RIGHT)
    keep_answer("bfloat16", number_types._about(""), {"state": "marvellous"})
    assert known_verdict("bfloat16") is None
    keep_answer("bfloat16", number_types._about(""), {"colour": "blue"})
    assert known_verdict("bfloat16") is None


def test_without_a_cache_folder_each_process_asks(faked: Faked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = faked(RIGHT)
    (tmp_path / "cache").write_text("a file where the folder should be")
    for _ in range(2):
        monkeypatch.setattr(number_types, "_known", {})
        assert verdict("bfloat16").state == verdict("bfloat16").state == "works"
    assert calls.read_text().split() == ["plain", "plain"]


def test_two_processes_may_keep_an_answer_at_once() -> None:
    about = {"n": 1}
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda n: keep_answer("question", about, {"n": n}), range(64)))
    kept = kept_answer("question", about)
    assert kept is not None
    assert kept["n"] in range(64)


# --- never without need -----------------------------------------------------------------------------------------------------

NO_CHILD = """
import sys, subprocess
def refuse(*_, **__):
    raise SystemExit("a child was started")
subprocess.Popen = refuse
"""
FLOAT32 = """
import torch, continua
net = continua.create_model("dcn_ode", channels=[4, 8], solver=dict(method="rk4", steps=1))
net(torch.randn(2, 3, 16, 16)).square().sum().backward()
"""


@pytest.mark.parametrize("program", ["import continua\n", FLOAT32])
def test_neither_import_nor_float32_starts_a_child(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", NO_CHILD + program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- the stand-in -------------------------------------------------------------------------------------------------------------


def test_the_stand_in_takes_the_place_of_the_probe(faked: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = faked(RIGHT)
    monkeypatch.setenv(STAND_IN, "broken,float16=works")
    assert (verdict("bfloat16").state, ask_again("float16").state) == ("broken", "works")
    monkeypatch.setenv(STAND_IN, "limited")
    assert (verdict("bfloat16").state, verdict("bfloat16").limit) == ("limited", "AVX512_CORE_BF16")
    monkeypatch.setenv(LIMIT, "AVX512_CORE_BF16")
    assert verdict("bfloat16").state == "works"
    monkeypatch.setenv(STAND_IN, "inductor=broken")
    assert stand_in("bfloat16") is None
    assert calls.read_text() == ""


@pytest.mark.parametrize("words", ["perhaps", "int8=works", "bfloat16=maybe"])
def test_a_stand_in_that_says_nothing_known_is_refused(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STAND_IN, words)
    with pytest.raises(ConfigError, match="expected works, limited or broken"):
        verdict("bfloat16")


def test_a_verdict_reads_as_the_end_of_a_sentence() -> None:
    assert str(Verdict("works")) == "works"
    assert str(Verdict("limited", "it died", "AVX2")) == "works with ONEDNN_MAX_CPU_ISA=AVX2 only (it died)"
    assert str(Verdict("broken", "it died")) == "does not work (it died)"
    assert str(Verdict("emulated")) == "emulated, slow"
