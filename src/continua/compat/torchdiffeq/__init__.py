"""torchdiffeq's functions, solved by Continua: `import continua.compat.torchdiffeq as torchdiffeq` is all that changes.

inputs.py       what is asked: checked, with its defaults
state.py        states of any shape, complex and tuples of them, as the solver lays them out
methods.py      the methods by torchdiffeq's names
integrate.py    `odeint` of a problem: chooses steps and gradient
grid.py         steps on a given grid; interpolation, perturbed ends
adams.py        multistep methods
implicit.py     implicit steps, differentiable like any other operation
through_scipy.py    `scipy_solver`
hooks.py        callbacks, norms and tolerances inside a solve
event.py        solves that end where a function crosses zero
adjoint.py      the continuous adjoint
interface.py    the three functions
"""

from continua.compat.torchdiffeq.interface import odeint, odeint_adjoint, odeint_dense, odeint_event

__all__ = ["odeint", "odeint_adjoint", "odeint_dense", "odeint_event"]
