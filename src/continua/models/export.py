"""Networks outside Python: `torch.export` programs and ONNX files of models whose solver takes fixed steps."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from continua.blocks import ODEBlock
from continua.errors import ConfigError
from continua.models.frozen import tabulated
from continua.models.network import Network


def export_program(net: Network, image: tuple[int, int, int] = (3, 32, 32)) -> torch.export.ExportedProgram:
    """logits = program.module()(images): one graph for batches of any size of images of (channels, height, width), weights frozen."""
    _refuse_open_ended(net)
    if len(image) != 3:
        raise ConfigError(f"image={tuple(image)}; expected (channels, height, width), for example (3, 32, 32)")
    device = next(net.parameters()).device
    model = _Logits(tabulated(net))
    example = torch.zeros(2, *image, device=device)
    return torch.export.export(model, (example,), dynamic_shapes={"images": {0: torch.export.Dim("batch")}})


def export_onnx(net: Network, target: "str | Path", image: tuple[int, int, int] = (3, 32, 32)) -> Path:
    """Write the network as an ONNX file with input `images` and output `logits`; the batch may be of any size."""
    try:
        import onnx  # noqa: F401  # pyright: ignore[reportUnusedImport]
        import onnxscript  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise ConfigError(f"an ONNX file needs the package {error.name}: pip install onnx onnxscript") from None
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    program = export_program(net, image)
    names: dict[str, Any] = dict(input_names=["images"], output_names=["logits"])
    made = torch.onnx.export(program, dynamo=True, verbose=False, **names)
    if made is None:
        raise ConfigError("torch.onnx.export gave no program; this version of PyTorch cannot export it")
    made.save(str(target), external_data=False)
    return target


class _Logits(nn.Module):
    """A network with images as its only argument."""

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        return self.net(images)


def _refuse_open_ended(net: nn.Module) -> None:
    """An exported graph is a fixed list of operations."""
    for name, block in net.named_modules():
        if isinstance(block, ODEBlock) and (problem := block.why_not_one_graph()):
            raise ConfigError(f"{name}: {problem}")
