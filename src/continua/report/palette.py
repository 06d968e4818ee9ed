"""Colours that stay apart for every kind of colour vision (Okabe and Ito 2008), in an order in which neighbours differ most."""

from typing import Any

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#8C8C8C", "#B8A500")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # for matplotlib
DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (8, 2)), (0, (6, 2, 1, 2, 1, 2)))  # for matplotlib
PLOTLY_DASHES = ("solid", "dash", "dot", "dashdot", "10px 3px", "8px 3px 2px 3px 2px 3px")  # the same for plotly
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star")  # the same for plotly


def colour(place: int) -> str:
    """The colour of the series at a place, from the beginning again after the last."""
    return PALETTE[place % len(PALETTE)]


def faint(colour: str, opacity: float) -> str:
    """A colour as CSS has it, with some of what is behind it."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
