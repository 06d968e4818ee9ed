"""What this process may compute in, the limit on oneDNN that it needs before it computes anything, and the memory it keeps.

oneDNN reads its limit once, at the first primitive of a process. So a training in a number type that works under a limit only can have it
set in a process that is ours from its first line (the command line, a rank of torchrun, a job of a sweep: they say so by `claim_process`)
and has not computed yet. In anybody else's process (a notebook) it is refused with the variable to set: nothing is set behind their back.
"""

import ctypes
import os
import sys
from dataclasses import dataclass

from continua.errors import ConfigError
from continua.machine.number_types import LIMIT, STAND_IN, Verdict, onednn_limit, verdict

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # names of the C library's mallopt


@dataclass
class _Process:
    ours: bool = False
    computing: bool = False


_process = _Process()
_usable: dict[tuple[str, str, str], bool] = {}


def claim_process() -> None:
    """Say that this process belongs to Continua and has computed nothing yet.

    Examples:
        >>> from continua.machine import claim_process
        >>> claim_process()
    """
    _process.ours = True


def usable(name: str) -> bool:
    """Whether this process can compute natively in `name` ("bfloat16", "float16") on the CPU, proven.

    Args:
        name: "bfloat16" or "float16".

    Returns:
        Whether it is usable.

    Examples:
        >>> from continua.machine import usable
        >>> usable("bfloat16")  # doctest: +SKIP
    """
    key = (name, onednn_limit(), os.environ.get(STAND_IN, ""))
    if key not in _usable:
        known = verdict(name)
        _usable[key] = known.state == "works" and _as_in_the_child(known)
    return _usable[key]


def why_unusable(name: str) -> str:
    """Why a number type that the CPU claims is not used in this process, as the end of a sentence; "" where there is nothing to say.

    Args:
        name: "bfloat16" or "float16".

    Returns:
        Words, or "".

    Examples:
        >>> from continua.machine import why_unusable
        >>> why_unusable("bfloat16")  # doctest: +SKIP
    """
    known = verdict(name)
    if known.state in ("limited", "broken"):
        return str(known)
    return "" if known.state == "emulated" or usable(name) else f"is not used: {LIMIT} was set after PyTorch had first computed"


def prepare_process(name: str) -> None:
    """Before a computation on the CPU in `name` begins: set the limit that it needs, or refuse.

    Args:
        name: the number type of the computation.

    Raises:
        ConfigError: this process cannot compute in it.

    Examples:
        >>> from continua.machine import prepare_process
        >>> prepare_process("float32")
    """
    computing, _process.computing = _process.computing, True
    if name == "float32":
        return
    known = verdict(name)
    if known.state == "broken":
        raise ConfigError(f"{name} does not work on this CPU: {known.reason}; use float32 (--precision float32)")
    if known.state == "limited":
        if not _process.ours or computing or onednn_limit():
            raise ConfigError(_too_late(name, known))
        os.environ[LIMIT] = known.limit
        known = verdict(name)
    if not _as_in_the_child(known):
        raise ConfigError(_too_late(name, known))


def _too_late(name: str, known: Verdict) -> str:
    needed = known.limit or onednn_limit()
    why = f" ({known.reason})" if known.reason else ""
    return (
        f"{name} works on this CPU only where oneDNN is limited before PyTorch first computes{why}, and this process may have computed; "
        f"start it with {LIMIT}={needed} in its environment, or use float32"
    )


def _as_in_the_child(known: Verdict) -> bool:
    """Whether oneDNN says it has here what it had when the verdict was found: not where a limit was set after its first use."""
    import torch

    short = {"bfloat16": "bf16", "float16": "fp16"}
    asked = {name: getattr(torch.ops.mkldnn, f"_is_mkldnn_{short[name]}_supported", bool) for name in known.flags}
    return all(bool(asked[name]()) == has for name, has in known.flags.items())


# --- memory -------------------------------------------------------------------------------------------------------------


def keep_freed_memory(up_to: int = 1 << 30) -> bool:
    """Ask the C library to keep blocks of up to `up_to` bytes when they are freed; returns whether it could be asked.

    On a CPU a feature map is otherwise fresh memory from the kernel each time it is allocated, page by page; half the time of a
    convolutional field was seen to go there. The price: the process keeps what it once needed until it ends. The command line and the
    benchmarks (for all contestants alike) do this; in a program of your own, call it once at the start. Only glibc (Linux) has these
    settings; elsewhere nothing happens.

    Args:
        up_to: the largest block that is kept, in bytes.

    Returns:
        Whether the C library could be asked.

    Examples:
        >>> import continua as ct
        >>> kept = ct.keep_freed_memory()
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
