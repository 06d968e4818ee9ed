"""Kernels in C++ for what a continuous network does most: group norm → activation → N-jet convolution → time term, in one pass per image.

They are compiled when Continua is installed, where a C++ compiler is; `find_library()` says which build runs, or why none does. Everything
they compute the PyTorch routes of `continua.filters` compute too, to rounding.

    build.py        compiles csrc/ into one library with a build for each instruction set
    library.py      loads it; its structures
    operators.py    the PyTorch operators `norm_act_conv` and `norm_act`, with their derivatives
    plain.py        the same in plain operations
"""

from continua.native.library import Absent, Library, find_library
from continua.native.operators import MOST_ORDERS, norm_act, norm_act_conv
from continua.native.plain import ACTIVATIONS

__all__ = ["ACTIVATIONS", "MOST_ORDERS", "Absent", "Library", "find_library", "norm_act", "norm_act_conv"]
