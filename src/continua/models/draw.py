"""A diagram of a network: the walk of an image from left to right, with sizes, filters, time intervals and counts (DCN fig. 2)."""

from pathlib import Path
from typing import Any

from continua.errors import ConfigError
from continua.models.describe import Description, Part

FORMATS = ("svg", "png", "pdf")
INK, FAINT = "#222222", "#777777"
COLOURS = {  # accent and paper of a card
    "ode": ("#C4512D", "#FCEEE8"),
    "residual": ("#2F7D5B", "#E8F4EE"),
    "period": ("#7A4FA3", "#F3ECF9"),
    "plain": ("#3B6AA8", "#E9F0F9"),
    "head": ("#5C5C66", "#F0F0F3"),
}
# Inches.
CARD, WIDE_CARD, MAP, CHIP, STEP, MARGIN = 1.28, 1.66, 0.98, 0.24, 0.33, 0.35


def draw_model(description: Description, target: Path, *, title: str = "", subtitle: str = "") -> Path:
    """Write the diagram as SVG, PNG or PDF, by the suffix of `target`.

    Args:
        description: as `describe_model` gives it.
        target: the file; its suffix is the format.
        title: heading of the picture.
        subtitle: line below it.

    Returns:
        The file.

    Raises:
        ConfigError: the name of the file does not end as a picture does.

    Examples:
        >>> from pathlib import Path
        >>> from continua.models import describe_model, draw_model
        >>> draw_model(describe_model("dcn_ode"), Path("dcn_ode.svg"))  # doctest: +SKIP
    """
    kind = target.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise ConfigError(f"{target.name!r} is no picture that can be written; end it in {', '.join('.' + name for name in FORMATS)}")
    import matplotlib

    # A fixed salt and no date: the same network is the same file. Text stays text, so that an SVG can be searched.
    with matplotlib.rc_context({"svg.hashsalt": description.name, "svg.fonttype": "none", "font.family": "DejaVu Sans"}):
        figure = _Diagram(description, title or description.name, subtitle).figure
        target.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        figure.savefig(target, format=kind, dpi=160, facecolor="white", metadata=metadata)
    return target


class _Diagram:
    """Cards for the parts, maps between them; coordinates are inches."""

    def __init__(self, described: Description, title: str, subtitle: str) -> None:
        from matplotlib.figure import Figure

        widths = [_width(part) for part in described.parts]
        tallest = max(_height(part) for part in described.parts)
        width = 2 * MARGIN + sum(widths) + MAP * (len(widths) + 1)
        height = 2 * MARGIN + tallest + 0.95
        self.middle = MARGIN + tallest / 2
        self.largest = max((part.input[-1] for part in described.parts if len(part.input) == 3), default=1)
        self.figure = Figure(figsize=(width, height))
        self.axes: Any = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.set(xlim=(0, width), ylim=(0, height))
        self.axes.set_axis_off()
        self.axes.text(MARGIN, height - MARGIN, title, size=15, weight="bold", color=INK, va="top")
        total = f"{described.parameters:,} parameters · {_flops(described.flops)}, one evaluation of each field"
        if not any(part.interval for part in described.parts):
            total = f"{described.parameters:,} parameters · {_flops(described.flops)}"
        self.axes.text(MARGIN, height - MARGIN - 0.36, " · ".join(filter(None, [subtitle, total])), size=9, color=FAINT, va="top")
        self.scales: list[float] = []  # where the maps stand that a multiscale head reads
        x = MARGIN
        self._map(x, described.image, "image")
        for part, card in zip(described.parts, widths, strict=True):
            x += MAP
            self._card(x, card, part)
            x += card
            self._map(x, part.output, "logits" if part is described.parts[-1] else "")
            self._arrow(x - card - 0.17, x - card)
            self._arrow(x, x + 0.17, head=False)
            if described.multiscale and part.name.startswith("block"):
                self.scales.append(x + MAP / 2)
        if self.scales:
            self._multiscale(x - widths[-1] / 2, self.middle + tallest / 2 + 0.12, self.middle + _height(described.parts[-1]) / 2)

    def _card(self, x: float, width: float, part: Part) -> None:
        accent, paper = COLOURS[part.kind]
        height = _height(part)
        top, centre = self.middle + height / 2, x + width / 2
        self._box(x, top - height, width, height, paper, accent, 1.3, 0.08)
        self.axes.text(centre, top - 0.2, part.name, size=9.5, weight="bold", color=accent, ha="center", va="center")
        y = top - 0.4
        if part.note:
            self.axes.text(centre, y - 0.02, part.note, size=8, style="italic", color=INK, ha="center", va="center")
            y -= 0.24
        for index, name in enumerate(part.layers):
            y -= STEP
            self._chip(centre, y + STEP / 2 - 0.02, width - 0.2, name, accent)
            if index:
                self.axes.plot([centre, centre], [y + STEP - 0.065, y + STEP + 0.025], color=accent, lw=0.9)
        if part.interval is not None:
            self._clock(x + 0.28, x + width - 0.28, y - 0.13, part.interval, accent)
            y -= 0.42
        self.axes.text(centre, y - 0.12, f"{part.parameters:,} parameters", size=7, color=INK, ha="center", va="center")
        self.axes.text(centre, y - 0.28, _flops(part.flops), size=7, color=FAINT, ha="center", va="center")

    def _chip(self, centre: float, y: float, width: float, name: str, accent: str) -> None:
        filtered = "×" in name and "→" not in name
        self._box(centre - width / 2, y - CHIP / 2, width, CHIP, accent if filtered else "white", accent, 0.8, 0.05)
        size = 7.5 if len(name) < 22 else 6.3
        self.axes.text(centre, y - 0.005, name, size=size, color="white" if filtered else INK, ha="center", va="center")

    def _clock(self, left: float, right: float, y: float, interval: tuple[float, float], accent: str) -> None:
        """The time axis of an ODE block."""
        self.axes.annotate("", (right + 0.1, y), (left, y), arrowprops=dict(arrowstyle="-|>", color=accent, lw=1.1, shrinkA=0, shrinkB=0))
        for x, t, label in ((left, interval[0], "t = "), (right, interval[1], "")):
            self.axes.plot([x, x], [y - 0.05, y + 0.05], color=accent, lw=1.1)
            self.axes.text(x, y - 0.14, f"{label}{t:g}", size=7, color=accent, ha="center", va="center")

    def _map(self, x: float, size: tuple[int, ...], name: str) -> None:
        """A feature map as a stack of squares, its side in proportion to its height; a vector as a bar."""
        centre = x + MAP / 2
        side = 0.16 + 0.36 * size[-1] / self.largest if len(size) == 3 else 0.5
        breadth = side if len(size) == 3 else 0.1
        for layer in range(3 if len(size) == 3 else 1):
            offset = 0.055 * (1 - layer)
            self._box(centre - breadth / 2 + offset, self.middle - side / 2 + offset, breadth, side, "#FAFAFA", "#9A9AA2", 0.8, 0.01)
        text = f"{size[0]}\n{size[1]}×{size[2]}" if len(size) == 3 else str(size[0])
        self.axes.text(centre, self.middle - side / 2 - 0.14, text, size=7.5, color=INK, ha="center", va="top", linespacing=1.25)
        self.axes.text(centre, self.middle + side / 2 + 0.13, name, size=7.5, color=FAINT, ha="center", va="bottom")

    def _multiscale(self, head: float, height: float, top: float) -> None:
        """Dotted lines from the maps after the blocks to the head (RKNet fig. 1)."""
        style = dict(color="#9A9AA2", lw=1.1, ls=(0, (2, 2)))
        for x in self.scales:
            self.axes.plot([x, x], [self.middle + 0.45, height], **style)
        self.axes.plot([self.scales[0], head], [height, height], **style)
        self.axes.annotate("", (head, top), (head, height), arrowprops=dict(arrowstyle="-|>", shrinkA=0, shrinkB=0, **style))

    def _arrow(self, left: float, right: float, head: bool = True) -> None:
        style = dict(arrowstyle="-|>" if head else "-", color="#9A9AA2", lw=1.0, shrinkA=0, shrinkB=0)
        self.axes.annotate("", (right, self.middle), (left, self.middle), arrowprops=style)

    def _box(self, x: float, y: float, width: float, height: float, paper: str, edge: str, line: float, round: float) -> None:
        from matplotlib.patches import FancyBboxPatch

        style = f"round,pad=0,rounding_size={round}"
        self.axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=paper, edgecolor=edge, linewidth=line))


def _width(part: Part) -> float:
    longest = max((len(name) for name in part.layers), default=0)
    return WIDE_CARD if part.interval is not None or longest > 14 else CARD


def _height(part: Part) -> float:
    return 0.86 + STEP * len(part.layers) + (0.24 if part.note else 0) + (0.42 if part.interval is not None else 0)


def _flops(flops: int) -> str:
    for limit, unit in ((1e9, "GFLOPs"), (1e6, "MFLOPs"), (1e3, "kFLOPs")):
        if flops >= limit:
            return f"{flops / limit:.3g} {unit}"
    return f"{flops} FLOPs"
