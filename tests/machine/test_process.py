"""What a process does that wants a number type which works under a limit only, or not at all; and the memory that it keeps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from continua.machine import number_types, process
from continua.machine.number_types import LIMIT, STAND_IN, Verdict

SMALL = [
    *("--recipe", "demo", "--data", "digits", "--per-class", "4", "--epochs", "1", "--batch_size", "20", "--threads", "1"),
    *("--device", "cpu", "--progress", "off", "--model_options.channels", "[4, 8]"),
]
CELL = """
import sys
from pathlib import Path
from training import QUIET, tiny_recipe
from continua.train import resolve
from continua.runs import plain_recipe
from continua.train.sweeps.jobs import CellJob

recipe = plain_recipe(resolve(tiny_recipe(precision="bfloat16", epochs=1)))
CellJob(recipe, Path(sys.argv[1]), QUIET)()
"""
NOTEBOOK = """
import sys
from training import QUIET, tiny_recipe
from continua import ConfigError
from continua.train import train

try:
    train(tiny_recipe(precision="bfloat16", epochs=1), sys.argv[1], QUIET)
except ConfigError as error:
    print(error)
"""
FIRST_PRIMITIVE = """
import torch, continua
from continua.machine import claim_process, number_types, prepare_process

number_types.LIMITS = {"bfloat16": ("SSE41",)}
claim_process()
continua.create_model("dcn_ode")
prepare_process("bfloat16")
torch.nn.functional.conv2d(torch.randn(2, 8, 9, 9), torch.randn(8, 8, 3, 3))
"""


def python(*words: str, said: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A Python of its own in which the probe says this, whatever limit the tests run under."""
    kept = {name: value for name, value in os.environ.items() if name not in (LIMIT, "DNNL_MAX_CPU_ISA", STAND_IN)}
    support = Path(__file__).parents[1] / "support"
    paths = os.pathsep.join([str(support), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = kept | {STAND_IN: said, "PYTHONPATH": paths} | variables
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment)


def limit_of(run: Path) -> str | None:
    return json.loads((run / "environment.json").read_text("utf-8"))["machine"]["onednn_limit"]


def train(folder: Path, precision: str, said: str, *more: str) -> "subprocess.CompletedProcess[str]":
    return python("-m", "continua", "train", *SMALL, *more, "--precision", precision, "--out", str(folder), said=said)


# --- the command line -----------------------------------------------------------------------------------------------------


def test_a_broken_bfloat16_is_refused_before_anything_begins(tmp_path: Path) -> None:
    done = train(tmp_path / "run", "bfloat16", "broken")
    assert done.returncode == 2
    assert "bfloat16 does not work on this CPU: CONTINUA_PROBE says so; use float32" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("said", ["broken", "limited"])
def test_auto_is_float32_with_one_line_that_says_why(said: str, tmp_path: Path) -> None:
    done = train(tmp_path / "run", "auto", said, "--model", "odenet")
    assert done.returncode == 0, done.stderr
    assert "precision: float32" in (tmp_path / "run" / "config.yaml").read_text("utf-8")
    assert [line for line in done.stderr.splitlines() if "precision auto is float32 on this CPU: bfloat16" in line] != []
    assert done.stderr.count("CONTINUA_PROBE says so") == 1
    assert limit_of(tmp_path / "run") is None


@pytest.mark.needs("bfloat16")
def test_a_limited_bfloat16_runs_under_its_limit(tmp_path: Path) -> None:
    done = train(tmp_path / "run", "bfloat16", "limited")
    assert done.returncode == 0, done.stderr
    assert limit_of(tmp_path / "run") == "AVX512_CORE_BF16"


def test_float32_is_never_limited_and_makes_no_probe(tmp_path: Path) -> None:
    done = python("-m", "continua", "train", *SMALL, "--out", str(tmp_path / "run"), said="", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert limit_of(tmp_path / "run") is None
    assert not (tmp_path / "cache" / "continua" / "machine").exists()


# --- jobs, notebooks --------------------------------------------------------------------------------------------------------


@pytest.mark.needs("bfloat16")
def test_a_job_of_a_sweep_limits_itself(tmp_path: Path) -> None:
    done = python("-c", CELL, str(tmp_path / "run"), said="limited")
    assert done.returncode == 0, done.stderr
    assert limit_of(tmp_path / "run") == "AVX512_CORE_BF16"


@pytest.mark.needs("bfloat16")
def test_a_notebook_is_told_which_variable_to_set(tmp_path: Path) -> None:
    done = python("-c", NOTEBOOK, str(tmp_path / "run"), said="limited")
    assert "start it with ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in its environment, or use float32" in done.stdout
    assert not (tmp_path / "run").exists()
    done = python("-c", NOTEBOOK, str(tmp_path / "run"), said="limited", ONEDNN_MAX_CPU_ISA="AVX512_CORE_BF16")
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "run" / "result.json").is_file()


@pytest.mark.skipif("sse4_1" not in number_types.cpu_flags(), reason="the limit tried here is one of x86 processors")
def test_onednn_heeds_the_limit_although_torch_is_imported_and_a_network_is_built() -> None:
    done = python("-c", FIRST_PRIMITIVE, said="limited", ONEDNN_VERBOSE="1")
    assert done.returncode == 0, done.stderr
    instructions = [line.partition("isa:")[2] for line in done.stdout.splitlines() if "info,cpu,isa:" in line]
    assert instructions == ["Intel SSE4.1"]


# --- in this process --------------------------------------------------------------------------------------------------------


def test_a_limit_that_came_too_late_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    has = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    monkeypatch.setattr(process, "_usable", {})
    monkeypatch.setattr(process, "verdict", lambda name: Verdict("works", flags={"bfloat16": not has}))
    assert not process.usable("bfloat16")
    assert "was set after PyTorch had first computed" in process.why_unusable("bfloat16")
    with pytest.raises(process.ConfigError, match=f"start it with {LIMIT}="):
        process.prepare_process("bfloat16")


def test_a_process_that_has_computed_is_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_process", process._Process(ours=True))
    monkeypatch.setenv(STAND_IN, "limited")
    monkeypatch.delenv(LIMIT, raising=False)
    process.prepare_process("float32")
    with pytest.raises(process.ConfigError, match="AVX512_CORE_BF16"):
        process.prepare_process("bfloat16")
    assert LIMIT not in os.environ


# --- freed memory is kept where the C library allows it ---------------------------------------------------------------


SCRIPT = """
import resource, sys, torch
from continua import keep_freed_memory

kept = keep_freed_memory() if sys.argv[1] == "keep" else False
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
x = torch.zeros(4_000_000)
for _ in range(3):
    (x + 1) + (x + 2)
rounds = []
for _ in range(5):  # the best of them: a busy system may take pages back in between
    before = faults()
    for _ in range(20):
        (x + 1) + (x + 2)
    rounds.append(faults() - before)
print(kept, min(rounds))
"""


def faults(how: str) -> tuple[bool, int]:
    found = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True).stdout.split()
    return found[0] == "True", int(found[1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc has these settings")
def test_a_large_temporary_reuses_memory_once_it_is_kept() -> None:
    kept, with_keeping = faults("keep")
    _, without = faults("plain")
    if not kept:
        pytest.skip("this C library has no mallopt")
    assert with_keeping < 1000  # 40 temporaries of 16 MB are 160,000 pages
    assert with_keeping <= without
