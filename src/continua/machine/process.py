"""What this process may compute in, and the limit on oneDNN that a process needs before it computes anything.

oneDNN reads its limit once, at the first primitive of a process. So a training in a number type that works under a limit only can have it
set in a process that is ours from its first line (the command line, a rank of torchrun, a job of a sweep: they say so by `claim_process`)
and has not computed yet. In anybody else's process (a notebook) it is refused with the variable to set: nothing is set behind their back.
"""

import os
from dataclasses import dataclass

from continua.errors import ConfigError
from continua.machine.number_types import LIMIT, STAND_IN, Verdict, onednn_limit, verdict


@dataclass
class _Process:
    ours: bool = False
    computing: bool = False


_process = _Process()
_usable: dict[tuple[str, str, str], bool] = {}


def claim_process() -> None:
    """Say that this process belongs to Continua and has computed nothing yet."""
    _process.ours = True


def usable(name: str) -> bool:
    """Whether this process can compute natively in `name` ("bfloat16", "float16") on the CPU, proven."""
    key = (name, onednn_limit(), os.environ.get(STAND_IN, ""))
    if key not in _usable:
        found = verdict(name)
        _usable[key] = found.state == "works" and _as_in_the_child(found)
    return _usable[key]


def why_unusable(name: str) -> str:
    """Why a number type that the CPU claims is not used in this process, as the end of a sentence; "" where there is nothing to say."""
    found = verdict(name)
    if found.state in ("limited", "broken"):
        return str(found)
    return "" if found.state == "emulated" or usable(name) else f"is not used: {LIMIT} was set after PyTorch had first computed"


def prepare_process(name: str) -> None:
    """Before a computation on the CPU in `name` begins: set the limit that it needs, or refuse."""
    computing, _process.computing = _process.computing, True
    if name == "float32":
        return
    found = verdict(name)
    if found.state == "broken":
        raise ConfigError(f"{name} does not work on this CPU: {found.reason}; use float32 (--precision float32)")
    if found.state == "limited":
        if not _process.ours or computing or onednn_limit():
            raise ConfigError(_too_late(name, found))
        os.environ[LIMIT] = found.limit
        found = verdict(name)
    if not _as_in_the_child(found):
        raise ConfigError(_too_late(name, found))


def _too_late(name: str, found: Verdict) -> str:
    needed = found.limit or onednn_limit()
    why = f" ({found.reason})" if found.reason else ""
    return (
        f"{name} works on this CPU only where oneDNN is limited before PyTorch first computes{why}, and this process may have computed; "
        f"start it with {LIMIT}={needed} in its environment, or use float32"
    )


def _as_in_the_child(found: Verdict) -> bool:
    """Whether oneDNN says it has here what it had when the verdict was found: not where a limit was set after its first use."""
    import torch

    short = {"bfloat16": "bf16", "float16": "fp16"}
    asked = {name: getattr(torch.ops.mkldnn, f"_is_mkldnn_{short[name]}_supported", bool) for name in found.flags}
    return all(bool(asked[name]()) == has for name, has in found.flags.items())
