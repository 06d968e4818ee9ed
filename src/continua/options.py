"""Fields of dataclasses that are also options of a command: each with the sentence that its --help shows."""

from dataclasses import field
from typing import Any


def option(default: Any, help: str) -> Any:
    """A field with its sentence. Where the default is a class (`dict`), each object gets one of its own."""
    if isinstance(default, type):
        return field(default_factory=default, metadata={"help": help})
    return field(default=default, metadata={"help": help})
