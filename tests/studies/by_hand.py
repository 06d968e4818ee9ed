"""Three claims of kept studies worked out by hand from the runs' own JSON, with the standard library alone.

    python tests/studies/by_hand.py

Nothing of Continua is imported: accuracies are read from result.json, paired by seed, and tested by Student's t with the distribution
integrated numerically.
"""

import json
import math
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "results"
# study, hypothesis, the two rows, the first of which should be ahead
CLAIMS = [
    ("dcn/table2a", "with 52 images per class DCN-ODE is ahead of ODE-Net", "DCN-ODE, 52 per class", "ODE-Net, 52 per class"),
    ("anodev2/table1", "ResNet-4: ANODEV2 config. 1 is ahead of Baseline", "ResNet-4, ANODEV2 config. 1", "ResNet-4, Baseline"),
    (
        "rknet/table1",
        "IRKNet-4×1_4×1_4×1 has a lower error than ERKNet-7×1_7×1_7×1 with fewer parameters",
        "irknet_k36_4x1_4x1_4x1",
        "erknet_k36_7x1_7x1_7x1",
    ),
]


def by_hand(study: str, first: str, second: str) -> dict[str, Any]:
    """Mean difference over seeds, its 95 % interval, and the p-value of its t test, not corrected."""
    paper = study.partition("/")[0]
    accuracy: dict[str, dict[int, float]] = {first: {}, second: {}}
    for run in json.loads((RESULTS / f"{study}.json").read_text("utf-8"))["runs"]:
        if run["row"] in accuracy:
            result = json.loads((RESULTS / paper / run["folder"] / "result.json").read_text("utf-8"))
            accuracy[run["row"]][run["seed"]] = 100 * result["test_accuracy"]
    differences = [accuracy[first][seed] - accuracy[second][seed] for seed in sorted(accuracy[first])]
    n = len(differences)
    mean = sum(differences) / n
    error = math.sqrt(sum((value - mean) ** 2 for value in differences) / (n - 1) / n)
    reach = quantile(0.975, n - 1) * error
    return {"mean": mean, "interval": (mean - reach, mean + reach), "p": 2 * upper_tail(abs(mean) / error, n - 1), "seeds": n}


def upper_tail(t: float, freedom: int, pieces: int = 20_000) -> float:
    """P(T > t), by Simpson's rule over x = tan(angle), which maps the infinite tail to a finite interval."""
    scale = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2)

    def density(angle: float) -> float:
        cosine = math.cos(angle)
        return 0.0 if cosine < 1e-12 else scale * (1 + math.tan(angle) ** 2 / freedom) ** (-(freedom + 1) / 2) / cosine**2

    low, high = math.atan(t), math.pi / 2
    width = (high - low) / pieces
    inner = sum((4 if place % 2 else 2) * density(low + place * width) for place in range(1, pieces))
    return (density(low) + inner + density(high - 1e-9)) * width / 3


def quantile(share: float, freedom: int) -> float:
    """The t below which this share lies, by halving."""
    low, high = 0.0, 1000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle, freedom, 2_000) > 1 - share else (low, middle)
    return low


if __name__ == "__main__":
    for study, hypothesis, first, second in CLAIMS:
        print(f"{study}: {hypothesis}\n  {by_hand(study, first, second)}")
