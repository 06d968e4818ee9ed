"""One training step of `dcn_ode`: Continua against the authors' formulation on torchdiffeq, and in two steps of rk4 against plain modules.

The reference does what the published scripts do: the time is concatenated as a channel, the N-jet kernel is rebuilt at every evaluation,
gradients come from `odeint_adjoint`. So that one sees what comes from what, it is also timed with the kernel made once per solve, with
plain backpropagation through `odeint`, and with the adjoint's semi-norm. All networks have the same weights, tolerances and threads; the
stem, transitions and head are the same modules. Gradients are compared with a float64 solve of the same discretisation, differentiated
directly.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchdiffeq import odeint, odeint_adjoint

import continua as ct
from _common import computable, machine, medians, options, show_all
from continua.filters import fast_on_cpu

TOLERANCE = dict(rtol=1e-3, atol=1e-3)


class RebuiltNJetConv(nn.Module):
    """An N-jet convolution that samples its kernel anew at every call, with the time as channel 0 of its input."""

    def __init__(self, ours: nn.Module) -> None:
        super().__init__()
        self.alpha, self.s = nn.Parameter(ours.filter.alpha.detach().clone()), nn.Parameter(ours.filter.s.detach().clone())

        self.kept: Tensor | None = None  # a kernel made once per solve, where that is asked for

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        x = torch.cat([torch.ones_like(x[:, :1]) * t, x], dim=1)
        kernel = self.kernel() if self.kept is None else self.kept
        return functional.conv2d(x, kernel, padding=kernel.shape[-1] // 2)

    def kernel(self) -> Tensor:
        sigma = 2.0**self.s
        radius = int(torch.ceil(2 * sigma.detach() + 0.5))
        grid = torch.arange(-radius, radius + 1, dtype=sigma.dtype, device=sigma.device)
        g = torch.exp(-(grid**2) / (2 * sigma**2))
        g = g / g.sum()
        u = grid / sigma
        derivatives = [g, -u * g, (u**2 - 1) * g]
        basis = torch.stack([torch.outer(derivatives[i], derivatives[j]) for i in range(3) for j in range(2 - i, -1, -1)])
        return torch.einsum("fio,fhw->oihw", self.alpha, basis)


class RebuiltField(nn.Module):
    """The authors' field in plain modules."""

    def __init__(self, ours: nn.Module) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (copy.deepcopy(n) for n in (ours.norm1, ours.norm2, ours.norm3))
        self.conv1, self.conv2 = RebuiltNJetConv(ours.conv1), RebuiltNJetConv(ours.conv2)
        self.nfe = 0

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        self.nfe += 1
        h = self.conv1(t, functional.celu(self.norm1(h)))
        return self.norm3(self.conv2(t, functional.celu(self.norm2(h))))


class Reference(nn.Module):
    """Our network with its ODE blocks replaced by `block(field, h)`."""

    def __init__(self, ours: ct.Network, block: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.stem, self.transitions, self.head = (copy.deepcopy(part) for part in (ours.stem, ours.transitions, ours.head))
        self.fields = nn.ModuleList(RebuiltField(b.field) for b in ours.blocks)
        self.block = block

    def forward(self, images: Tensor) -> Tensor:
        h = self.stem(images)
        for index, field in enumerate(self.fields):
            h = self.block(field, self.transitions[index - 1](h) if index else h)
        return self.head(h)


def adjoint_block(field: nn.Module, h: Tensor, norm: str | None = None) -> Tensor:
    times = torch.tensor([0.0, 2.0], dtype=h.dtype)
    options = {} if norm is None else dict(adjoint_options=dict(norm=norm))
    return odeint_adjoint(field, h, times, **TOLERANCE, method="dopri5", adjoint_params=tuple(field.parameters()), **options)[-1]


def cached_block(field: "RebuiltField", h: Tensor) -> Tensor:
    """The adjoint with both kernels made once per solve."""
    convs = (field.conv1, field.conv2)
    for conv in convs:
        conv.kept = conv.kernel()
    norms = [p for n in (field.norm1, field.norm2, field.norm3) for p in n.parameters()]
    times = torch.tensor([0.0, 2.0], dtype=h.dtype)
    return odeint_adjoint(field, h, times, **TOLERANCE, method="dopri5", adjoint_params=(*norms, *(conv.kept for conv in convs)))[-1]


def backprop_block(field: nn.Module, h: Tensor) -> Tensor:
    return odeint(field, h, torch.tensor([0.0, 2.0], dtype=h.dtype), **TOLERANCE, method="dopri5")[-1]


def rk4_block(field: nn.Module, h: Tensor, steps: int = 2, t1: float = 2.0) -> Tensor:
    size = t1 / steps
    for index in range(steps):
        t = torch.tensor(index * size)
        k1 = field(t, h)
        k2 = field(t + size / 2, h + size / 2 * k1)
        k3 = field(t + size / 2, h + size / 2 * k2)
        k4 = field(t + size, h + size * k3)
        h = h + size / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return h


def network(sigma: float, **choices: object) -> ct.Network:
    torch.manual_seed(0)
    net = ct.create_model("dcn_ode", **choices)
    for block in net.blocks:
        for conv in (block.field.conv1, block.field.conv2):
            conv.filter.s.data.fill_(torch.log2(torch.tensor(sigma)))
    return net


def training_step(net: nn.Module, images: Tensor, labels: Tensor, bfloat16: bool) -> Callable[[], None]:
    def step() -> None:
        net.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
            logits = net(images)
        functional.cross_entropy(logits.float(), labels).backward()

    return step


def gradient_vector(net: nn.Module) -> Tensor:
    """All gradients, ordered by what they belong to, so that ours and the reference's line up."""
    parts = {
        name.replace("fields.", "blocks.").replace(".field.", ".").replace(".filter.", "."): p.grad for name, p in net.named_parameters()
    }
    return torch.cat([parts[name].double().flatten() for name in sorted(parts)])


def exact_gradient(net: ct.Network, images: Tensor, labels: Tensor) -> Tensor:
    """float64, differentiated directly through adaptive steps of the same tolerance."""
    wide = copy.deepcopy(net).double().with_solver(gradient="direct")
    training_step(wide, images.double(), labels, False)()
    return gradient_vector(wide)


def relative_error(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


FAIR: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "… kernel made once per solve": cached_block,
    "… semi-norm adjoint": lambda field, h: adjoint_block(field, h, "seminorm"),
    "… backpropagated through odeint": backprop_block,
}
"""The authors' formulation with one thing changed."""


def step_rows(sigma: float, batch: int, repeats: int, bfloat16: bool, fair: bool) -> list[dict]:
    images, labels = torch.rand(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    direct = dict(solver=dict(gradient="direct"))
    nets: dict[str, tuple[nn.Module, bool]] = {
        "authors' formulation, odeint_adjoint": (Reference(network(sigma), adjoint_block), False),
        **({name: (Reference(network(sigma), block), False) for name, block in FAIR.items()} if fair else {}),
        "continua, float32": (network(sigma), False),
        "continua, float32, direct": (network(sigma, **direct), False),
    }
    if bfloat16:
        nets["continua, bfloat16"] = (network(sigma), True)
        nets["continua, bfloat16, direct"] = (network(sigma, **direct), True)
    cold = [name for name in nets if "continua" not in name]
    seconds = medians({name: training_step(net, images, labels, half) for name, (net, half) in nets.items()}, repeats, cold)
    exact = exact_gradient(network(sigma), images, labels)
    rows = []
    for name, (net, _) in nets.items():
        stats = [s for s in getattr(net, "stats", []) if s is not None]
        rows.append(
            {
                "one training step": f"{name}, σ = {sigma:g}",
                "seconds": seconds[name],
                "times faster": seconds["authors' formulation, odeint_adjoint"] / seconds[name],
                "gradient error": f"{relative_error(gradient_vector(net), exact):.1e}",
                "NFE": "/".join(str(s.nfe) for s in stats) if stats else "",
            }
        )
    return rows


def fixed_rows(batch: int, repeats: int, bfloat16: bool) -> list[dict]:
    """Whole `dcn_ode` in two steps of rk4, against the same network in plain modules."""
    images, labels = torch.rand(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    fixed = dict(method="rk4", steps=2)
    nets: dict[str, tuple[nn.Module, bool]] = {
        "plain PyTorch modules": (Reference(network(1.0), rk4_block), False),
        "continua, sampled, direct": (network(1.0, solver=dict(**fixed, gradient="direct")), False),
        "continua, sampled, checkpoint": (network(1.0, solver=fixed), False),
    }
    if bfloat16:
        nets["plain PyTorch modules, bfloat16"] = (Reference(network(1.0), rk4_block), True)
        nets["continua, sampled, direct, bfloat16"] = (network(1.0, solver=dict(**fixed, gradient="direct")), True)
    seconds = medians({name: training_step(net, images, labels, half) for name, (net, half) in nets.items()}, repeats)
    return [
        {
            "rk4, 2 steps": name,
            "images/s": batch / seconds[name],
            "times faster": seconds["plain PyTorch modules"] / seconds[name],
        }
        for name in nets
    ]


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.set_defaults(threads=2)
    parser.add_argument("--batch", type=int, default=64, help="images of the training step (two steps of rk4 take twice as many)")
    parser.add_argument("--sigma", type=float, nargs="*", default=[1.0, 2.0])
    parser.add_argument("--parts", nargs="+", choices=["step", "fixed"], default=["step", "fixed"], help="which of the two tables")
    parser.add_argument("--no-fair", action="store_true", help="leave out the authors' formulation with one thing changed")
    parser.add_argument("--bfloat16", choices=["auto", "yes", "no"], default="auto", help="auto: where the CPU has it fast")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    wanted = chosen.bfloat16 != "no" and computable("bfloat16")
    bfloat16 = wanted and (chosen.bfloat16 == "yes" or fast_on_cpu(torch.bfloat16))
    about = machine("torchdiffeq")
    tables = {}
    if "step" in chosen.parts:
        sigmas = chosen.sigma
        fair = [] if chosen.no_fair else sigmas[:1]
        how = dict(batch=chosen.batch, repeats=chosen.repeats, bfloat16=bfloat16)
        rows = [row for sigma in sigmas for row in step_rows(sigma, fair=sigma in fair, **how)]
        tables[f"dcn_ode, dopri5, tolerance 1e-3, batch {chosen.batch}"] = rows
    if "fixed" in chosen.parts:
        tables[f"dcn_ode in two steps of rk4, batch {2 * chosen.batch}"] = fixed_rows(2 * chosen.batch, chosen.repeats, bfloat16)
    show_all(tables, about, chosen.json)


if __name__ == "__main__":
    main()
