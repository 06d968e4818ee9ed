"""The compiled library: found beside this file, loaded at first use, its structures field by field as `csrc/api.h` has them."""

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from continua.native.build import fingerprint

BUILDS = ("avx512", "avx2", "portable")
VARIABLE = "CONTINUA_NATIVE"
"""Environment variable: "off" leaves the native kernels alone; avx512, avx2 or portable ask for that build of them; a path, a library."""


class MapStrides(ctypes.Structure):
    """Strides of a map in elements."""

    _fields_ = [(name, ctypes.c_int64) for name in ("sample", "channel", "row", "column")]

    @classmethod
    def of(cls, x: Tensor) -> "MapStrides":
        return cls(*x.stride())


def _fields(text: str, kinds: dict[str, type]) -> list[tuple[str, type]]:
    """`"int: a b, pointer: c"` as the fields of a structure."""
    groups = [group.split(":") for group in text.split(",")]
    return [(name, kinds[kind.strip()]) for kind, names in groups for name in names.split()]


_KINDS: dict[str, type] = {
    "int": ctypes.c_int32,
    "long": ctypes.c_int64,
    "double": ctypes.c_double,
    "pointer": ctypes.c_void_p,
    "strides": MapStrides,
}


class ConvArguments(ctypes.Structure):
    """One call of norm → activation → N-jet convolution → time term, or of its vector–Jacobian product."""

    _fields_ = _fields(
        "int: dtype batch in_channels out_channels height width order stride reach_y reach_x groups activation threads times own_taps,"
        "long: alpha_sample rows_sample cols_sample, double: eps, pointer: x, strides: x_strides,"
        "pointer: gamma beta alpha rows cols bias t time_map y,"
        "strides: y_strides, pointer: along y_along gy, strides: gy_strides, pointer: gx, strides: gx_strides,"
        "pointer: g_gamma g_beta g_alpha g_rows g_cols g_along g_bias g_t g_time_map",
        _KINDS,
    )


class NormArguments(ctypes.Structure):
    """One call of group norm → activation, or of its vector–Jacobian product."""

    _fields_ = _fields(
        "int: dtype batch channels height width groups activation threads, double: eps,"
        "pointer: x, strides: x_strides, pointer: gamma beta y,"
        "strides: y_strides, pointer: gy, strides: gy_strides, pointer: gx, strides: gx_strides, pointer: g_gamma g_beta",
        _KINDS,
    )


class FieldArguments(ctypes.Structure):
    """One call of two convolutions and a last norm, or of their vector–Jacobian product."""

    _fields_ = [("first", ConvArguments), ("second", ConvArguments), ("last", NormArguments)]


class CombineArguments(ctypes.Structure):
    """One weighted sum of tensors."""

    _fields_ = _fields("int: dtype terms threads unused, long: count, pointer: out base of weights", _KINDS)


class ErrorArguments(ctypes.Structure):
    """One sum of squares of an error in units of its tolerance."""

    _fields_ = _fields("int: dtype parts threads unused, long: count, double: rtol atol, pointer: error y0 y1 sums", _KINDS)


ENTRIES = ("norm_act_conv", "norm_act_conv_vjp", "norm_act", "norm_act_vjp", "combine", "error_sums", "field", "field_vjp")


@dataclass(frozen=True)
class Library:
    """The entry points, and which build of them runs (`isa`)."""

    isa: str
    pool: str
    norm_act_conv: Callable[[object], None]
    norm_act_conv_vjp: Callable[[object], None]
    norm_act: Callable[[object], None]
    norm_act_vjp: Callable[[object], None]
    combine: Callable[[object], None]
    error_sums: Callable[[object], None]
    field: Callable[[object], None]
    field_vjp: Callable[[object], None]


@dataclass(frozen=True)
class Absent:
    """Why the native kernels do not run here."""

    reason: str


@cache
def find_library() -> "Library | Absent":
    """The library, loaded once, or the reason why there is none."""
    asked = os.environ.get(VARIABLE, "")
    if asked == "off":
        return Absent(f"{VARIABLE}=off")
    path, wanted = (Path(asked), "") if os.sep in asked else (library_path(), asked)
    if wanted and wanted not in BUILDS:
        return Absent(f"{VARIABLE}={wanted}, which is none of off, {', '.join(BUILDS)}, nor the path of a library")
    if not path.is_file():
        if os.sep in asked:
            return Absent(f"{VARIABLE}={asked}, and there is no such file")
        return Absent(f"{path.name} was not built; with a C++ compiler, `python -m continua.native.build` builds it")
    try:
        loaded = ctypes.CDLL(str(path))
        loaded.continua_choose.restype = loaded.continua_sources.restype = ctypes.c_char_p
    except (OSError, AttributeError) as error:
        return Absent(f"{path.name} cannot be loaded ({error})")
    if loaded.continua_sources().decode() != fingerprint():
        return Absent(f"{path.name} was built from other sources than these; build it again: python -m continua.native.build")
    isa = loaded.continua_choose(wanted.encode()).decode()
    if wanted and wanted != isa:
        return Absent(f"{VARIABLE}={wanted}, and this processor has only {isa}")
    pool = _pytorch_pool()
    if pool is not None:
        loaded.continua_use_pool(ctypes.cast(pool.GOMP_parallel, ctypes.c_void_p))
    entries = [getattr(loaded, f"continua_{name}") for name in ENTRIES]
    for entry in entries:
        entry.restype = None
    return Library(isa, "PyTorch's" if pool is not None else "own", *entries)


def kernels_text() -> str:
    """In a few words, for reports: which build runs with whose threads, or why none does.

    Returns:
        Words such as "avx512, PyTorch's threads".

    Examples:
        >>> from continua.native import kernels_text
        >>> text = kernels_text()
    """
    library = find_library()
    return f"none: {library.reason}" if isinstance(library, Absent) else f"{library.isa}, {library.pool} threads"


def library_path() -> Path:
    """Where the build puts the library."""
    return Path(__file__).with_name("libcontinua.so")


def _pytorch_pool() -> "ctypes.CDLL | None":
    """The OpenMP library that PyTorch itself has loaded: a second pool of threads would compete with its own for the cores."""
    torch.get_num_threads()
    try:
        loaded = {line.split(maxsplit=5)[5].strip() for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
    except OSError:
        return None
    for path in sorted(loaded, key=lambda path: "torch" not in path):
        if any(name in Path(path).name for name in ("libgomp", "libiomp", "libomp")):
            library = ctypes.CDLL(path)
            if hasattr(library, "GOMP_parallel"):
                return library
    return None
