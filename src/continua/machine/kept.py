"""Answers that hold for a machine, kept in the user's cache folder so that a question is asked once."""

import hashlib
import json
import os
import platform
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

FORM = 1  # of the file; another number is another file


def cache_folder() -> Path:
    """Where Continua keeps what can be made again. It need not exist yet."""
    from platformdirs import user_cache_path

    return user_cache_path("continua", appauthor=False)


def kept_answer(question: str, about: dict[str, Any]) -> dict[str, Any] | None:
    """The answer that was kept; None where there is none, or none that can be understood."""
    try:
        kept = json.loads(_file(question, about).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(kept, dict) or kept.get("about") != about or not isinstance(kept.get("answer"), dict):
        return None
    return kept["answer"]


def keep_answer(question: str, about: dict[str, Any], answer: dict[str, Any]) -> bool:
    """Write the answer, whole or not at all; whether that was possible. Two processes may: the last one's stays."""
    path = _file(question, about)
    text = json.dumps({"question": question, "about": about, "answer": answer}, indent=2) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
    except OSError:
        return False
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        return False
    return True


def _file(question: str, about: dict[str, Any]) -> Path:
    key = json.dumps([FORM, _machine(), about], sort_keys=True)
    return cache_folder() / "machine" / f"{question}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def _machine() -> str:
    """Which machine: a home folder may be shared by many. Only its hash is ever written."""
    with suppress(OSError):
        return Path("/etc/machine-id").read_text("utf-8").strip() + platform.node()
    return platform.node()
