"""Which gradient to follow: that of the loss which was computed, or a discretisation of the optimality system (ANODEV2 §1, §2.1).

The paper discretises first and then optimises, because the adjoint of Chen et al. 2018, which solves for the gradient and for the state
backwards in time, "could lead to incorrect gradients". Here ResNet-4 with evolving weights follows, from the same first weights and over
the same batches of embedded digits, one of three gradients: that of its own Euler steps; the optimality system (eq. 7), discretised by
the same Euler steps, with the states of the forward pass; and the adjoint, which has the states again by Euler steps backwards. The loss
that each reaches could fall either way.
"""

import math
from collections.abc import Mapping
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from continua.blocks import ODEBlock, optimality_gradients
from continua.data import MemorySplit, load
from continua.errors import ConfigError
from continua.models import Network, create_model
from continua.report import Axis, Column, Figure, Series, Table
from continua.studies.claims import claim_above, claim_ahead
from continua.studies.compare import over_seeds
from continua.studies.runs import Runs
from continua.studies.study import Finding, Setting, Study

STEPS, UPDATES, BATCH, SEEDS = 5, 60, 64, 8
FINER = (5, 10, 20, 40)
GRADIENTS: Mapping[str, str] = {
    "discretise, then optimise": "checkpoint",
    "optimality system": "optimality",
    "adjoint, states solved again": "adjoint",
}
OPTIONS = dict(in_channels=1, channels=(8,), norm="group", nonlinearity="identity", coupling="free", evolution_options=dict(start=0.1))
SETTINGS: Mapping[str, Setting] = {
    "smoke": Setting(seeds=0, look=dict(networks=2, updates=2)),
    "cpu": Setting(seeds=0, look=dict(networks=SEEDS, updates=UPDATES)),
    "paper": Setting(seeds=0, look=dict(networks=SEEDS, updates=UPDATES)),
}


def network(seed: int, steps: int = STEPS) -> Network:
    """ResNet-4 with evolving weights that Euler steps solve, as it is before training."""
    torch.manual_seed(seed)
    net = create_model("resnet4_anodev2_c1", steps=steps, solver=dict(method="euler", steps=steps), **OPTIONS)
    if not isinstance(net, Network):
        raise ConfigError("resnet4_anodev2_c1 is not a network with blocks")
    return net.train()


def follow(net: Network, images: Tensor, labels: Tensor, gradient: str) -> float:
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


def distance(seed: int, steps: int, gradient: str, images: Tensor, labels: Tensor) -> float:
    """How far a method's gradient of the block is from that of the computed loss, relative to its size, in double precision."""
    net, both = network(seed, steps).double(), []
    for method in ("direct", gradient):
        follow(net, images.double(), labels, method)
        both.append(torch.cat([parameter.grad.flatten() for parameter in net.blocks[0].parameters() if parameter.grad is not None]))
    return float((both[1] - both[0]).norm() / both[0].norm())


def trained(seed: int, gradient: str, split: MemorySplit, updates: int) -> float:
    """The mean loss over the last quarter of the updates, from first weights and over batches that the seed alone decides."""
    net = network(seed)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    draw = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(updates):
        images, labels = batch(split, torch.randperm(len(split), generator=draw)[:BATCH])
        losses.append(follow(net, images, labels, gradient))
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimiser.step()
    last = losses[-max(1, updates // 4) :]
    return fmean(last) if all(map(math.isfinite, last)) else math.inf


def batch(split: MemorySplit, places: Tensor) -> tuple[Tensor, Tensor]:
    some = split.select(places)
    return some.images.float() / 255, some.labels


def _ask(runs: Runs) -> Finding:
    seeds, updates = range(int(runs.setting.look["networks"])), int(runs.setting.look["updates"])
    split = load("digits")["train"]
    if not isinstance(split, MemorySplit):
        raise ConfigError("the embedded digits are not in memory")
    with torch.random.fork_rng(devices=[]):
        losses = {name: {seed: trained(seed, how, split, updates) for seed in seeds} for name, how in GRADIENTS.items()}
        images, labels = batch(split, torch.arange(BATCH))
        others = {name: how for name, how in GRADIENTS.items() if how != "checkpoint"}
        apart = {
            name: {steps: [100 * distance(seed, steps, how, images, labels) for seed in seeds] for steps in FINER}
            for name, how in others.items()
        }
    first, *_ = GRADIENTS
    rows = [[name, over_seeds(list(losses[name].values())), over_seeds(apart[name][STEPS]) if name in apart else 0.0] for name in GRADIENTS]
    columns = ["gradient", Column("training loss reached", digits=4), Column(f"distance at {STEPS} steps", "%", 1)]
    caption = f"After {updates} updates; distance from the gradient of the loss that was computed, relative to its size, before training."
    table = Table("gradients", "What each gradient reaches", columns, rows, caption)
    series = [Series(name, list(FINER), [fmean(apart[name][steps]) for steps in FINER], style="both") for name in others]
    figure = Figure(
        "distance", "Distance of gradients by steps", Axis("Euler steps", log=True, whole=True), Axis("distance", "%", log=True), series
    )
    claims = []
    for name in others:
        claims.append(claim_ahead(f"{first} reaches a lower training loss than {name}", losses[name], losses[first], unit="in loss"))
        gap = f"the gradient of {name} is more than 10 % off at {STEPS} Euler steps"
        claims.append(claim_above(gap, apart[name][STEPS], 10.0, of="relative distance before training", unit="%"))
    return Finding([table, figure], claims)


STUDIES = [
    Study(
        "anodev2/gradients",
        "ANODEV2, §1 and §2.1",
        "discretise then optimise, or the other way round",
        "Is the gradient of the computed loss the better one to follow?",
        SETTINGS,
        _ask,
        claims=4,
        printed="the adjoint could lead to incorrect gradients",
    )
]
