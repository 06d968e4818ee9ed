"""Which devices compute in float64: Apple's GPUs (mps) do not, nor do many of Intel's (xpu).

Where they do not, no float64 tensor is put on them: times and errors per sample are float32 there, as f sees its time anyway; times that a
batch shares are numbers on the host, in float64 everywhere.
"""

import torch

WITHOUT = {"mps"}  # types of devices none of which have it


def has_float64(device: "torch.device | str") -> bool:
    """Whether a device computes in float64."""
    device = torch.device(device)
    if device.type == "xpu" and torch.xpu.is_available():
        return bool(torch.xpu.get_device_properties(device).has_fp64)
    return device.type not in WITHOUT


def widest(device: "torch.device | str") -> torch.dtype:
    """float64 where the device has it, else float32."""
    return torch.float64 if has_float64(device) else torch.float32


def on_host(value: "float | torch.Tensor") -> torch.Tensor:
    """A number or a tensor in float64 on the CPU."""
    return value.cpu().double() if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64)


def double(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float64, or in float32 where its device has no float64."""
    return tensor.to(widest(tensor.device))
