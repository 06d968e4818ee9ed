"""Which gradient a network follows: that of the loss it computed, or a discretisation of the optimality system (ANODEV2 §1, §2.1).

ResNet-4 with evolving weights follows, from the same first weights and over the same batches of embedded digits, one of three gradients:
that of its own Euler steps; the optimality system (eq. 7), discretised by the same Euler steps, with the states of the forward pass; and
the adjoint of Chen et al. 2018, which has the states again by Euler steps backwards.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from continua.blocks import ODEBlock, optimality_gradients
from continua.data import MemorySplit, load
from continua.errors import ConfigError
from continua.models import Network, create_model

BATCH = 64
GRADIENTS: Mapping[str, str] = {
    "discretise, then optimise": "checkpoint",
    "optimality system": "optimality",
    "adjoint, states solved again": "adjoint",
}
OPTIONS: Mapping[str, Any] = dict(
    in_channels=1, channels=(8,), norm="group", nonlinearity="identity", coupling="free", evolution_options=dict(start=0.1)
)


@dataclass(frozen=True)
class ComparedGradients:
    """By gradient and seed the training loss that was reached; by gradient and steps, for each seed, the distance to the discrete one.

    The distance is relative to the size of the discrete gradient, and taken before training.
    """

    loss: Mapping[str, Mapping[int, float]]
    distance: Mapping[str, Mapping[int, Sequence[float]]]


def compare_gradients(
    seeds: Sequence[int], *, updates: int = 60, steps: int = 5, finer: Sequence[int] = (5, 10, 20, 40)
) -> ComparedGradients:
    """Train ResNet-4 with evolving weights on embedded digits by three gradients, and measure how far apart they are.

    Args:
        seeds: of first weights and batches.
        updates: of each training.
        steps: Euler steps of the trainings.
        finer: Euler steps at which distances are measured.

    Returns:
        Losses and distances.

    Raises:
        ConfigError: the bundled digits are not in memory.

    Examples:
        >>> from continua.analysis import compare_gradients
        >>> found = compare_gradients([0], updates=1, finer=[5])
        >>> sorted(found.distance)
        ['adjoint, states solved again', 'optimality system']
    """
    split = load("digits")["train"]
    if not isinstance(split, MemorySplit):
        raise ConfigError("the embedded digits are not in memory")
    images, labels = _batch(split, torch.arange(BATCH))
    with torch.random.fork_rng(devices=[]):
        loss = {name: {seed: _trained(seed, how, split, updates, steps) for seed in seeds} for name, how in GRADIENTS.items()}
        distance = {
            name: {count: [_distance(seed, count, how, images, labels) for seed in seeds] for count in finer}
            for name, how in GRADIENTS.items()
            if how != "checkpoint"
        }
    return ComparedGradients(loss, distance)


def _network(seed: int, steps: int) -> Network:
    """ResNet-4 with evolving weights that Euler steps solve, as it is before training."""
    torch.manual_seed(seed)
    net = create_model("resnet4_anodev2_c1", steps=steps, solver=dict(method="euler", steps=steps), **OPTIONS)
    if not isinstance(net, Network):
        raise ConfigError("resnet4_anodev2_c1 is not a network with blocks")
    return net.train()


def _follow(net: Network, images: Tensor, labels: Tensor, gradient: str) -> float:
    """The loss, and its gradient by this method in every parameter's `grad`."""
    net.zero_grad()
    block = net.blocks[0]
    if not isinstance(block, ODEBlock):
        raise ConfigError("the first block of the network is not an ODE block")
    if gradient != "optimality":
        block.solver = block.solver.replace(gradient=gradient)
        loss = cross_entropy(net(images), labels)
        loss.backward()
        return loss.item()
    h = net.stem(images)
    with torch.no_grad():
        end = block(h.detach())
    cross_entropy(net.head(end), labels).backward()  # of the head alone
    found = optimality_gradients(block, h.detach(), lambda z: cross_entropy(net.head(z), labels))
    for name, parameter in block.named_parameters():
        parameter.grad = found.parameters[name].clone()
    h.backward(found.state)
    return found.loss


def _distance(seed: int, steps: int, gradient: str, images: Tensor, labels: Tensor) -> float:
    """How far a method's gradient of the block is from that of the computed loss, relative to its size, in double precision."""
    net, both = _network(seed, steps).double(), []
    for method in ("direct", gradient):
        _follow(net, images.double(), labels, method)
        both.append(torch.cat([parameter.grad.flatten() for parameter in net.blocks[0].parameters() if parameter.grad is not None]))
    return float((both[1] - both[0]).norm() / both[0].norm())


def _trained(seed: int, gradient: str, split: MemorySplit, updates: int, steps: int) -> float:
    """The mean loss over the last quarter of the updates, from first weights and over batches that the seed alone decides."""
    net = _network(seed, steps)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    draw = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(updates):
        images, labels = _batch(split, torch.randperm(len(split), generator=draw)[:BATCH])
        losses.append(_follow(net, images, labels, gradient))
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimiser.step()
    last = losses[-max(1, updates // 4) :]
    return fmean(last) if all(map(math.isfinite, last)) else math.inf


def _batch(split: MemorySplit, places: Tensor) -> tuple[Tensor, Tensor]:
    some = split.select(places)
    return some.images.float() / 255, some.labels
