"""Energies of a trajectory, integrated beside the state (Finlay et al. 2020, eq. 8 and 9), and the error its steps are estimated to make:

    kinetic    K = ∫ ‖f(t, h)‖² dt / d
    jacobian   J = ∫ ‖εᵀ ∂f/∂h‖² dt / d,  ε of random signs, so that J is on average ∫ ‖∂f/∂h‖²_F dt / d
    error      E = Σ_j ‖e_j‖ |h_j| / √d over accepted steps of size h_j, e_j the method's estimate of its error there (Pal et al. 2021, R_E)

for every sample, with d the number of elements of its state. ε is drawn once per solve: the integrand is then as smooth as f.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from continua.errors import ConfigError, unknown_name
from continua.ode import SolverConfig, Step, Tableau, local_error

INTEGRATED = ("kinetic", "jacobian")
ENERGIES = (*INTEGRATED, "error")
State = tuple[Tensor, ...]


class EnergyRate:
    """The rate of change of (h, energies), given that of h. `keeps_graph`: whether the solver's gradient does."""

    def __init__(self, rate: Callable[[Tensor, Tensor], Tensor], h: Tensor, names: Sequence[str], keeps_graph: bool) -> None:
        self.rate, self.names, self.keeps_graph = rate, tuple(names), keeps_graph
        self.probe = torch.randint_like(h, 2) * 2 - 1 if "jacobian" in self.names else None

    def __call__(self, t: Tensor, state: State) -> State:
        if self.probe is None:
            change = self.rate(t, state[0])
            return (change, _mean_square(change)) if self.names else (change,)
        change, product = self._with_product(t, state[0], self.probe)
        densities = {"kinetic": _mean_square(change), "jacobian": _mean_square(product)}
        return change, *(densities[name] for name in self.names)

    def _with_product(self, t: Tensor, h: Tensor, probe: Tensor) -> State:
        """f and εᵀ ∂f/∂h; both with a graph where they will be differentiated."""
        wanted = torch.is_grad_enabled()
        graph = wanted and (h.requires_grad or self.keeps_graph)
        with torch.enable_grad():
            point = h if graph and h.requires_grad else h.detach().requires_grad_()
            change = self.rate(t, point)
            try:
                (product,) = torch.autograd.grad(change, point, probe.to(change.dtype), create_graph=graph)
            except RuntimeError as error:
                raise ConfigError(f"the Jacobian energy needs a field that autograd can differentiate twice ({error})") from None
        if graph:
            return change, product
        # A solver that replays its steps first looks at one evaluation of its own: our leaf must not be part of what it sees.
        return self.rate(t, h) if wanted else change.detach(), product


class StepErrors:
    """Sums the estimated errors of the accepted steps of a solve, with their graph: one number for each sample."""

    def __init__(self, h: Tensor, tableau: Tableau) -> None:
        self.tableau = tableau
        self.total = h.new_zeros(len(h), dtype=torch.float32 if h.dtype in (torch.bfloat16, torch.float16) else h.dtype)

    def __call__(self, step: Step) -> None:
        error = local_error(self.tableau, step.h, [stage[:1] for stage in step.stages])[0].flatten(1)
        size = torch.linalg.vector_norm(error, dim=1, dtype=self.total.dtype) / error.shape[1] ** 0.5  # its slope at 0 is 0, not undefined
        share = size * torch.as_tensor(step.h, device=size.device).abs().to(size.dtype)
        self.total = self.total + share if step.rows is None else self.total.index_add(0, step.rows, share)


def check_energies(names: Sequence[str], solver: SolverConfig) -> None:
    """Refuse what cannot be integrated or differentiated."""
    for name in names:
        if name not in ENERGIES:
            raise unknown_name("energy", name, ENERGIES)
    if names and not solver.gradient.same_points:
        raise ConfigError(f"energies of a trajectory need gradient='checkpoint' or 'direct'; the solver has gradient={solver.gradient}")
    if "error" in names and not solver.gradient.keeps_graph:
        raise ConfigError(
            f"the error of a trajectory is differentiated through the steps themselves: gradient='direct'; the solver has "
            f"gradient={solver.gradient}"
        )
    if "error" in names and solver.tableau.b_error is None:
        raise ConfigError(f"{solver.tableau.name} estimates no error that could be weighed; use dopri5, tsit5, bosh3, ...")
    if "jacobian" in names and solver.control.per == "sample":
        raise ConfigError("the Jacobian energy needs one step for all samples: its probe belongs to the whole batch; use control='batch'")


def _mean_square(x: Tensor) -> Tensor:
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x  # squares of many small numbers
    return wide.square().flatten(1).mean(1).to(x.dtype)
