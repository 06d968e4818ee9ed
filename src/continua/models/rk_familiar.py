"""Textbook methods to hold a learned one against: the matrix a_ij of a known Runge–Kutta method with as many stages."""

from continua.ode import find_method

EXPLICIT = {1: "euler", 2: "heun", 4: "rk4", 6: "fehlberg45", 7: "dopri5"}
IMPLICIT = {1: "gauss2", 2: "gauss4", 3: "radau5"}


def familiar_method(stages: int, implicit: bool) -> tuple[str, list[list[float]]]:
    """Name and a_ij; for numbers of stages without a well-known method, ones wherever such a method may have a number."""
    name = (IMPLICIT if implicit else EXPLICIT).get(stages)
    if name is not None:
        return name, [list(row) for row in find_method(name).a]
    kind = "implicit" if implicit else "explicit"
    return f"any {kind} method", [[1.0 if implicit or j < i else 0.0 for j in range(stages)] for i in range(stages)]
