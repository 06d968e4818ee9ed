"""Steps per image: a test set with steps of its own for every image, many images at a time, against one image at a time.

Three ways to the same counts: `continua.analysis.steps` in batches; our solver on batches of one; torchdiffeq on batches of one, with the
same field in plain PyTorch modules (time concatenated, as its authors write it). Random weights, dopri5 at 1e-3, images of noise with
different contrasts, so that they need different numbers of steps.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchdiffeq import odeint

import continua as ct
from _common import machine, medians, options, show
from continua.analysis.questions.steps import BATCH, steps

TOLERANCE = dict(rtol=1e-3, atol=1e-3)


class PlainField(nn.Module):
    """The field of the network as its authors write it, and how often it was called."""

    def __init__(self, ours: nn.Module) -> None:
        super().__init__()
        self.ours, self.calls = ours, 0

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        self.calls += 1
        h = self._conv(self.ours.conv1, t, functional.relu(self.ours.norm1(h)))
        return self.ours.norm3(self._conv(self.ours.conv2, t, functional.relu(self.ours.norm2(h))))

    def _conv(self, conv: nn.Module, t: Tensor, x: Tensor) -> Tensor:
        x = torch.cat([torch.ones_like(x[:, :1]) * t, x], 1)
        return functional.conv2d(x, conv.filter.weight, conv.bias, padding=1)


def network(name: str, width: int) -> ct.Network:
    torch.manual_seed(0)
    return ct.create_model(name, width=width, solver=TOLERANCE).eval()


def pictures(count: int, size: int) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    contrast = torch.logspace(-1, 0.5, count)[torch.randperm(count, generator=draw)]
    return torch.randn(count, 3, size, size, generator=draw) * contrast[:, None, None, None]


@torch.no_grad()
def ours_alone(net: ct.Network, images: Tensor) -> list[int]:
    nfe = []
    for image in images:
        net(image[None])
        nfe.append(net.stats[0].nfe)
    return nfe


@torch.no_grad()
def torchdiffeq_alone(net: ct.Network, images: Tensor) -> list[int]:
    field, times, nfe = PlainField(net.blocks[0].field), torch.tensor([0.0, 1.0]), []
    for image in images:
        field.calls = 0
        net.head(odeint(field, net.stem(image[None]), times, **TOLERANCE, method="dopri5")[-1])
        nfe.append(field.calls)
    return nfe


def row(name: str, count: int, batch: int, width: int, size: int, repeats: int) -> dict[str, object]:
    net, images = network(name, width), pictures(count, size)
    batches = [(part, torch.zeros(len(part), dtype=torch.int64)) for part in images.split(batch)]
    kept: dict[str, object] = {}

    def keeping(key: str, run: Callable[[], object]) -> Callable[[], None]:
        return lambda: kept.__setitem__(key, run())

    seconds = medians(
        {
            "together": keeping("together", lambda: steps(net, batches)),
            "alone": keeping("alone", lambda: ours_alone(net, images)),
            "torchdiffeq": keeping("torchdiffeq", lambda: torchdiffeq_alone(net, images)),
        },
        repeats,
    )
    together = kept["together"]
    nfe = together.nfe[:, 0].tolist()
    return {
        "model": name,
        "images": count,
        "batch": batch,
        "steps": f"{together.tried.mean():.2f} ± {together.tried.std():.2f}",
        "same as alone (%)": 100 * sum(a == b for a, b in zip(nfe, kept["alone"], strict=True)) / count,
        "same as torchdiffeq (%)": 100 * sum(a == b for a, b in zip(nfe, kept["torchdiffeq"], strict=True)) / count,
        "calls of f": together.field_calls,
        "fewer calls": sum(kept["alone"]) / together.field_calls,
        "ms per image": 1000 * seconds["together"] / count,
        "ours alone (ms)": 1000 * seconds["alone"] / count,
        "torchdiffeq alone (ms)": 1000 * seconds["torchdiffeq"] / count,
        "faster than ours alone": seconds["alone"] / seconds["together"],
        "faster than torchdiffeq": seconds["torchdiffeq"] / seconds["together"],
    }


def main() -> None:
    parser = options(__doc__, repeats=3)
    parser.add_argument("--images", type=int, default=1000, help="how many")
    parser.add_argument("--batch", type=int, default=BATCH, help="images under way together")
    parser.add_argument("--width", type=int, default=256, help="channels (256: the paper's networks)")
    parser.add_argument("--size", type=int, default=32, help="side of the images")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    names = ("ode_only_net", "res_ode_net")
    rows = [row(name, chosen.images, chosen.batch, chosen.width, chosen.size, chosen.repeats) for name in names]
    show("Steps per image", rows, machine("torchdiffeq"), chosen.json)


if __name__ == "__main__":
    main()
