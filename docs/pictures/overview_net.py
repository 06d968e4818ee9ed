"""The network of the README's picture: continuous in space, depth and weight, and trained on the 16×16 bundled digits.

Every filter is an N-jet, those inside the blocks with σ(t) and α(t); each block is an ODE. As filters are functions, the same weights
work at any resolution: `enlarged` multiplies every σ. The weights lie beside this file; without them, or with `--train`, it trains anew.
"""

import copy
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate

from continua.data import Augmentation, Loader, load
from continua.filters import NJet, ScheduledNJet
from continua.models.dcn import DCN, FullJetODEConfig
from continua.ode import SolverConfig

WEIGHTS = Path(__file__).with_name("overview_net.safetensors")
BATCH = 32
STAGES = [(6, 2, 0.01), (3, 4, 0.004)]  # epochs, steps of rk4, learning rate: coarse steps first, then such that the flow is resolved
LOOKING = dict(method="dopri5", rtol=1e-4, atol=1e-4, record_steps=True)


def network(solver: dict[str, object]) -> DCN:
    config = FullJetODEConfig(in_channels=1, channels=(8, 24), norm_groups=4, t1=2.0, solver=solver)
    return DCN(config, filters="sigma_alpha_t")


def train() -> None:
    torch.manual_seed(0)
    images = load("digits16")["train"]
    loader = Loader(images, batch_size=BATCH, shuffle=True, drop_last=True, seed=0, augmentation=Augmentation())
    net, passed = network({}), 0
    for epochs, steps, rate in STAGES:
        for block in net.blocks:
            block.solver = SolverConfig(method="rk4", steps=steps, gradient="direct")
        optimiser = torch.optim.AdamW(net.parameters(), lr=rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=epochs * (len(images) // BATCH), pct_start=0.1)
        for epoch in range(passed, passed + epochs):
            for batch in loader.epoch(epoch):
                loss = cross_entropy(net(batch.images), batch.labels)
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimiser.step()
                schedule.step()
            print(f"epoch {epoch + 1}, {steps} steps: loss {loss.item():.3f}", flush=True)
        passed += epochs
    save_file(net.state_dict(), WEIGHTS)


def trained() -> DCN:
    """The network, ready to be looked at with adaptive steps."""
    if not WEIGHTS.exists():
        train()
    net = network(LOOKING).eval()
    net.load_state_dict(load_file(WEIGHTS))
    return net


@torch.no_grad()
def enlarged(net: DCN, factor: float) -> DCN:
    """The same network for images `factor` times as large: every σ times `factor`."""
    large = copy.deepcopy(net)
    for module in large.modules():
        if isinstance(module, NJet):
            module.s += torch.log2(torch.tensor(factor))
        elif isinstance(module, ScheduledNJet):
            module.b += torch.log2(torch.tensor(factor))
    return large


def digits(factor: int = 1) -> tuple[Tensor, Tensor]:
    """Images in 0 … 1, made larger by bilinear interpolation, and labels."""
    test = load("digits16")["test"]
    images = test.images / 255
    return interpolate(images, scale_factor=factor, mode="bilinear") if factor > 1 else images, test.labels


@torch.no_grad()
def accuracy(net: DCN, images: Tensor, labels: Tensor) -> float:
    right = [net(some).argmax(1) == truth for some, truth in zip(images.split(60), labels.split(60), strict=True)]
    return float(torch.cat(right).float().mean())


if __name__ == "__main__":
    if "--train" in sys.argv:
        train()
    net = trained()
    for factor in (1, 2):  # σ of a map twice as large may well be above 8
        images, labels = digits(factor)
        found = accuracy(enlarged(net, factor), images[:120], labels[:120])
        print(f"{16 * factor}×{16 * factor} pixels: {found:.1%} of 120 test images right")
