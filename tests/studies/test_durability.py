"""A study that is killed and begun again ends with the same numbers, bit for bit, and has lost no more than the epoch it was in."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

EPOCHS = 15
BATCHES = 2  # of an epoch: 60 images in batches of 30

# The command as a person types it; only the study is cut to two runs, and lengthened so that it can be killed on the way.
COMMAND = f"""
import sys
from dataclasses import replace
from continua.cli import main
from continua.studies import STUDIES

study = STUDIES["dcn/table5"]
smoke = replace(study.settings["smoke"], change={{**study.settings["smoke"].change, "epochs": {EPOCHS}}})
STUDIES[study.id] = replace(study, settings={{**study.settings, "smoke": smoke}}, rows=lambda scale: study.rows(scale)[:2])
sys.exit(main(["reproduce", study.id, "--scale", "smoke", *sys.argv[1:]]))
"""


def begin(folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", COMMAND, "--runs", "runs", *words]
    folder.mkdir(exist_ok=True)
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, start_new_session=True)


def carry_out(folder: Path, *words: str) -> None:
    done = begin(folder, *words).wait(600)
    assert done == 0, (folder / "output.txt").read_text()


def epochs_by_run(folder: Path) -> dict[str, int]:
    """Whole lines of metrics: epochs that were finished."""
    return {path.parent.name: path.read_bytes().count(b'"event": "epoch"') for path in (folder / "runs").glob("*/metrics.jsonl")}


def kill_in_training(folder: Path, *words: str) -> dict[str, int]:
    """`kill -9` to the command and all its processes, when some run has a few epochs behind it and some more ahead."""
    process = begin(folder, *words)
    while not any(1 < epochs < EPOCHS for epochs in epochs_by_run(folder).values()):
        assert process.poll() is None, (folder / "output.txt").read_text()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return epochs_by_run(folder)


def numbers(folder: Path) -> dict[str, Any]:
    """results.json without what the clock decides."""
    written = json.loads((folder / "runs" / "studies" / "dcn-table5" / "smoke" / "results.json").read_text("utf-8"))
    for run in written["runs"]:
        run["result"].pop("seconds")
    return written


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("undisturbed")
    carry_out(folder)
    return numbers(folder)


@pytest.mark.slow
@pytest.mark.timeout(1500)  # three processes and their trainings, on machines that may be busy
@pytest.mark.parametrize("words", [(), ("--on", "local", "--jobs", "2")], ids=["here", "two at a time"])
def test_a_killed_study_goes_on_and_ends_with_the_same_numbers(words: tuple[str, ...], undisturbed: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    before = kill_in_training(folder, *words)
    assert not list(folder.glob("runs/studies/*/*/results.json"))
    carry_out(folder, *words)
    assert numbers(folder) == undisturbed
    begun = {name: epochs for name, epochs in before.items() if 1 < epochs < EPOCHS}
    assert begun
    for name, epochs in begun.items():
        resumed = re.findall(r"resumed from \S*step-0*(\d+)", (folder / "runs" / name / "log.txt").read_text())
        assert resumed, f"{name} was begun anew"
        assert int(resumed[0]) >= (epochs - 1) * BATCHES, f"{name} had {epochs} epochs of {BATCHES} batches behind it"
    assert epochs_by_run(folder) == dict.fromkeys(epochs_by_run(folder), EPOCHS)
