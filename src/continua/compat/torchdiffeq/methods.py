"""torchdiffeq's methods by its names: what each is here, and the options and callbacks it knows."""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal

from continua.errors import unknown_name
from continua.ode import Tableau, find_method

Kind = Literal["adaptive", "fixed", "implicit", "adams", "scipy"]

_GRID = {"step_size", "grid_constructor", "interp", "perturb", "norm"}
OPTIONS: dict[Kind, set[str]] = {
    "adaptive": {
        "norm",
        "first_step",
        "safety",
        "ifactor",
        "dfactor",
        "max_num_steps",
        "dtype",
        "step_t",
        "jump_t",
        "min_step",
        "max_step",
    },
    "fixed": _GRID,
    "implicit": _GRID | {"max_iters"},
    "adams": _GRID | {"max_iters", "max_order"},
    "scipy": {"solver", "min_step", "max_step", "norm", "grid_points", "eps"},
}
CALLBACKS = ("callback_step", "callback_accept_step", "callback_reject_step")


@dataclass(frozen=True)
class Method:
    """A method of torchdiffeq. `tableau` of a multistep method is that of its first steps; SciPy's have none."""

    name: str
    kind: Kind
    tableau: Tableau | None = None

    @property
    def on_grid(self) -> bool:
        """Whether its steps are given rather than chosen."""
        return self.kind in ("fixed", "implicit", "adams")

    @property
    def callbacks(self) -> tuple[str, ...]:
        """The callbacks that its solves can make."""
        return CALLBACKS if self.kind == "adaptive" else CALLBACKS[:1] if self.on_grid else ()


def find(name: str | None) -> Method:
    """The method of that name; None is dopri5."""
    if name is None:
        return METHODS["dopri5"]
    if name not in METHODS:
        raise unknown_name("method", name, METHODS, see=f"known: {', '.join(METHODS)}")
    return METHODS[name]


# Fehlberg 1969, RKF1(2), the second-order solution carried forward.
FEHLBERG2 = Tableau(
    a=[[], [1 / 2], [1 / 256, 255 / 256]],
    b=[1 / 512, 255 / 256, 1 / 512],
    c=[0, 1 / 2, 1],
    b_error=[-1 / 512, 0, 1 / 512],
    order=2,
    name="fehlberg2",
)
HEUN2 = replace(find_method("heun"), b_error=None, name="heun2")
HEUN3 = Tableau(a=[[], [1 / 3], [0, 2 / 3]], b=[1 / 4, 0, 3 / 4], c=[0, 1 / 3, 2 / 3], order=3, name="heun3")
IMPLICIT_EULER = Tableau(a=[[1]], b=[1], c=[1], order=1, name="implicit_euler")
TRAPEZOID = Tableau(a=[[0, 0], [1 / 2, 1 / 2]], b=[1 / 2, 1 / 2], c=[0, 1], order=2, name="trapezoid")
GAUSS6 = Tableau(
    a=[
        [5 / 36, 2 / 9 - sqrt(15) / 15, 5 / 36 - sqrt(15) / 30],
        [5 / 36 + sqrt(15) / 24, 2 / 9, 5 / 36 - sqrt(15) / 24],
        [5 / 36 + sqrt(15) / 30, 2 / 9 + sqrt(15) / 15, 5 / 36],
    ],
    b=[5 / 18, 4 / 9, 5 / 18],
    c=[1 / 2 - sqrt(15) / 10, 1 / 2, 1 / 2 + sqrt(15) / 10],
    order=6,
    name="gl6",
)
# Alexander 1977: two diagonally implicit stages, L-stable.
_D = 1 - sqrt(2) / 2
SDIRK2 = Tableau(a=[[_D], [1 - _D, _D]], b=[1 - _D, _D], c=[_D, 1], order=2, name="sdirk2")
# Bank et al. 1985, as one Runge–Kutta method (Hosea & Shampine 1996): trapezoid to 2d, then BDF2.
_W = sqrt(2) / 4
TRBDF2 = Tableau(a=[[], [_D, _D], [_W, _W, _D]], b=[_W, _W, _D], c=[0, 2 * _D, 1], order=2, name="trbdf2")

_EMBEDDED = {name: find_method(name) for name in ("dopri8", "dopri5", "tsit5", "bosh3")}
_EMBEDDED |= {"fehlberg2": FEHLBERG2, "adaptive_heun": find_method("heun")}
# torchdiffeq's rk4 is the 3/8 rule.
_EXPLICIT = {"euler": find_method("euler"), "midpoint": find_method("midpoint"), "heun2": HEUN2}
_EXPLICIT |= {"heun3": HEUN3, "rk4": find_method("rk38")}
_IMPLICIT = {"implicit_euler": IMPLICIT_EULER, "implicit_midpoint": find_method("gauss2"), "trapezoid": TRAPEZOID}
_IMPLICIT |= {"radauIIA3": find_method("radau3"), "gl4": find_method("gauss4"), "radauIIA5": find_method("radau5"), "gl6": GAUSS6}
_IMPLICIT |= {"sdirk2": SDIRK2, "trbdf2": TRBDF2}
_ADAMS = dict.fromkeys(("explicit_adams", "implicit_adams", "fixed_adams"), find_method("rk38"))

METHODS: dict[str, Method] = {
    **{name: Method(name, "adaptive", tableau) for name, tableau in _EMBEDDED.items()},
    **{name: Method(name, "fixed", tableau) for name, tableau in _EXPLICIT.items()},
    **{name: Method(name, "adams", tableau) for name, tableau in _ADAMS.items()},
    **{name: Method(name, "implicit", tableau) for name, tableau in _IMPLICIT.items()},
    "scipy_solver": Method("scipy_solver", "scipy"),
}
"""Methods by name."""
