"""Keep freed memory for the next evaluation, instead of giving it back to the system and asking for it again."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # names of the C library's mallopt


def keep_freed_memory(up_to: int = 1 << 30) -> bool:
    """Ask the C library to keep blocks of up to `up_to` bytes when they are freed; returns whether it could be asked.

    On a CPU a feature map is otherwise fresh memory from the kernel each time it is allocated, page by page; half the time of a
    convolutional field was seen to go there. The price: the process keeps what it once needed until it ends. The command line and the
    benchmarks (for all contestants alike) do this; in a program of your own, call it once at the start. Only glibc (Linux) has these
    settings; elsewhere nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    largest = 2**31 - 1
    return bool(mallopt(M_MMAP_THRESHOLD, min(up_to, largest))) and bool(mallopt(M_TRIM_THRESHOLD, largest))
