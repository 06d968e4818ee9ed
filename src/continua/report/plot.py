"""Figures for the browser: what plotly draws, as plain data. Colours of paper and ink are left to the page, which knows light and dark."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from continua.report.page import Axis, Figure, Series
from continua.report.palette import PLOTLY_DASHES, SYMBOLS, colour, faint


def plotly_figure(figure: Figure) -> dict[str, Any]:
    """Traces and layout."""
    traces = [trace for place, series in enumerate(figure.series) for trace in _traces(series, place, figure)]
    layout = {
        "xaxis": _axis(figure.x) | _x_ticks(figure),
        "yaxis": _axis(figure.y) | _ticks(figure.y, [one.y for one in figure.series]),
        "showlegend": len(figure.series) > 1,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "margin": {"l": 64, "r": 16, "t": 16, "b": 56},
        "hovermode": "closest",
        "barmode": "group",
        "modebar": {"bgcolor": "rgba(0,0,0,0)"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
    return {"data": traces, "layout": layout}


def _x_ticks(figure: Figure) -> dict[str, Any]:
    if _named(figure):
        return {"type": "category"}
    return {"tickvals": figure.x_marks} if figure.x_marks else _ticks(figure.x, [one.x for one in figure.series])


def _named(figure: Figure) -> bool:
    return any(isinstance(value, str) for series in figure.series for value in series.x)


def _axis(axis: Axis) -> dict[str, Any]:
    found: dict[str, Any] = {"title": {"text": axis.text}, "type": "log" if axis.log else "-", "zeroline": False, "automargin": True}
    if axis.limits:
        found["range"] = [float(np.log10(limit)) for limit in axis.limits] if axis.log else list(axis.limits)
    return found


def _ticks(axis: Axis, values: Sequence[Any]) -> dict[str, Any]:
    """Powers of ten over decades, also numbers between them over less; whole numbers over a few epochs, where plotly would mark halves."""
    known = [float(value) for some in values for value in some if np.isfinite(value) and (value > 0 or not axis.log)]
    low, high = axis.limits or ((min(known), max(known)) if known else (1.0, 1.0))
    if axis.log:
        decades = np.log10(high / low)
        return {"exponentformat": "power", "dtick": 1} if decades >= 2 else {"dtick": "D2" if decades >= 1 else "D1"}
    return {"dtick": 1} if axis.whole and high - low < 10 else {}


def _traces(series: Series, place: int, figure: Figure) -> list[dict[str, Any]]:
    ink = colour(place if series.colour is None else series.colour)
    x, y = list(series.x), _gaps(series.y)
    same: dict[str, Any] = {"name": series.name, "legendgroup": f"{place}"}
    hover = f"%{{x:.5~g}}, %{{y:.5~g}} {figure.y.unit}<extra>{_escaped(series.name)}</extra>"
    if series.x and isinstance(series.x[0], str):
        hover = hover.replace("%{x:.5~g}", "%{x}")
    if series.style == "bars":
        return [{"type": "bar", "x": x, "y": y, "marker": {"color": ink}, "hovertemplate": hover, **same, **_error_bars(series)}]
    line = {"color": ink, "width": 2, "dash": PLOTLY_DASHES[series.pattern % len(PLOTLY_DASHES)]}
    if series.style == "steps":
        line["shape"] = "hvh"
    main = {"type": "scatter", "x": x, "y": y, "line": line, "hovertemplate": hover, **same}
    main["mode"] = {"points": "markers", "both": "lines+markers"}.get(series.style, "lines")
    main["marker"] = {"color": ink, "symbol": SYMBOLS[place % len(SYMBOLS)], "size": 7}
    if series.style == "steps":
        main |= {"fill": "tozeroy", "fillcolor": faint(ink, 0.15)}
    if series.error is not None and series.spread == "band":
        return [*_band(series, ink, figure.y.log, same), main]
    return [main | _error_bars(series)]


def _band(series: Series, ink: str, log: bool, same: dict[str, Any]) -> list[dict[str, Any]]:
    """Two invisible edges with colour between them."""
    y, error = np.asarray(series.y, float), np.asarray(series.error, float)
    low, high = y - error, y + error
    if log:  # an edge at or below zero is nowhere on a logarithmic axis
        low = np.where(low > 0, low, y / 10)
    quiet: dict[str, Any] = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "x": list(series.x)}
    edge = quiet | same | {"showlegend": False}
    return [edge | {"y": _gaps(low)}, edge | {"y": _gaps(high), "fill": "tonexty", "fillcolor": faint(ink, 0.18)}]


def _error_bars(series: Series) -> dict[str, Any]:
    return {} if series.error is None else {"error_y": {"type": "data", "array": _gaps(series.error), "thickness": 1.2, "width": 3}}


def _gaps(values: Any) -> list[float | None]:
    """JSON has no NaN; plotly takes null as a gap. Six digits are more than the eye sees, and a third of the file."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values]


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
