"""How parameters follow gradients: the optimiser with its groups of parameters, the learning rate over time, the average of the weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import cos, inf, pi

import torch
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.filters import Evolution, NJet, ScheduledNJet
from continua.runs import Optimiser, Schedule

# --- the optimiser ------------------------------------------------------------------------------------------------------


def build_optimiser(net: nn.Module, recipe: Optimiser) -> torch.optim.Optimizer:
    """SGD or AdamW over all parameters that train; each group knows its `lr_factor`."""
    decays = {"scales": recipe.scale_weight_decay, "evolution": recipe.evolution_weight_decay, "weights": None}
    factors = {"scales": recipe.scale_lr_factor, "evolution": recipe.evolution_lr_factor, "weights": 1.0}
    groups = []
    for name, parameters in parameter_groups(net).items():
        decay, factor = decays[name], factors[name]
        decay = recipe.weight_decay if decay is None else decay
        if parameters:
            groups.append(dict(params=parameters, lr=recipe.lr * factor, weight_decay=decay, lr_factor=factor, name=name))
    if not groups:
        raise ConfigError("this network has no parameters that train")
    if recipe.kind == "adamw":
        return torch.optim.AdamW(groups, betas=recipe.betas)
    return torch.optim.SGD(groups, momentum=recipe.momentum, nesterov=recipe.nesterov)


def set_lr(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """This learning rate, times its own factor in each group."""
    for group in optimiser.param_groups:
        group["lr"] = lr * group["lr_factor"]


def gradient_norm(net: nn.Module) -> float:
    """Of all gradients together; read once, as reading waits for a GPU."""
    return float(torch.nn.utils.get_total_norm([p.grad for p in net.parameters() if p.grad is not None]))


def parameter_groups(net: nn.Module) -> dict[str, list[Tensor]]:
    """The parameters that train, by what they are: N-jet scales, evolution parameters, everything else."""
    scales = {id(parameter) for parameter in scale_parameters(net)}
    evolution = {id(parameter) for module in net.modules() if isinstance(module, Evolution) for parameter in module.parameters()}
    groups: dict[str, list[Tensor]] = {"weights": [], "scales": [], "evolution": []}
    for parameter in net.parameters():
        if parameter.requires_grad:
            kind = "scales" if id(parameter) in scales else "evolution" if id(parameter) in evolution else "weights"
            groups[kind].append(parameter)
    return groups


def scale_parameters(net: nn.Module) -> Iterator[nn.Parameter]:
    """Those that σ of an N-jet is made of: s, or the numbers of its schedule."""
    for module in net.modules():
        own = dict(module.named_parameters(recurse=False))
        if isinstance(module, NJet) and "s" in own:
            yield own["s"]
        elif isinstance(module, ScheduledNJet):
            yield from (own[name] for name in module.scale_names)


@torch.no_grad()
def sigmas(net: nn.Module) -> dict[str, "float | list[float]"]:
    """σ of every N-jet layer in pixels: one number; [least, mean, most] where it has several; σ at start, middle, end of a schedule."""
    scales: dict[str, float | list[float]] = {}
    for name, module in net.named_modules():
        label = name.removesuffix(".filter")
        if isinstance(module, ScheduledNJet):
            start, end = module.interval
            times = torch.tensor([start, (start + end) / 2, end])
            scales[label] = [round(float(module.sigma_at(t)), 6) for t in times]
        elif isinstance(module, NJet):
            values = module.sigma.flatten()
            summary = [float(values.min()), float(values.mean()), float(values.max())]
            scales[label] = round(float(values[0]), 6) if values.numel() == 1 else [round(value, 6) for value in summary]
    return scales


# --- the learning rate: a pure function of how far the training has come, but for the plateau, which remembers -----------


def lr_factor(schedule: Schedule, progress: float, epochs: int, step: float, drops: int = 0) -> float:
    """What `optimiser.lr` is multiplied by in the step from `progress` to `progress + step` (in epochs). `drops`: of the plateau."""
    if progress + step <= schedule.warmup:
        return (progress + step) / schedule.warmup  # the first step moves already, the last of the warm-up is at the full rate
    if schedule.kind == "multistep":
        return schedule.factor ** sum(progress >= milestone for milestone in schedule.milestones)
    if schedule.kind == "step":
        return schedule.factor ** int(progress / schedule.every)
    if schedule.kind == "cosine":
        done = (progress - schedule.warmup) / (epochs - schedule.warmup)
        return schedule.final + (1 - schedule.final) * (1 + cos(pi * min(max(done, 0.0), 1.0))) / 2
    return schedule.factor**drops if schedule.kind == "plateau" else 1.0


@dataclass
class Plateau:
    """Counts epochs without a better score (accuracy, or minus the error); after more than `patience` of them the rate drops once more."""

    best: float = -inf
    bad: int = 0
    drops: int = 0

    def see(self, accuracy: float, schedule: Schedule) -> None:
        """The score of one more epoch."""
        if self.best == -inf or accuracy > self.best + schedule.threshold * abs(self.best):
            self.best, self.bad = accuracy, 0
            return
        self.bad += 1
        if self.bad > schedule.patience:
            self.bad, self.drops = 0, self.drops + 1


# --- the average of the weights -----------------------------------------------------------------------------------------


class AveragedWeights:
    """avg ← decay · avg + (1 − decay) · weights after every step; what is not a floating point number is copied."""

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.net, self.decay = net, decay
        self.state: dict[str, Tensor] = {name: value.detach().clone() for name, value in net.state_dict().items()}

    @torch.no_grad()
    def update(self) -> None:
        """After a step."""
        for name, value in self.net.state_dict().items():
            if value.is_floating_point():
                self.state[name].lerp_(value, 1 - self.decay)
            else:
                self.state[name].copy_(value)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the network has the averaged weights."""
        own = {name: value.detach().clone() for name, value in self.net.state_dict().items()}
        self.net.load_state_dict(self.state)
        try:
            yield
        finally:
            self.net.load_state_dict(own)
