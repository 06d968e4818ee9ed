"""What the pictures of the documentation have in common: the colours of a light and a dark page, plain axes, files that change only when
the picture does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
THEMES = {"light": {"ink": "#1f2328", "faint": "#818b98"}, "dark": {"ink": "#e6edf3", "faint": "#8b949e"}}


def dress(ax: Axes, ink: str, faint: str, size: float = 9) -> None:
    """Axes left and below, a faint grid, no paper."""
    ax.minorticks_off()
    ax.patch.set_alpha(0)
    ax.tick_params(which="both", colors=ink, labelsize=size)
    ax.grid(color=faint, alpha=0.25, lw=0.6)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(faint)


def save(name: str, draw: Callable[..., Figure], **options: Any) -> None:
    """`draw(ink=…, faint=…)` for each theme, as `name-light.svg` and `name-dark.svg`: no date, no random ids, letters as outlines."""
    plt.rcParams.update({"svg.hashsalt": "continua", "svg.fonttype": "path"})
    for theme, colours in THEMES.items():
        path = HERE / f"{name}-{theme}.svg"
        draw(**colours).savefig(path, transparent=True, metadata={"Date": None}, **options)
        print(f"wrote {path.name} ({path.stat().st_size // 1024} kB)")
