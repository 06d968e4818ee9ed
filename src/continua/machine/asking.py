"""Ask a question about this machine in a child process that may die or hang, and keep the answer in the user's cache folder."""

import hashlib
import json
import os
import platform
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from continua.files import Json, write_text
from continua.reading import UnreadableFile, read_json_object

PROBE = Path(__file__).with_name("probe.py")
MARK = "continua-probe"
IMPORT_SECONDS = 120.0  # importing PyTorch from a cold, shared disk
SILENT_SECONDS = 5.0  # from when PyTorch is imported, between two signs of life: a busy machine is slow, but goes on
# Signals that come from outside (a user, a cluster, a system out of memory): they say nothing about the machine.
FROM_OUTSIDE = {signal.SIGINT, signal.SIGTERM, signal.SIGKILL}
FORM = 1  # of the files with answers; another number is another file


@dataclass(frozen=True)
class Reply:
    """`answer`: what the child said, None where it did not. `fault`: what is wrong, in words. `lasting`: would it end so again?"""

    answer: Json | None
    fault: str | None = None
    lasting: bool = True


def ask_child(question: str, environment: Mapping[str, str] | None = None, seconds: float | None = None) -> Reply:
    """The answer of probe.py to a question, with `environment` added to ours; `seconds` of silence are a fault."""
    try:
        process = subprocess.Popen(
            # Not `-m continua...`, which would import the package; -P: the folder of the file is not a place to import from.
            [sys.executable, "-P", str(PROBE), question],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # Ctrl-C is for us, and must not look like a death of the child
        )
    except OSError as error:
        return Reply(None, f"no child process could be started to try it ({error.strerror or error})", lasting=False)
    try:
        return _followed(process, SILENT_SECONDS if seconds is None else seconds)
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
            return Reply(said, said["fault"])


def _read(process: "subprocess.Popen[str]", lines: "queue.Queue[str | None]") -> None:
    """Lines as they come, then None: a pipe cannot be waited for with a time limit on every system."""
    for line in process.stdout or ():
        lines.put(line)
    lines.put(None)


def _understood(line: str) -> Json:
    """What the child says; {} for lines that others print there (oneDNN with ONEDNN_VERBOSE, say)."""
    mark, _, text = line.partition(" ")
    try:
        said = json.loads(text) if mark == MARK else {}
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
    meaning = ", an instruction that this CPU does not carry out" if name == "SIGILL" else ""
    return Reply(None, f"the probe died ({name}{meaning})")


# --- answers that are kept --------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where Continua keeps what can be made again. It need not exist yet.

    Returns:
        The folder.

    Examples:
        >>> from continua.machine import cache_folder
        >>> folder = cache_folder()
    """
    from platformdirs import user_cache_path

    return user_cache_path("continua", appauthor=False)


def kept_answer(question: str, about: Json) -> Json | None:
    """The answer that was kept; None where there is none, or none that can be understood."""
    try:
        kept = read_json_object(_file(question, about))
    except UnreadableFile:
        return None
    if kept.get("about") != about or not isinstance(kept.get("answer"), dict):
        return None
    return kept["answer"]


def keep_answer(question: str, about: Json, answer: Json) -> bool:
    """Write the answer, whole or not at all; whether that was possible. Two processes may: the last one's stays."""
    text = json.dumps({"question": question, "about": about, "answer": answer}, indent=2) + "\n"
    try:
        write_text(_file(question, about), text)
    except OSError:
        return False
    return True


def _file(question: str, about: Json) -> Path:
    # A home folder may be shared by many machines, so the machine's name has a part in the file's; only its hash is ever written.
    machine = platform.node()
    with suppress(OSError):
        machine = Path("/etc/machine-id").read_text("utf-8").strip() + machine
    key = json.dumps([FORM, machine, about], sort_keys=True)
    return cache_folder() / "machine" / f"{question}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
