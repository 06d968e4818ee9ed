"""In which dtype a convolution computes, and in which it answers."""

from dataclasses import dataclass
from functools import cache

import torch


@dataclass(frozen=True)
class Precision:
    """`out` is what plain PyTorch would answer (autocast included).

    `work` differs only where the CPU emulates a reduced dtype: there float32 is ten times faster and no less exact, so the convolution runs
    in float32 and its result is rounded once.
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


@cache
def fast_on_cpu(dtype: torch.dtype) -> bool:
    """Whether this CPU has matrix units or vector instructions for `dtype` (AMX or AVX-512)."""
    supported = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}.get(dtype)
    return supported is None or bool(getattr(torch.ops.mkldnn, supported)())
