"""In which dtype a convolution computes, and in which it answers."""

from dataclasses import dataclass

import torch

from continua.machine import usable


@dataclass(frozen=True)
class Precision:
    """`out` is what plain PyTorch would answer (autocast included).

    `work` differs only where the CPU emulates a reduced dtype or fails in it: there float32 is ten times faster, or safe, and no less
    exact, so the convolution runs in float32 and its result is rounded once.
    """

    work: torch.dtype
    out: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, dtype: torch.dtype, device: torch.device) -> "Precision":
        if autocast_on(device) and dtype != torch.float64:
            dtype = torch.get_autocast_dtype(device.type)
        if dtype in (torch.bfloat16, torch.float16) and device.type == "cpu" and not fast_on_cpu(dtype):
            return cls(torch.float32, dtype, device)
        return cls(dtype, dtype, device)


def autocast_on(device: torch.device) -> bool:
    """Whether autocast is enabled there; the meta device, which computes shapes only, has none."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def fast_on_cpu(dtype: torch.dtype) -> bool:
    """Whether this CPU has matrix units or vector instructions for `dtype` (AMX or AVX-512), and they do what they claim."""
    name = {torch.bfloat16: "bfloat16", torch.float16: "float16"}.get(dtype)
    return name is None or usable(name)


# What `torch.compiler.assume_constant_result` sets, without its import of the whole compiler: a probe cannot be traced.
fast_on_cpu._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
