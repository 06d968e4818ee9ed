"""The optimality system of a coupled block, solved as it stands: optimise first, then discretise (ANODEV2 eq. 7).

With J the loss, w the evolving weights, θ = K ⋆ w what the field uses, and p the parameters of q,

    α(1) = −∂J/∂z(1),    −α′ = (∂f/∂z)ᵀ α                                            (7a)
    γ = (∂f/∂θ)ᵀ α                                                                    (7b)
    β(1) = 0,            −β′ = (∂q/∂w)ᵀ β + ∫ₜ¹ Kᵀ(τ − t) γ(τ) dτ                     (7c, corrected)
    ∂J/∂w(0) = ∂R/∂w(0) − β(0),    ∂J/∂p = ∂R/∂p − ∫ (∂q/∂p)ᵀ β dt                    (7d, 7e)

in this order. The paper prints (1 − H(t)) ∫₀¹ in 7c, which is zero for every t > 0 and would make both gradients vanish; the variation in
w gives the integral over the rest of the interval, and γ(t) itself for K a Dirac delta.

Not recommended for training: each equation has a discretisation error of its own, so the result is not the gradient of
the loss that was computed; it approaches that one (`gradient="checkpoint"`, the default) only as steps shrink. It is here for comparison.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from continua.blocks.field import Field
from continua.blocks.ode import ODEBlock
from continua.errors import ConfigError
from continua.filters import Evolution, Evolved, Filter, FilterConv2d, Grid, Kernel, Remembering

SCHEMES = {"euler": 1, "heun": 2}
"""Order of each scheme: both look at f and q at the nodes of the grid only."""


@dataclass(frozen=True)
class OptimalityGradients:
    """∂J/∂z(0), and ∂J of every parameter under its name in the block; `loss` is J."""

    loss: float
    state: Tensor
    parameters: dict[str, Tensor]


def optimality_gradients(
    block: ODEBlock,
    z: Tensor,
    loss: Callable[[Tensor], Tensor],
    *,
    steps: int | None = None,
    scheme: str = "euler",
    regulariser: Callable[[Mapping[str, Tensor]], Tensor] | None = None,
) -> OptimalityGradients:
    """The gradients of loss(z(t1)) by the optimality system, on `steps` steps (default: those of the block's solver).

    Args:
        block: the ODE block.
        z: its input.
        loss: from the block's output to a number.
        steps: steps of the backward solve; None: as many as the block takes.
        scheme: how the backward equations are stepped.
        regulariser: R of eq. 5a, from the block's parameters by name, w(0) and p among them, to a number; it is part of the loss.

    Returns:
        Gradients to the input and to the parameters.

    Raises:
        ConfigError: an unknown scheme, fewer than one step, or a network with BatchNorm.

    Examples:
        >>> from continua.blocks import optimality_gradients
        >>> optimality_gradients(block, z, lambda out: out.square().mean())  # doctest: +SKIP
    """
    given = block.solver.steps if steps is None else steps
    if scheme not in SCHEMES or not isinstance(given, int):
        raise ConfigError(f"the optimality system is solved by {' or '.join(SCHEMES)} in equal steps; got scheme={scheme!r}, steps={given}")
    steps = given
    if isinstance(block.field, Field) and block.field.stepwise:
        raise ConfigError(
            "batch statistics that change from step to step have no limit of small steps; build the network with norm='group'"
        )
    grid = Grid(float(block.t0), float(block.t1), steps)
    system = _System(block, z, grid)
    found = _Adjoints(system, grid, scheme == "heun").solve(z.detach(), loss)
    return found if regulariser is None else _regularised(found, block, regulariser)


def _regularised(found: OptimalityGradients, block: ODEBlock, regulariser: Callable[[Mapping[str, Tensor]], Tensor]) -> OptimalityGradients:
    """∂R of 7d and 7e, added to what the adjoint equations gave; R depends on no state, so it enters nowhere else."""
    named = {name: parameter for name, parameter in block.named_parameters() if name in found.parameters}
    with torch.enable_grad():
        value = regulariser(named)
    shares = _transposed_products(value, torch.ones_like(value), list(named.values()))
    total = {name: found.parameters[name] + share for name, share in zip(named, shares, strict=True)}
    return OptimalityGradients(found.loss + float(value.detach()), found.state, {**found.parameters, **total})


class _Given(Filter):
    """A filter whose state at one moment is handed to it."""

    def __init__(self, inner: Filter) -> None:
        super().__init__(inner.in_channels, inner.out_channels)
        self.inner, self.size, self.jet_order = inner, inner.size, inner.jet_order
        self.now: dict[str, Tensor] = {}

    def state(self) -> dict[str, Tensor]:
        return {**self.inner.state(), **self.now}

    def read_host(self, state: dict[str, Tensor]) -> object:
        return self.inner.read_host(state)

    def kernel(self, state: dict[str, Tensor], t: Tensor | float | None = None, host: object = None) -> Kernel:
        return self.inner.kernel(state, None, host)


@dataclass
class _Weight:
    """One evolving weight: where it is used, by which equation it moves, w and θ at the nodes."""

    name: str
    part: str
    given: _Given
    start: Tensor
    evolution: Evolution
    memory: Tensor | None
    w: Tensor
    theta: Tensor
    gamma: list[Tensor] = field(default_factory=list)


class _System:
    """f(z, θ) with θ in its hands, and the weights' own equations."""

    def __init__(self, block: ODEBlock, z: Tensor, grid: Grid) -> None:
        shared = {id(tensor): tensor for tensor in (*block.parameters(), *block.buffers())}
        self.names = {id(parameter): f"field.{name}" for name, parameter in block.field.named_parameters()}
        self.field = copy.deepcopy(block.field, shared)
        self.times = grid.times
        self.weights: list[_Weight] = []
        for conv in [module for module in self.field.modules() if isinstance(module, FilterConv2d)]:
            if isinstance(conv.filter, Evolved):
                self._take_over(conv, conv.filter, grid)
        evolving = {id(weight.start) for weight in self.weights}
        evolving |= {id(p) for weight in self.weights for p in weight.evolution.parameters()}
        self.others = [p for p in block.field.parameters() if id(p) not in evolving and p.requires_grad]

    def _take_over(self, conv: FilterConv2d, filter: Evolved, grid: Grid) -> None:
        if filter.clock != 1.0:
            raise ConfigError("the optimality system has one time for weights and activations; coupling 2 gives the weights a faster clock")
        given = _Given(filter.inner)
        for part, evolution in filter.evolving():
            inner = evolution.evolution if isinstance(evolution, Remembering) else evolution
            if not inner.has_rate:
                raise ConfigError(
                    f"{type(inner).__name__} is stepped and has no rate of change, so no adjoint equation either; "
                    "use nonlinearity='identity' (eq. 12) or around='rate' (eq. 8)"
                )
            start = filter.inner.state()[part]
            with torch.no_grad():
                path = inner.path(start, grid)
                w = torch.stack([path.at(t) for t in grid.times])
                memory = evolution.quadrature(grid, w) if isinstance(evolution, Remembering) else None
                theta = w if memory is None else (memory @ w.flatten(1)).reshape(w.shape)
            self.weights.append(_Weight(self.names[id(start)], part, given, start, inner, memory, w, theta))
        conv.filter = given

    def f(self, node: int, z: Tensor, theta: list[Tensor]) -> Tensor:
        for weight, now in zip(self.weights, theta, strict=True):
            weight.given.now[weight.part] = now
        t = torch.tensor(self.times[node], dtype=z.dtype, device=z.device)
        return self.field(t, z)

    def vjp(self, node: int, z: Tensor, alpha: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """(∂f/∂z)ᵀα, (∂f/∂θ)ᵀα and (∂f/∂ other parameters)ᵀα at a node."""
        with torch.enable_grad():
            point = z.detach().requires_grad_()
            theta = [weight.theta[node].detach().requires_grad_() for weight in self.weights]
            change = self.f(node, point, theta)
        products = _transposed_products(change, alpha, [point, *theta, *self.others])
        return products[0], products[1 : 1 + len(theta)], products[1 + len(theta) :]


class _Adjoints:
    """The three adjoint equations on the grid, from the last node to the first."""

    def __init__(self, system: _System, grid: Grid, heun: bool) -> None:
        self.system, self.steps, self.h, self.heun = system, grid.steps, grid.step, heun
        self.share = [grid.step * (0.5 if n in (0, grid.steps) else 1.0) for n in range(grid.steps + 1)]  # trapezoidal rule

    def solve(self, z: Tensor, loss: Callable[[Tensor], Tensor]) -> OptimalityGradients:
        states = self._forward(z)
        end = states[-1].requires_grad_()
        with torch.enable_grad():
            value = loss(end)
            alpha = -torch.autograd.grad(value, end)[0]
        alpha, others = self._activations(states, alpha)
        gradients = {self.system.names[id(p)]: total for p, total in zip(self.system.others, others, strict=True)}
        for weight in self.system.weights:
            start, parameters = self._weights(weight)
            gradients[weight.name] = start
            for p, total in zip(weight.evolution.parameters(), parameters, strict=True):
                gradients[self.system.names[id(p)]] = total
        return OptimalityGradients(float(value.detach()), -alpha, gradients)

    @torch.no_grad()
    def _forward(self, z: Tensor) -> list[Tensor]:
        system, states = self.system, [z]
        for n in range(self.steps):
            here, there = ([weight.theta[m] for weight in system.weights] for m in (n, n + 1))
            k = system.f(n, states[-1], here)
            if self.heun:
                k = 0.5 * (k + system.f(n + 1, states[-1] + self.h * k, there))
            states.append(states[-1] + self.h * k)
        return states

    def _activations(self, states: list[Tensor], alpha: Tensor) -> tuple[Tensor, list[Tensor]]:
        """7a backwards, with 7b at every node; returns α(0) and −∫ (∂f/∂o)ᵀ α dt of all other parameters o."""
        system, totals = self.system, [torch.zeros_like(p) for p in self.system.others]
        for n in range(self.steps, -1, -1):
            change, gamma, others = system.vjp(n, states[n], alpha)
            for weight, part in zip(system.weights, gamma, strict=True):
                weight.gamma.insert(0, part)
            for total, part in zip(totals, others, strict=True):
                total.sub_(part, alpha=self.share[n])
            if n:
                if self.heun:
                    change = 0.5 * (change + system.vjp(n - 1, states[n - 1], alpha + self.h * change)[0])
                alpha = alpha + self.h * change
        return alpha, totals

    def _weights(self, weight: _Weight) -> tuple[Tensor, list[Tensor]]:
        """7c backwards; returns 7d and 7e."""
        source, beta = self._source(weight), torch.zeros_like(weight.w[0])
        totals = [torch.zeros_like(p) for p in weight.evolution.parameters()]
        for n in range(self.steps, -1, -1):
            change, parameters = self._vjp(weight, n, beta)
            for total, part in zip(totals, parameters, strict=True):
                total.sub_(part, alpha=self.share[n])
            if n:
                change = change + source[n]
                if self.heun:
                    change = 0.5 * (change + self._vjp(weight, n - 1, beta + self.h * change)[0] + source[n - 1])
                beta = beta + self.h * change
        return -beta, totals

    def _source(self, weight: _Weight) -> Tensor:
        """∫ₜ¹ Kᵀ(τ − t) γ(τ) dτ at the nodes: the quadrature that made θ of w, transposed. γ itself for a Dirac delta."""
        gamma = torch.stack(weight.gamma)
        if weight.memory is None:
            return gamma
        share = gamma.new_tensor(self.share)
        table = (share[:, None] * weight.memory / share).T
        return (table @ gamma.flatten(1)).reshape(gamma.shape)

    def _vjp(self, weight: _Weight, node: int, beta: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(∂q/∂w)ᵀβ and (∂q/∂p)ᵀβ at a node."""
        with torch.enable_grad():
            point = weight.w[node].detach().requires_grad_()
            rate = weight.evolution(point.new_tensor(self.system.times[node]), point)
        products = _transposed_products(rate, beta, [point, *weight.evolution.parameters()])
        return products[0], products[1:]


def _transposed_products(output: Tensor, seed: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """(∂output/∂input)ᵀ seed of every input; zeros where the output does not depend on it."""
    if not output.requires_grad:
        return [torch.zeros_like(value) for value in inputs]
    products = torch.autograd.grad(output, inputs, seed, allow_unused=True)
    return [torch.zeros_like(value) if product is None else product for value, product in zip(inputs, products, strict=True)]
