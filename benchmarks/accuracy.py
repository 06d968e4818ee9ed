"""Errors and evaluations on classic problems, ours beside SciPy's: nothing here is timed, so it may run beside other work.

    python benchmarks/accuracy.py                      both sets, as tables
    python benchmarks/accuracy.py --set detest --json > results/benchmarks/detest.json
    python benchmarks/accuracy.py --set stiff --json > results/benchmarks/stiff.json

DETEST: dopri5 and rk45 against SciPy's RK45, the same method; torchdiffeq's dopri5 beside them. The error is the largest over 20
equidistant times and all components, relative to 1 + |y|, in units of the tolerance (rtol = atol). Stiff: kvaerno3 and kvaerno5 against
SciPy's Radau and BDF; the error is that of the end state, in units of atol + rtol |y|. A Jacobian of ours is one evaluation and n
vector–Jacobian products, which are not counted; SciPy's costs n evaluations by differences, which are.
"""

import json
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torchdiffeq
from scipy.integrate import solve_ivp

from _common import machine, options, show_all
from continua import solve
from continua.ode import Status, StepControl
from ode_problems import DETEST, STIFF, Problem

TOLERANCES = (1e-3, 1e-6, 1e-9)
STIFF_TOLERANCES = (1e-4, 1e-6, 1e-8)
MOST = 20_000  # tried steps
GAVE_UP = "gave up"
Tables = dict[str, list[dict[str, Any]]]


def trajectory(problem: Problem, method: str, tolerance: float, atol: float, times: np.ndarray) -> tuple[np.ndarray, int]:
    """States (time, n) by SciPy, and what they cost."""
    found = solve_ivp(problem.rates, (0, problem.end), problem.y0, method, rtol=tolerance, atol=atol, t_eval=times)
    return found.y.T, found.nfev


def like_scipy() -> dict[str, Any]:
    """SciPy's constants of control."""
    return dict(method="rk45", control=StepControl(max_steps=MOST, accept_factor_min=0.2, hold_after_rejection=True))


SETTINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "dopri5": lambda: dict(control=StepControl(max_steps=MOST)),
    "rk45": lambda: dict(method="rk45", control=StepControl(max_steps=MOST)),
    "rk45, SciPy's control": like_scipy,
}


def by_torchdiffeq(problem: Problem, tolerance: float, times: np.ndarray) -> np.ndarray:
    """States (time, n) by torchdiffeq's dopri5, whose estimate and control our dopri5 has."""
    asked = torch.tensor(np.concatenate([[0.0], times]), dtype=torch.float64)
    return torchdiffeq.odeint(problem.f, problem.start, asked, rtol=tolerance, atol=tolerance, method="dopri5")[1:, 0].numpy()


def compare_nonstiff(problem: Problem, tolerance: float, settings: str) -> dict[str, Any]:
    """One row: dopri5 beside RK45."""
    times = np.linspace(0, problem.end, 21)[1:]
    exact, _ = trajectory(problem, "DOP853", 1e-13, 1e-13, times)
    theirs, their_cost = trajectory(problem, "RK45", tolerance, tolerance, times)
    with torch.no_grad():
        ours = solve(*(problem.f, problem.start, 0.0, problem.end), rtol=tolerance, atol=tolerance, save_at=times, **SETTINGS[settings]())
        peer = by_torchdiffeq(problem, tolerance, times)
    found = (ours.ys[:, 0].numpy(), theirs, peer)
    errors = [float((np.abs(y - exact) / (1 + np.abs(exact))).max() / tolerance) for y in found]
    return {
        "problem": problem.name,
        "error": errors[0],
        "SciPy's error": errors[1],
        "torchdiffeq's error": errors[2],
        "evaluations": int(ours.stats.nfe),
        "SciPy's evaluations": their_cost,
        "errors, ratio": errors[0] / errors[1],
        "evaluations, ratio": ours.stats.nfe / their_cost,
    }


def nonstiff() -> tuple[Tables, Tables]:
    """What the problems say together, and a table of them for each tolerance."""
    tables: Tables = {}
    summary = []
    for settings in SETTINGS:
        for tolerance in TOLERANCES:
            rows = [compare_nonstiff(problem, tolerance, settings) for problem in DETEST]
            tables[f"DETEST, {settings}, tolerance {tolerance:g}; errors in units of it"] = rows
            worst = max(rows, key=lambda row: row["errors, ratio"])
            summary.append(
                {
                    "settings": settings,
                    "tolerance": f"{tolerance:g}",
                    "error, median": statistics.median(row["error"] for row in rows),
                    "SciPy's error, median": statistics.median(row["SciPy's error"] for row in rows),
                    "torchdiffeq, largest ratio": max(row["torchdiffeq's error"] / row["SciPy's error"] for row in rows),
                    "largest ratio of errors": worst["errors, ratio"],
                    "in problem": worst["problem"],
                    "above 3": sum(row["errors, ratio"] > 3 for row in rows),
                    "evaluations, median ratio": statistics.median(row["evaluations, ratio"] for row in rows),
                }
            )
    return {"DETEST, 25 problems: errors in units of the tolerance": summary}, tables


def reference(problem: Problem) -> np.ndarray:
    found = solve_ivp(problem.rates, (0, problem.end), problem.y0, "Radau", rtol=1e-11, atol=1e-13 * problem.small)
    return found.y[:, -1]


def stiff_rows(problem: Problem, tolerance: float, exact: np.ndarray) -> list[dict[str, Any]]:
    """One row for each method."""
    atol = tolerance * problem.small
    scale = atol + tolerance * np.abs(exact)
    rows = []

    def row(method: str, end: "np.ndarray | None", evaluations: "int | str", steps: "int | str") -> None:
        error: Any = GAVE_UP if end is None else float((np.abs(end - exact) / scale).max())
        rows.append(
            {
                "problem": problem.name,
                "tolerance": f"{tolerance:g}",
                "method": method,
                "error": error,
                "evaluations": evaluations,
                "steps": steps,
            }
        )

    for method in ("kvaerno5", "kvaerno3", "dopri5"):
        limit = MOST if method != "dopri5" else 3_000
        with torch.no_grad():
            ours = solve(
                *(problem.f, problem.start, 0.0, problem.end),
                **dict(method=method, rtol=tolerance, atol=atol, control=StepControl(max_steps=limit), on_failure="status"),
            )
        good = ours.status == (Status.SUCCESS,)
        row(method, ours.y1[0].numpy() if good else None, int(ours.stats.nfe), int(ours.stats.accepted + ours.stats.rejected))
    for method in ("Radau", "BDF"):
        theirs = solve_ivp(problem.rates, (0, problem.end), problem.y0, method, rtol=tolerance, atol=atol)
        cost = theirs.nfev + theirs.njev * len(problem.y0)
        row(f"SciPy {method}", theirs.y[:, -1] if theirs.success else None, cost, len(theirs.t) - 1)
    return rows


def stiff() -> tuple[Tables, Tables]:
    """Errors and evaluations in one table, and a table with all numbers for each problem."""
    tables: Tables = {}
    summary = []
    for problem in STIFF:
        exact = reference(problem)
        title = f"{problem.name}, 0 to {problem.end:g}, atol = {problem.small:g} rtol"
        tables[title] = []
        for tolerance in STIFF_TOLERANCES:
            rows = stiff_rows(problem, tolerance, exact)
            tables[title] += rows
            cells = {
                row["method"]: row["error"] if row["error"] == GAVE_UP else f"{row['error']:.2g} / {row['evaluations']:,}" for row in rows
            }
            summary.append({"problem": problem.name, "rtol": f"{tolerance:g}", **cells})
    return {"Stiff problems: error in units of the tolerance / evaluations of f": summary}, tables


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--set", choices=("detest", "stiff", "both"), default="both", help="which problems")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    parts = [made() for name, made in (("detest", nonstiff), ("stiff", stiff)) if arguments.set in (name, "both")]
    tables, details = ({title: rows for part in parts for title, rows in part[which].items()} for which in (0, 1))
    about = machine("scipy", "torchdiffeq")
    if arguments.json:  # of the machine only what has a say in these numbers
        versions = {key: about[key] for key in ("python", "torch", "scipy", "torchdiffeq")}
        print(json.dumps({"versions": versions, "tables": tables, "details": details}, indent=1, ensure_ascii=False))
    else:
        show_all({**tables, **details}, about, False)


if __name__ == "__main__":
    main()
