"""The optimiser of a recipe, with its groups of parameters: N-jet scales, evolution parameters, everything else."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.train.recipe import Optimiser


def build_optimiser(net: nn.Module, recipe: Optimiser) -> torch.optim.Optimizer:
    """SGD or AdamW over all parameters that train; each group knows its `lr_factor`."""
    decays = {"scales": recipe.scale_weight_decay, "evolution": recipe.evolution_weight_decay, "weights": None}
    factors = {"scales": recipe.scale_lr_factor, "evolution": recipe.evolution_lr_factor, "weights": 1.0}
    groups = []
    for name, parameters in parameter_groups(net).items():
        decay = decays[name]
        own = dict(weight_decay=recipe.weight_decay if decay is None else decay, lr_factor=factors[name], name=name)
        if parameters:
            groups.append({"params": parameters, "lr": recipe.lr * factors[name], **own})
    if not groups:
        raise ConfigError("this network has no parameters that train")
    if recipe.kind == "adamw":
        return torch.optim.AdamW(groups, betas=recipe.betas)
    return torch.optim.SGD(groups, momentum=recipe.momentum, nesterov=recipe.nesterov)


def set_lr(optimiser: torch.optim.Optimizer, lr: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = lr * group["lr_factor"]


def gradient_norm(net: nn.Module) -> float:
    """Of all gradients together; read once, as reading waits for a GPU."""
    return float(torch.nn.utils.get_total_norm([p.grad for p in net.parameters() if p.grad is not None]))


def parameter_groups(net: nn.Module) -> dict[str, list[Tensor]]:
    """The parameters that train, by what they are."""
    scales = {id(parameter) for parameter in scale_parameters(net)}
    evolution = {
        id(parameter)
        for module in net.modules()
        if callable(getattr(module, "path", None))  # the protocol of an evolution: its path through weight space
        for parameter in module.parameters()
    }
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
        if hasattr(module, "sigma") and "s" in own:
            yield own["s"]
        elif hasattr(module, "sigma_at"):
            yield from (own[name] for name in module.scale_names)  # pyright: ignore[reportGeneralTypeIssues, reportIndexIssue]


@torch.no_grad()
def sigmas(net: nn.Module) -> dict[str, "float | list[float]"]:
    """σ of every N-jet layer in pixels: one number; [least, mean, most] where it has several; σ at start, middle, end of a schedule."""
    found: dict[str, float | list[float]] = {}
    for name, module in net.named_modules():
        label = name.removesuffix(".filter")
        if hasattr(module, "sigma_at"):
            start, end = module.interval  # pyright: ignore[reportGeneralTypeIssues]
            times = torch.tensor([start, (start + end) / 2, end])
            found[label] = [round(float(module.sigma_at(t)), 6) for t in times]  # pyright: ignore[reportCallIssue]
        elif hasattr(module, "sigma") and hasattr(module, "s"):
            values = module.sigma.flatten()  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
            several = [float(values.min()), float(values.mean()), float(values.max())]  # pyright: ignore[reportArgumentType]
            found[label] = round(float(values[0]), 6) if values.numel() == 1 else [round(v, 6) for v in several]  # pyright: ignore
    return found
