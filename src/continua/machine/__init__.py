"""The machine that we run on: what its number types are worth, what it has, how its memory is kept. Imports nothing of ours but errors."""

from continua.machine.malloc import keep_freed_memory
from continua.machine.number_types import Verdict, verdict
from continua.machine.process import claim_process, prepare_process, usable, why_unusable

__all__ = ["Verdict", "claim_process", "keep_freed_memory", "prepare_process", "usable", "verdict", "why_unusable"]
