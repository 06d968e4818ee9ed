"""Ask a question in a child process that may die or hang, and say in words how it ended."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROBE = Path(__file__).with_name("probe.py")
MARK = "continua-probe"
IMPORT_SECONDS = 120.0  # importing PyTorch from a cold, shared disk
SILENT_SECONDS = 5.0  # from when PyTorch is imported, between two signs of life: a busy machine is slow, but goes on
# Signals that come from outside (a user, a cluster, a system out of memory): they say nothing about the machine.
FROM_OUTSIDE = {signal.SIGINT, signal.SIGTERM, signal.SIGKILL}


@dataclass(frozen=True)
class Reply:
    """`answer`: what the child said, None where it did not. `fault`: how it ended then, in words. `lasting`: would it end so again?"""

    answer: dict[str, Any] | None
    fault: str | None = None
    lasting: bool = True


def ask(question: str, environment: Mapping[str, str] | None = None, seconds: float | None = None) -> Reply:
    """The answer of probe.py to a question, with `environment` added to ours; `seconds` of silence are a fault."""
    limit = SILENT_SECONDS if seconds is None else seconds
    # Not `-m continua...`, which would import the package; -P: the folder of the file is not a place to import from.
    command = [sys.executable, "-P", str(PROBE), question]
    variables = {**os.environ, **(environment or {})}
    try:
        # A session of its own: Ctrl-C is for us, and must not look like a death of the child.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=variables,
            start_new_session=True,
        )
    except OSError as error:
        return Reply(None, f"no child process could be started to try it ({error.strerror or error})", lasting=False)
    try:
        return _followed(process, limit)
    finally:
        process.kill()
        process.wait()


def _followed(process: "subprocess.Popen[str]", limit: float) -> Reply:
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(process, lines), daemon=True).start()
    patience = IMPORT_SECONDS
    while True:
        try:
            line = lines.get(timeout=patience)
        except queue.Empty:
            if patience == IMPORT_SECONDS:
                return Reply(None, f"importing PyTorch took more than {IMPORT_SECONDS:.0f} s", lasting=False)
            return Reply(None, f"the probe hung: silent for {limit:g} s")
        if line is None:
            return _ended(process.wait())
        said = _understood(line)
        if said.get("ready"):
            patience = limit
        elif "fault" in said:
            return Reply(said)


def _read(process: "subprocess.Popen[str]", lines: "queue.Queue[str | None]") -> None:
    """Lines as they come, then None: a pipe cannot be waited for with a time limit on every system."""
    if process.stdout is not None:
        for line in process.stdout:
            lines.put(line)
    lines.put(None)


def _understood(line: str) -> dict[str, Any]:
    """What the child says; {} for lines that others print there (oneDNN with ONEDNN_VERBOSE, say)."""
    mark, _, text = line.partition(" ")
    if mark != MARK:
        return {}
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _ended(code: int) -> Reply:
    if code >= 0:
        return Reply(None, f"the probe ended without an answer (exit code {code})", lasting=False)
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if -code in FROM_OUTSIDE:
        return Reply(None, f"the probe was ended from outside ({name})", lasting=False)
    meaning = {"SIGILL": ", an instruction that this CPU does not carry out"}.get(name, "")
    return Reply(None, f"the probe died ({name}{meaning})")
