"""Kernels in C++ for what a continuous network does most: group norm → activation → N-jet convolution → time term, in one pass per image.

They are compiled when Continua is installed, where a C++ compiler is; `find_library()` says which build runs, or why none does. Everything
they compute the PyTorch routes of `continua.filters` compute too, to rounding.

    build.py        compiles csrc/ into one library with a build for each instruction set
    library.py      loads it; its structures
    operators.py    the PyTorch operators, with their derivatives
    field.py        a whole field in one call
    plain.py        the same in plain operations
    vectors.py      sums of a solver over whole states
"""

from continua.native.field import FieldConv, FieldNorm, NativeField
from continua.native.library import Absent, Library, find_library, kernels_text
from continua.native.operators import MOST_ORDERS, native_conv, native_norm
from continua.native.plain import NATIVE_ACTIVATIONS, is_transforming, plain_gradients
from continua.native.vectors import can_combine, native_combine, native_error_rms

__all__ = [
    "MOST_ORDERS",
    "NATIVE_ACTIVATIONS",
    "Absent",
    "FieldConv",
    "FieldNorm",
    "Library",
    "NativeField",
    "can_combine",
    "find_library",
    "is_transforming",
    "kernels_text",
    "native_combine",
    "native_conv",
    "native_error_rms",
    "native_norm",
    "plain_gradients",
]
