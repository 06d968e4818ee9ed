"""Butcher tableaux: one constant per method.

A Runge–Kutta step of size h evaluates stages and combines them,

    k_i = f(t + c_i h, y + h Σ_j a_ij k_j),        y1 = y + h Σ_i b_i k_i,        error ≈ h Σ_i b_error_i k_i,

where b_error = b − b̂ is the difference to an embedded method of lower order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import sqrt

import numpy as np

from continua.errors import ConfigError, unknown_name
from continua.ode.order import MAX_ORDER, achieved_order, continuous_extension
from continua.ode.plain import Options, Plain, build


@dataclass(frozen=True, eq=False)
class Tableau:
    """A Runge–Kutta method. `a` is given by rows; explicit methods may leave out the zeros on and above the diagonal.

    `order` is checked against the order conditions when given and found from them when not. `dense` holds the coefficients of the
    interpolant, b_i(θ) = `Σ_p dense[i][p] θ^(p+1)`; left out, the best one that the stages allow is derived.
    """

    a: Sequence[Sequence[float]]
    b: Sequence[float]
    c: Sequence[float]
    b_error: Sequence[float] | None = None
    order: int = 0
    name: str = "custom"
    dense: Sequence[Sequence[float]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        stages = len(self.b)
        error = self.b if self.b_error is None else self.b_error
        if len(self.a) != stages or len(self.c) != stages or len(error) != stages:
            sizes = f"a has {len(self.a)} rows, b {stages}, c {len(self.c)}, b_error {len(error)}"
            raise ConfigError(f"tableau {self.name}: {sizes} entries; all must equal the number of stages")
        if any(len(row) > stages for row in self.a):
            raise ConfigError(f"tableau {self.name}: a row of a has more than {stages} entries")
        rows = tuple(tuple(map(float, row)) + (0.0,) * (stages - len(row)) for row in self.a)
        object.__setattr__(self, "a", rows)
        object.__setattr__(self, "b", tuple(map(float, self.b)))
        object.__setattr__(self, "c", tuple(map(float, self.c)))
        if self.b_error is not None:
            object.__setattr__(self, "b_error", tuple(map(float, self.b_error)))
        self._check()
        # Found now, since a compiled solve can read a cached property but not compute it (Python 3.11 locks meanwhile).
        _ = self.explicit, self.diagonal, self.stiffly_accurate, self.reuses_last, self.fsal, self.estimate_order, self.needed
        if self.explicit:
            _ = self.interpolant, self.with_end_stage()

    def _check(self) -> None:
        a, b, c = np.array(self.a), np.array(self.b), np.array(self.c)
        error = None if self.b_error is None else np.array(self.b_error)
        if not all(np.isfinite(part).all() for part in (a, b, c, 0.0 if error is None else error)):
            raise ConfigError(f"tableau {self.name}: all its numbers must be finite")
        wrong = np.flatnonzero(np.abs(a.sum(1) - c) > 1e-10)
        if len(wrong):
            i = wrong[0]
            raise ConfigError(f"tableau {self.name}: row {i} of a sums to {a[i].sum():.12g}, but c[{i}] = {c[i]:.12g}; they must be equal")
        achieved = achieved_order(a, b, at_most=self.order or MAX_ORDER)
        if achieved == 0:
            raise ConfigError(f"tableau {self.name}: b sums to {b.sum():.12g}; a consistent method needs 1")
        if achieved < self.order:
            raise ConfigError(f"tableau {self.name}: declared order {self.order}, but its order conditions hold only up to {achieved}")
        object.__setattr__(self, "order", self.order or achieved)
        if error is not None and abs(error.sum()) > 1e-10:
            raise ConfigError(f"tableau {self.name}: b_error sums to {error.sum():.12g}; the weights b − b̂ of an error estimate sum to 0")
        if error is not None and not error.any():
            raise ConfigError(f"tableau {self.name}: b_error is all zeros, so every step would be accepted; leave it out for fixed steps")
        if self.dense is not None:
            ends = [sum(row) for row in self.dense]
            if len(ends) != self.stages or np.abs(np.array(ends) - b).max() > 1e-6:
                raise ConfigError(f"tableau {self.name}: dense needs a row per stage that sums to its b, so that θ = 1 gives the new state")

    @property
    def stages(self) -> int:
        return len(self.b)

    @cached_property
    def explicit(self) -> bool:
        return all(self.a[i][j] == 0.0 for i in range(self.stages) for j in range(i, self.stages))

    @cached_property
    def diagonal(self) -> bool:
        """Diagonally implicit: each stage is found by itself, after those before it."""
        return not self.explicit and all(self.a[i][j] == 0.0 for i in range(self.stages) for j in range(i + 1, self.stages))

    @cached_property
    def stiffly_accurate(self) -> bool:
        """The last stage is taken at the new state."""
        return self.a[-1] == self.b and self.c[-1] == 1.0

    @cached_property
    def fsal(self) -> bool:
        """First same as last: the last stage is f at the end of the step, so the next step starts with it."""
        return self.explicit and self.stages > 1 and self.stiffly_accurate

    @cached_property
    def reuses_last(self) -> bool:
        """Explicit in its first stage and stiffly accurate: each step begins with the last stage of the one before."""
        return self.diagonal and not any(self.a[0]) and self.stiffly_accurate

    @cached_property
    def estimate_order(self) -> int:
        """k of an error estimate that falls as h^k, one more than the lower of the two orders; `order` where there is no estimate."""
        if self.b_error is None:
            return self.order
        embedded = achieved_order(np.array(self.a), np.array(self.b) - np.array(self.b_error), at_most=self.order)
        return min(self.order, embedded) + 1

    @cached_property
    def needed(self) -> int:
        """Stages that y1 depends on; trailing ones serve only the error estimate or the next step."""
        return max(i for i, weight in enumerate(self.b) if weight != 0.0) + 1

    @cached_property
    def interpolant(self) -> tuple[tuple[float, ...], ...]:
        """Polynomial weights of the stages, per stage the coefficients of θ, θ², …"""
        if self.dense is not None:
            return tuple(map(tuple, self.dense))
        coefficients, _ = continuous_extension(np.array(self.a), np.array(self.b), self.order, self.fsal, self.diagonal)
        return tuple(map(tuple, coefficients.tolist()))

    def with_end_stage(self) -> "Tableau":
        """The same method with f(t + h, y1) appended as a stage, which a smooth interpolant needs and the next step reuses."""
        return self if self.fsal or not self.explicit else self._with_end_stage

    @cached_property  # the interpolant of an extended tableau of high order takes long to find
    def _with_end_stage(self) -> "Tableau":
        widen = [(*row, 0.0) for row in self.a]
        b = (*self.b, 0.0)
        error = None if self.b_error is None else (*self.b_error, 0.0)
        return replace(self, a=[*widen, b], b=b, c=(*self.c, 1.0), b_error=error, dense=None)

    def plain(self) -> Plain:
        """Its numbers as JSON or YAML would hold them; `Tableau(**numbers)` is the same method again."""
        numbers = {item.name: getattr(self, item.name) for item in fields(self) if getattr(self, item.name) is not None}
        return {name: np.array(value).tolist() if isinstance(value, Sequence) else value for name, value in numbers.items()} | {
            "name": self.name
        }


def find_method(name: "str | Tableau | Options") -> Tableau:
    """The tableau of that name or of those numbers, as `Tableau.plain` writes them; a `Tableau` is passed through.

    Args:
        name: a name, a mapping of coefficients, or a tableau.

    Returns:
        The tableau.

    Raises:
        ConfigError: there is none of this name; the nearest are suggested.

    Examples:
        >>> from continua.ode import find_method
        >>> find_method("dopri5").order
        5
    """
    if isinstance(name, Tableau):
        return name
    if isinstance(name, Mapping):
        return build(Tableau, "entry of a tableau:", name)
    if not isinstance(name, str) or name not in METHODS:
        raise unknown_name(
            "method",
            name if isinstance(name, str) else repr(name),
            METHODS,
            see=f"known: {', '.join(METHODS)} (a Tableau of your own works too)",
        )
    return METHODS[name]


def name_of(method: "str | Tableau") -> "str | Plain":
    """The name of a method that has one; the numbers of a tableau of your own."""
    return method if isinstance(method, str) else next((name for name, known in METHODS.items() if method is known), method.plain())


EULER = Tableau(a=[[]], b=[1], c=[0], order=1, name="euler")
MIDPOINT = Tableau(a=[[], [1 / 2]], b=[0, 1], c=[0, 1 / 2], order=2, name="midpoint")
HEUN = Tableau(a=[[], [1]], b=[1 / 2, 1 / 2], c=[0, 1], b_error=[-1 / 2, 1 / 2], order=2, name="heun")
RALSTON = Tableau(a=[[], [2 / 3]], b=[1 / 4, 3 / 4], c=[0, 2 / 3], b_error=[-3 / 4, 3 / 4], order=2, name="ralston")
RK4 = Tableau(a=[[], [1 / 2], [0, 1 / 2], [0, 0, 1]], b=[1 / 6, 1 / 3, 1 / 3, 1 / 6], c=[0, 1 / 2, 1 / 2, 1], order=4, name="rk4")
RK38 = Tableau(a=[[], [1 / 3], [-1 / 3, 1], [1, -1, 1]], b=[1 / 8, 3 / 8, 3 / 8, 1 / 8], c=[0, 1 / 3, 2 / 3, 1], order=4, name="rk38")
# Bogacki & Shampine 1989.
BOSH3 = Tableau(
    a=[[], [1 / 2], [0, 3 / 4], [2 / 9, 1 / 3, 4 / 9]],
    b=[2 / 9, 1 / 3, 4 / 9, 0],
    c=[0, 1 / 2, 3 / 4, 1],
    b_error=[2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8],
    order=3,
    name="bosh3",
)
# Fehlberg 1969, the fifth-order solution carried forward (local extrapolation).
FEHLBERG45 = Tableau(
    a=[
        [],
        [1 / 4],
        [3 / 32, 9 / 32],
        [1932 / 2197, -7200 / 2197, 7296 / 2197],
        [439 / 216, -8, 3680 / 513, -845 / 4104],
        [-8 / 27, 2, -3544 / 2565, 1859 / 4104, -11 / 40],
    ],
    b=[16 / 135, 0, 6656 / 12825, 28561 / 56430, -9 / 50, 2 / 55],
    c=[0, 1 / 4, 3 / 8, 12 / 13, 1, 1 / 2],
    b_error=[16 / 135 - 25 / 216, 0, 6656 / 12825 - 1408 / 2565, 28561 / 56430 - 2197 / 4104, -9 / 50 + 1 / 5, 2 / 55],
    order=5,
    name="fehlberg45",
)
# Dormand & Prince 1980; error estimate and interpolant of Shampine 1986, as in the papers' solver, torchdiffeq and torchode. (SciPy's
# estimate is Dormand and Prince's own: 3/2 of this one, so up to 9 % more steps at the same tolerance.)
DOPRI5 = Tableau(
    a=[
        [],
        [1 / 5],
        [3 / 40, 9 / 40],
        [44 / 45, -56 / 15, 32 / 9],
        [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
        [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
        [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
    ],
    b=[35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0],
    c=[0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1],
    b_error=[71 / 86400, 0, -142 / 50085, 71 / 2880, -5751 / 169600, 44 / 1575, -1 / 60],
    order=5,
    name="dopri5",
    dense=[
        [1, -8048581381 / 2820520608, 8663915743 / 2820520608, -12715105075 / 11282082432],
        [0, 0, 0, 0],
        [0, 131558114200 / 32700410799, -68118460800 / 10900136933, 87487479700 / 32700410799],
        [0, -1754552775 / 470086768, 14199869525 / 1410260304, -10690763975 / 1880347072],
        [0, 127303824393 / 49829197408, -318862633887 / 49829197408, 701980252875 / 199316789632],
        [0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844],
        [0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423],
    ],
)
# The same with the error estimate of Dormand & Prince 1980 itself, 3/2 of Shampine's: SciPy's RK45.
RK45 = replace(DOPRI5, b_error=[1.5 * weight for weight in DOPRI5.b_error or ()], name="rk45")
# Tsitouras 2011, with its own interpolant.
TSIT5 = Tableau(
    a=[
        [],
        [0.161],
        [-0.008480655492356989, 0.335480655492357],
        [2.8971530571054935, -6.359448489975075, 4.3622954328695815],
        [5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525],
        [5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383],
        [0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774],
    ],
    b=[0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774, 0],
    c=[0, 0.161, 0.327, 0.9, 0.9800255409045097, 1, 1],
    b_error=[
        0.00178001105222577714,
        0.0008164344596567469,
        -0.007880878010261995,
        0.1447110071732629,
        -0.5823571654525552,
        0.45808210592918697,
        -1 / 66,
    ],
    order=5,
    name="tsit5",
    dense=[
        [1.0, -2.763706197274826, 2.9132554618219126, -1.0530884977290216],
        [0.0, 0.13169999999999998, -0.2234, 0.1017],
        [0.0, 3.930296236894751, -5.941033872131505, 2.490627285651253],
        [0.0, -12.411077166933676, 30.338188630282322, -16.548102889244902],
        [0.0, 37.50931341651104, -88.1789048947664, 47.37952196281928],
        [0.0, -27.896526289197286, 65.09189467479368, -34.87065786149661],
        [0.0, 1.5, -4.0, 2.5],
    ],
)
# Prince & Dormand 1981, RK8(7)13M.
DOPRI8 = Tableau(
    a=[
        [],
        [1 / 18],
        [1 / 48, 1 / 16],
        [1 / 32, 0, 3 / 32],
        [5 / 16, 0, -75 / 64, 75 / 64],
        [3 / 80, 0, 0, 3 / 16, 3 / 20],
        [29443841 / 614563906, 0, 0, 77736538 / 692538347, -28693883 / 1125000000, 23124283 / 1800000000],
        [16016141 / 946692911, 0, 0, 61564180 / 158732637, 22789713 / 633445777, 545815736 / 2771057229, -180193667 / 1043307555],
        [
            *(39632708 / 573591083, 0, 0, -433636366 / 683701615, -421739975 / 2616292301, 100302831 / 723423059),
            *(790204164 / 839813087, 800635310 / 3783071287),
        ],
        [
            *(246121993 / 1340847787, 0, 0, -37695042795 / 15268766246, -309121744 / 1061227803, -12992083 / 490766935),
            *(6005943493 / 2108947869, 393006217 / 1396673457, 123872331 / 1001029789),
        ],
        [
            *(-1028468189 / 846180014, 0, 0, 8478235783 / 508512852, 1311729495 / 1432422823, -10304129995 / 1701304382),
            *(-48777925059 / 3047939560, 15336726248 / 1032824649, -45442868181 / 3398467696, 3065993473 / 597172653),
        ],
        [
            *(185892177 / 718116043, 0, 0, -3185094517 / 667107341, -477755414 / 1098053517, -703635378 / 230739211),
            *(5731566787 / 1027545527, 5232866602 / 850066563, -4093664535 / 808688257, 3962137247 / 1805957418, 65686358 / 487910083),
        ],
        [
            *(403863854 / 491063109, 0, 0, -5068492393 / 434740067, -411421997 / 543043805, 652783627 / 914296604),
            *(11173962825 / 925320556, -13158990841 / 6184727034, 3936647629 / 1978049680, -160528059 / 685178525),
            *(248638103 / 1413531060, 0),
        ],
    ],
    b=[
        *(14005451 / 335480064, 0, 0, 0, 0, -59238493 / 1068277825, 181606767 / 758867731, 561292985 / 797845732),
        *(-1041891430 / 1371343529, 760417239 / 1151165299, 118820643 / 751138087, -528747749 / 2220607170, 1 / 4),
    ],
    c=[0, 1 / 18, 1 / 12, 1 / 8, 5 / 16, 3 / 8, 59 / 400, 93 / 200, 5490023248 / 9719169821, 13 / 20, 1201146811 / 1299019798, 1, 1],
    b_error=[
        *(14005451 / 335480064 - 13451932 / 455176623, 0, 0, 0, 0, -59238493 / 1068277825 + 808719846 / 976000145),
        *(181606767 / 758867731 - 1757004468 / 5645159321, 561292985 / 797845732 - 656045339 / 265891186),
        *(-1041891430 / 1371343529 + 3867574721 / 1518517206, 760417239 / 1151165299 - 465885868 / 322736535),
        *(118820643 / 751138087 - 53011238 / 667516719, -528747749 / 2220607170 - 2 / 45, 1 / 4),
    ],
    order=8,
    name="dopri8",
)
# Implicit methods: Gauss–Legendre of orders 2 and 4, Radau IIA of orders 3 and 5.
GAUSS2 = Tableau(a=[[1 / 2]], b=[1], c=[1 / 2], order=2, name="gauss2")
GAUSS4 = Tableau(
    a=[[1 / 4, 1 / 4 - sqrt(3) / 6], [1 / 4 + sqrt(3) / 6, 1 / 4]],
    b=[1 / 2, 1 / 2],
    c=[1 / 2 - sqrt(3) / 6, 1 / 2 + sqrt(3) / 6],
    order=4,
    name="gauss4",
)
RADAU3 = Tableau(a=[[5 / 12, -1 / 12], [3 / 4, 1 / 4]], b=[3 / 4, 1 / 4], c=[1 / 3, 1], order=3, name="radau3")
RADAU5 = Tableau(
    a=[
        [(88 - 7 * sqrt(6)) / 360, (296 - 169 * sqrt(6)) / 1800, (-2 + 3 * sqrt(6)) / 225],
        [(296 + 169 * sqrt(6)) / 1800, (88 + 7 * sqrt(6)) / 360, (-2 - 3 * sqrt(6)) / 225],
        [(16 - sqrt(6)) / 36, (16 + sqrt(6)) / 36, 1 / 9],
    ],
    b=[(16 - sqrt(6)) / 36, (16 + sqrt(6)) / 36, 1 / 9],
    c=[(4 - sqrt(6)) / 10, (4 + sqrt(6)) / 10, 1],
    order=5,
    name="radau5",
)
# Kværnø 2004, ESDIRK 3/2 with γ the middle root of γ³ − 3γ² + 3γ/2 − 1/6: L-stable; the embedded method, its third stage, A-stable.
_G = 0.435866521508459
KVAERNO3 = Tableau(
    a=[
        [],
        [_G, _G],
        [(-4 * _G**2 + 6 * _G - 1) / (4 * _G), (1 - 2 * _G) / (4 * _G), _G],
        [(6 * _G - 1) / (12 * _G), -1 / ((24 * _G - 12) * _G), (-6 * _G**2 + 6 * _G - 1) / (6 * _G - 3), _G],
    ],
    b=[(6 * _G - 1) / (12 * _G), -1 / ((24 * _G - 12) * _G), (-6 * _G**2 + 6 * _G - 1) / (6 * _G - 3), _G],
    c=[0, 2 * _G, 1, 1],
    b_error=[
        (6 * _G - 1) / (12 * _G) - (-4 * _G**2 + 6 * _G - 1) / (4 * _G),
        -1 / ((24 * _G - 12) * _G) - (1 - 2 * _G) / (4 * _G),
        (-6 * _G**2 + 6 * _G - 1) / (6 * _G - 3) - _G,
        _G,
    ],
    order=3,
    name="kvaerno3",
)
# Kværnø 2004, ESDIRK 5/4 with γ = 0.26: L-stable; the embedded method, its sixth stage, A-stable.
_ROWS = (
    (0.13855640231268224, 0, -0.04245337201752043, 0.02446657898003141, 0.61943039072480676, 0.26, 0),
    (0.13659751177640291, 0, -0.05496908796538376, -0.04118626728321046, 0.62993304899016403, 0.06962479448202728, 0.26),
)
KVAERNO5 = Tableau(
    a=[
        [],
        [0.26, 0.26],
        [0.13, 0.84033320996790809, 0.26],
        [0.22371961478320505, 0.47675532319799699, -0.06470895363112615, 0.26],
        [0.16648564323248321, 0.10450018841591720, 0.03631482272098715, -0.13090704451073998, 0.26],
        *_ROWS,
    ],
    b=_ROWS[1],
    c=[0, 0.52, 1.23033320996790809, 0.89576598434987589, 0.43639360985864838, 1, 1],
    b_error=[new - old for old, new in zip(*_ROWS, strict=True)],
    order=5,
    name="kvaerno5",
)

_EXPLICIT = (EULER, MIDPOINT, HEUN, RALSTON, RK4, RK38, BOSH3, FEHLBERG45, DOPRI5, RK45, TSIT5, DOPRI8)
_ALL = (*_EXPLICIT, GAUSS2, GAUSS4, RADAU3, RADAU5, KVAERNO3, KVAERNO5)
METHODS: dict[str, Tableau] = {tableau.name: tableau for tableau in _ALL}
"""Tableaux by name."""
