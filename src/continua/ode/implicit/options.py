"""The options of an implicit method."""

from dataclasses import dataclass
from typing import Literal

from continua.errors import ConfigError
from continua.ode.plain import Plain, is_whole, plain_differences
from continua.ode.tableau import Tableau, find_method, name_of

CHOICES = dict(solver=("newton", "fixed_point"), jacobian=("exact", "difference"), linear=("auto", "dense", "krylov"))


@dataclass(frozen=True)
class Implicit:
    """An implicit method, and how its stage equations are solved.

    `solver`: "newton" (for stiff equations; its linear systems by GMRES, or see `linear`) or "fixed_point" (plain iteration: converges only
    while the step is short, about |h λ| < 1). An iteration has converged when its last correction, relative to the state, is at most
    `tol` (default eps^(3/4): 2e-12 in float64, 6e-6 in float32; in adaptive steps a share of rtol and atol). `max_iterations` per step or
    stage: by default 20 for Newton, 200 for fixed point. `krylov`: the largest dimension of a Krylov space. `jacobian`: "exact"
    (derivatives of f by autograd) or "difference" (central differences, for an f that autograd cannot differentiate twice). `linear`, for
    methods whose stages follow one another (kvaerno3, kvaerno5): "dense" factorises the Jacobian of every sample, "krylov" needs products
    with it only; "auto" is dense for states of at most 100 numbers a sample.
    """

    tableau: "str | Tableau"
    solver: Literal["newton", "fixed_point"] = "newton"
    tol: float | None = None
    max_iterations: int | None = None
    krylov: int = 50
    jacobian: Literal["exact", "difference"] = "exact"
    linear: Literal["auto", "dense", "krylov"] = "auto"

    def __post_init__(self) -> None:
        tableau = find_method(self.tableau)
        object.__setattr__(self, "tableau", self.tableau if isinstance(self.tableau, str) else tableau)  # its numbers, of a file
        if tableau.explicit:
            raise ConfigError(
                f"Implicit({tableau.name!r}): {tableau.name} is explicit and solves no equations; use method={tableau.name!r}"
            )
        for name, values in CHOICES.items():
            if getattr(self, name) not in values:
                raise ConfigError(f"Implicit: {name}={getattr(self, name)!r}; expected one of {', '.join(map(repr, values))}")
        if self.tol is not None and not (isinstance(self.tol, int | float) and 0 < self.tol < 1):
            raise ConfigError(f"Implicit: tol={self.tol!r}; expected a number between 0 and 1, relative to the state")
        if self.max_iterations is None:
            object.__setattr__(self, "max_iterations", 20 if self.solver == "newton" else 200)
        for name in ("max_iterations", "krylov"):
            if not is_whole(getattr(self, name)):
                raise ConfigError(f"Implicit: {name}={getattr(self, name)!r}; expected a whole number of at least 1")

    def plain(self) -> "str | Plain":
        """The method and the options that differ from the defaults; the method alone where none does."""
        options = plain_differences(self, Implicit(self.tableau, solver=self.solver))
        if self.solver != "newton":
            options = {"solver": self.solver, **options}
        method = name_of(self.tableau)
        return {"tableau": method, **options} if options else method
