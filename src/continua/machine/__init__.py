"""The machine that we run on: what its number types are worth, what it has, how its memory is kept. Imports no other module of ours."""

from continua.machine.asking import cache_folder
from continua.machine.facts import consequences, faults, float32_fault, machine_facts, packages, remarks, usable_cores, writable
from continua.machine.memory import OutOfMemory, enough_memory, memory_asked
from continua.machine.number_types import Verdict, cpu_name, verdict
from continua.machine.process import claim_process, keep_freed_memory, prepare_process, usable, why_unusable

__all__ = [
    "OutOfMemory",
    "Verdict",
    "cache_folder",
    "claim_process",
    "consequences",
    "cpu_name",
    "enough_memory",
    "faults",
    "float32_fault",
    "keep_freed_memory",
    "machine_facts",
    "memory_asked",
    "packages",
    "prepare_process",
    "remarks",
    "usable",
    "usable_cores",
    "verdict",
    "why_unusable",
    "writable",
]
