"""Networks for compilers and outside Python: kernels whose sizes are fixed, `torch.export` programs, ONNX files.

Nothing may be read from the device while a graph is recorded, so the sizes of all kernels are fixed first:

pinned(net)     shares the weights of `net` and trains: N-jets keep today's kernel size while σ moves
frozen(net)     a copy for inference: N-jets become the plain kernels they are at this moment
tabulated(net)  a frozen copy for fixed steps: filters that depend on t become one plain kernel for each time the solver asks for
"""

import copy
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from continua.blocks import ODEBlock
from continua.errors import ConfigError
from continua.filters import Filter, FilterConv2d, JetKernel, Kernel, Pixel, PixelKernel, ScheduledNJet
from continua.models.network import Network

Module = TypeVar("Module", bound=nn.Module)


class PinnedFilter(Filter):
    """Another filter with the size its kernel has now."""

    def __init__(self, inner: Filter) -> None:
        super().__init__(inner.in_channels, inner.out_channels)
        self.inner = inner
        self.time_dependent, self.size, self.jet_order, self.label = inner.time_dependent, inner.size, inner.jet_order, inner.label
        self.host = inner.read_host(inner.state())

    def state(self) -> dict[str, Tensor]:
        return self.inner.state()

    def read_host(self, state: dict[str, Tensor]) -> Any:
        return self.host

    def kernel(self, state: dict[str, Tensor], t: Tensor | float | None = None, host: Any = None) -> Kernel:
        return self.inner.kernel(state, t, self.host)


class PinnedSchedule(PinnedFilter):
    """A σ(t) whose kernels live on the grid of the largest σ of the interval, each cut at its own radius: the same numbers."""

    def __init__(self, inner: ScheduledNJet) -> None:
        super().__init__(inner)
        self.radius_factor = inner.radius_factor
        widest = copy.copy(inner)
        widest.radius = "max"
        self.host = widest.read_host(inner.state())

    def kernel(self, state: dict[str, Tensor], t: Tensor | float | None = None, host: Any = None) -> JetKernel:
        kernel = cast(JetKernel, self.inner.kernel(state, t, self.host))
        own = torch.ceil(self.radius_factor * kernel.sigma.detach() + 0.5)[..., None, None]
        reach = kernel.size[0] // 2
        kept = kernel.rows * (torch.arange(-reach, reach + 1, device=own.device).abs() <= own)
        taps = kept / kept[..., :1, :].sum(-1, keepdim=True)  # G_0, a Gaussian, has sum 1 on its own grid
        return replace(kernel, rows=taps, cols=taps)


class TabulatedFilter(Filter):
    """The pixels of a filter at the few times at which fixed steps evaluate it. A graph then holds kernels, not how they are made."""

    time_dependent = True

    def __init__(self, inner: Filter, times: list[float]) -> None:
        super().__init__(inner.in_channels, inner.out_channels)
        self.label, self.times = inner.label, times
        state = inner.state()
        host = inner.read_host(state)
        for index, time in enumerate(times):
            self.register_buffer(f"pixels{index}", inner.kernel(state, torch.tensor(time), host).weight().detach())

    def state(self) -> dict[str, Tensor]:
        return dict(self.named_buffers())

    def kernel(self, state: dict[str, Tensor], t: Tensor | float | None = None, host: Any = None) -> Kernel:
        asked = float("nan") if t is None else float(t)  # a constant of the graph, so known while it is recorded
        index = min(range(len(self.times)), key=lambda index: abs(self.times[index] - asked))
        if not abs(self.times[index] - asked) <= 1e-5 * max(1.0, abs(asked)):
            raise ConfigError(f"{self.label} was tabulated at t = {', '.join(f'{time:g}' for time in self.times)}; got t = {asked:g}")
        return PixelKernel(state[f"pixels{index}"])


def pinned(net: Module) -> Module:
    """The same network, sharing its weights, with every kernel kept at its present size: `torch.compile` can then trace it for training.

    A σ that has moved since is sampled on the old grid. Make a new twin, say once an epoch, to let the sizes follow; save and load the
    original, whose weights these are.

    Args:
        net: the network.

    Returns:
        Its twin.

    Examples:
        >>> import continua as ct
        >>> from continua.models import pinned
        >>> twin = pinned(ct.create_model("dcn_ode", channels=[4, 8], norm_groups=2))
    """
    twin = copy.deepcopy(net, {id(tensor): tensor for tensor in (*net.parameters(), *net.buffers())})
    for conv in _convolutions(twin):
        conv.filter = pin(conv.filter)
    return twin


def frozen(net: Module) -> Module:
    """A copy in evaluation mode whose weights are constants; filters that do not depend on t become pixels.

    Args:
        net: any network.

    Returns:
        The copy.

    Examples:
        >>> import continua as ct
        >>> from continua.models import frozen
        >>> constant = frozen(ct.create_model("dcn_ode", channels=[4, 8], norm_groups=2))
    """
    twin = copy.deepcopy(net).eval()
    for conv in _convolutions(twin):
        if isinstance(conv.filter, TabulatedFilter):
            continue
        if conv.filter.time_dependent:
            conv.filter = pin(conv.filter)
        elif not isinstance(conv.filter, Pixel):
            conv.filter = pixels(conv.filter.kernel(conv.filter.state()).weight().detach())
            conv.route = "dense"
    return twin.requires_grad_(False)


def tabulated(net: Module) -> Module:
    """A frozen copy of a network whose ODE blocks take fixed steps, with each kernel that depends on t made for each time of a stage."""
    twin = copy.deepcopy(net)
    for block in twin.modules():
        if isinstance(block, ODEBlock):
            steps, stages = block.solver.count or 0, block.solver.tableau.c
            ends = block.solver.shares or [(step + 1) / steps for step in range(steps)]
            shares = {start + stage * (end - start) for start, end in pairwise((0.0, *ends)) for stage in stages}
            times = sorted({round(block.t0 + share * (block.t1 - block.t0), 9) for share in shares})
            for conv in _convolutions(block):
                if conv.filter.time_dependent and steps:
                    conv.filter = TabulatedFilter(conv.filter, times)
                    conv.route = "dense"
    return frozen(twin)


def pin(filter: Filter) -> Filter:
    """A filter whose kernel keeps the size it has now."""
    if isinstance(filter, PinnedFilter):
        return pin(filter.inner)
    if isinstance(filter, ScheduledNJet) and filter.radius is None:
        return PinnedSchedule(filter)
    return PinnedFilter(filter)


def pixels(weight: Tensor) -> Pixel:
    """The filter with these pixels (out, in, size, size)."""
    with torch.device("meta"):
        filter = Pixel(weight.shape[1], weight.shape[0], weight.shape[2])
    filter.weight = nn.Parameter(weight)
    return filter


def _convolutions(net: nn.Module) -> list[FilterConv2d]:
    return [module for module in net.modules() if isinstance(module, FilterConv2d)]


# --- programs and files -----------------------------------------------------------------------------------------------


def export_program(net: Network, image: tuple[int, int, int] = (3, 32, 32)) -> torch.export.ExportedProgram:
    """logits = program.module()(images): one graph for batches of any size of images of (channels, height, width), weights frozen.

    Args:
        net: a network with fixed steps.
        image: channels, height and width.

    Returns:
        The exported program.

    Raises:
        ConfigError: the network cannot be exported, with the reason.

    Examples:
        >>> import continua as ct
        >>> from continua.models import export_program
        >>> net = ct.create_model("dcn_ode", solver=dict(method="rk4", steps=2))
        >>> program = export_program(net)  # doctest: +SKIP
    """
    for name, block in net.named_modules():  # an exported graph is a fixed list of operations
        if isinstance(block, ODEBlock) and (problem := block.why_not_one_graph()):
            raise ConfigError(f"{name}: {problem}")
    if len(image) != 3:
        raise ConfigError(f"image={tuple(image)}; expected (channels, height, width), for example (3, 32, 32)")
    device = next(net.parameters()).device
    model = _Logits(tabulated(net))
    example = torch.zeros(2, *image, device=device)
    return torch.export.export(model, (example,), dynamic_shapes={"images": {0: torch.export.Dim("batch")}})


def export_onnx(net: Network, target: "str | Path", image: tuple[int, int, int] = (3, 32, 32)) -> Path:
    """Write the network as an ONNX file with input `images` and output `logits`; the batch may be of any size.

    Args:
        net: a network with fixed steps.
        target: the file.
        image: channels, height and width.

    Returns:
        The file.

    Raises:
        ConfigError: the network cannot be exported, with the reason.

    Examples:
        >>> import continua as ct
        >>> from continua.models import export_onnx
        >>> net = ct.create_model("dcn_ode", solver=dict(method="rk4", steps=2))
        >>> export_onnx(net, "dcn_ode.onnx")  # doctest: +SKIP
    """
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"an ONNX file needs the package {missing[0]}: pip install onnx onnxscript")
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    program = export_program(net, image)
    made = torch.onnx.export(program, dynamo=True, verbose=False, input_names=["images"], output_names=["logits"])
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
