"""Draw the README's figure: training speed of dcn_ode, from results/benchmarks/dcn_study-avx512.json. `make pictures` runs this."""

import json
from functools import partial
from pathlib import Path

import matplotlib
from _drawing import dress, save

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

KEPT = Path(__file__).resolve().parents[2] / "results" / "benchmarks" / "dcn_study-avx512.json"
NAMES = {
    "plain PyTorch modules": "the same network in plain PyTorch modules",
    "continua, sampled, checkpoint": "Continua, checkpointed gradient (default)",
    "continua, sampled, direct": "Continua, direct gradient",
}


def draw(rates: dict[str, float], ink: str, faint: str) -> Figure:
    figure, ax = plt.subplots(figsize=(8.2, 1.9), layout="constrained")
    names = list(rates)
    colours = [faint if "plain" in name else "#d1495b" for name in names]
    ax.barh(names, list(rates.values()), color=colours, height=0.62)
    for place, rate in enumerate(rates.values()):
        times = "" if place == 0 else f"  ({rate / rates[names[0]]:.1f}×)"
        ax.annotate(f"{rate:.0f}{times}", (rate, place), (4, 0), textcoords="offset points", va="center", color=ink, fontsize=9.5)
    ax.invert_yaxis()
    ax.set_xlabel("training images per second (dcn_ode, rk4, 2 steps, batch 128, two CPU cores)", color=ink, fontsize=9)
    ax.set_xlim(0, 1.18 * max(rates.values()))
    dress(ax, ink, faint)
    ax.grid(False, axis="y")
    return figure


if __name__ == "__main__":
    (rows,) = json.loads(KEPT.read_text("utf-8"))["tables"].values()
    found = {row["rk4, 2 steps"]: row["images/s"] for row in rows}
    save("speed", partial(draw, {shown: found[name] for name, shown in NAMES.items()}))
