"""The machine that we run on: what its number types are worth, what it has, how its memory is kept. Imports nothing of ours but errors."""

from continua.machine.cpu import cpu_name
from continua.machine.diagnosis import consequences, faults, remarks
from continua.machine.facts import float32_fault, machine_facts, packages, writable
from continua.machine.kept import cache_folder
from continua.machine.malloc import keep_freed_memory
from continua.machine.number_types import Verdict, verdict
from continua.machine.process import claim_process, prepare_process, usable, why_unusable

__all__ = [
    "Verdict",
    "cache_folder",
    "claim_process",
    "consequences",
    "cpu_name",
    "faults",
    "float32_fault",
    "keep_freed_memory",
    "machine_facts",
    "packages",
    "prepare_process",
    "remarks",
    "usable",
    "verdict",
    "why_unusable",
    "writable",
]
