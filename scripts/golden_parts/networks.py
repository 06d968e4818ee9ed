"""Every registered model, variants that reach further options, and the reconstruction network."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import continua
from golden_parts.book import Book, costs
from golden_parts.spellings import first_names, inner_states, reconstructor, solver_options

DCN: dict[str, Any] = dict(channels=[4, 8, 8])
PER_STEP: dict[str, Any] = dict(channels=[4], steps=2)
IMPLICIT = solver_options(method="gauss4", steps=4, implicit_options=dict(solver="fixed_point"))
PER_SAMPLE = dict(norm="group", solver=solver_options(method="tsit5", control="sample"))
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"gradient {gradient}": ("dcn_ode", DCN | dict(solver=solver_options(method="bosh3", gradient=gradient)))
        for gradient in ("checkpoint", "direct", "reversible", "adjoint")
    },
    "segments": ("dcn_ode", DCN | dict(solver=solver_options(gradient="checkpoint", segments="sqrt"))),
    "per sample": ("dcn_ode", DCN | dict(solver=solver_options(method="tsit5", control="sample", gradient="direct"))),
    "scheduled per sample": ("dcn_sigma_t", DCN | dict(solver=solver_options(method="dopri5", control="sample"))),
    "scheduled, largest radius": ("dcn_sigma_t2", DCN | dict(filter_options=dict(radius="max"))),
    "implicit solver": ("odenet", DCN | dict(solver=IMPLICIT)),
    "fixed steps": ("odenet", DCN | dict(solver=solver_options(method="rk4", steps=3, gradient="direct"), t1=2.0)),
    "solver as an object": ("dcn_full", DCN | dict(solver=continua.SolverConfig(**solver_options(rtol=1e-4, controller="pi")))),
    "dense route": ("dcn_ode", DCN | dict(conv_options=dict(route="dense"))),
    "separable route": ("dcn_ode", DCN | dict(conv_options=dict(route="separable"))),
    "order 4, augmented, grey": ("dcn_sigma_ji", DCN | dict(order=4, augment_channels=2, in_channels=1, stem_padding=1)),
    "residual N-jets": ("resnet_srf_full", DCN | dict(order=3, activation="gelu")),
    **{f"evolution {kind}": ("resnet4_anodev2_c1", PER_STEP | dict(evolution=kind)) for kind in ("linear", "conv", "hyper")},
    "evolved scales": ("resnet4_anodev2_c1", PER_STEP | dict(filters="njet", evolution=dict(alpha="linear", s="diffusion"))),
    "evolution with memory": ("resnet10_anodev2_c2", dict(channels=[4, 8], memory="exponential")),
    "free evolution per sample": ("resnet4_anodev2_c1", PER_STEP | PER_SAMPLE | dict(coupling="free")),
    "own rate": ("alexnet_anodev2_c2", dict(channels=[4], nonlinearity="identity", wave_numbers="radian")),
    "learned explicit, repeated": ("erknet", dict(stages="3x2_4x1", growth=4, share_steps=True, bottleneck=True, memory_efficient=True)),
    "learned explicit, N-jets": ("erknet", dict(stages="2x1_2x1", growth=4, m=2, filters="njet", attention=True, multiscale=False)),
    "learned implicit": ("irknet", dict(stages="3x1_2x2", growth=4, loops=2, order="jacobi", state_in_update=True, norm="group")),
    "spelled as printed": ("ERKNet-3x2_4x1_2x5_1x1", dict(growth=4)),
    "two ODE blocks": ("ode_only_net", dict(width=8, num_blocks=2, norm_groups=4, dropout=0.0)),
}


def write_models(book: Book) -> None:
    for name in continua.list_models():
        with book.attempt(name):
            record_network(book, name, partial(continua.create_model, name), 64 if "imagenet" in name else 32)
    for label, (name, options) in VARIANTS.items():
        with book.attempt(f"{label} ({name})"):
            record_network(book, f"{label} ({name})", partial(continua.create_model, name, **options), 16)
    for name in ("resnet_blocks", "dcn_ode"):
        with book.attempt(f"reconstruction ({name})"):
            record_network(book, f"reconstruction ({name})", partial(fresh_reconstructor, name), 16)


def fresh_reconstructor(encoder: str) -> Any:
    return reconstructor(continua.create_model(encoder, **DCN))


def pictures(channels: int, size: int, count: int = 3) -> Tensor:
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(size))


def record_network(book: Book, label: str, build: Callable[[], Any], size: int) -> None:
    """A fresh network: weights, answers, costs and gradients."""
    torch.manual_seed(0)
    net = build()
    weights = first_names(net.state_dict())
    config = getattr(net, "config", {})
    book.add(f"{label}/config", config)
    book.add(f"{label}/names", ", ".join(weights))
    book.add(f"{label}/initial", weights)
    book.add(f"{label}/parameters", sum(parameter.numel() for parameter in net.parameters()))
    images = pictures(config.get("options", {}).get("in_channels", 3), size)
    with torch.no_grad():
        book.add(f"{label}/output", net.eval()(images))
        book.add(f"{label}/costs", [costs(stats) for stats in net.stats if stats is not None])
    torch.manual_seed(1)  # dropout
    outputs = net.train()(images)
    if hasattr(net, "target"):
        loss = functional.mse_loss(outputs, net.target(images))
    else:
        loss = functional.cross_entropy(outputs, torch.arange(len(images)))
    loss.backward()
    book.add(f"{label}/training", {"output": outputs, "loss": loss})
    book.add(f"{label}/gradients", {name: p.grad for name, p in first_names(dict(net.named_parameters())).items() if p.grad is not None})
    book.add(f"{label}/buffers", dict(net.named_buffers()))
    book.add(f"{label}/training costs", [costs(stats) for stats in net.stats if stats is not None])
    if isinstance(net, continua.Network) and not hasattr(net, "target"):
        record_options(book, label, net.eval(), images)


@torch.no_grad()
def record_options(book: Book, label: str, net: Any, images: Tensor) -> None:
    """What else a network can be asked."""
    ends = torch.linspace(0.5, 1.5, len(images))
    other = solver_options(method="rk4", steps=2)
    book.refusable(f"{label}/first block", lambda: inner_states(net, images, 0))
    book.refusable(f"{label}/last block", lambda: inner_states(net, images, -1))
    book.refusable(f"{label}/dimmed", lambda: net(images, input_scale=0.5))
    book.refusable(f"{label}/end per sample", lambda: net(images, t1={0: ends}, input_scale=ends))
    book.refusable(f"{label}/with rk4", lambda: net.with_solver(**other)(images))
