"""How the paper writes a Runge–Kutta network: ERKNet-3×2_4×1_2×5_1×1-AB (RKNet §3.2 and table 2).

One term s×r per period: s stages, r time-steps. Suffix A: attentional transition, B: bottleneck.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from continua.errors import ConfigError

Terms = tuple[tuple[int, int], ...]
EXAMPLE = "3x2_4x1_2x5_1x1"
NAME = re.compile(r"(?P<kind>[EI])RKNet-(?P<stages>[^-]+)(?:-(?P<suffix>.*))?", re.IGNORECASE)


@dataclass(frozen=True)
class Spelling:
    """A network as the paper's name says it. `str()` prints the name."""

    implicit: bool
    terms: Terms
    attention: bool = False
    bottleneck: bool = False

    def __str__(self) -> str:
        suffix = "A" * self.attention + "B" * self.bottleneck
        stages = "_".join(f"{s}×{r}" for s, r in self.terms)
        return f"{'I' if self.implicit else 'E'}RKNet-{stages}" + (f"-{suffix}" if suffix else "")


def looks_spelled(name: str) -> bool:
    """Whether a model's name is meant as the paper's spelling, be it with a space or _ where the hyphen should be."""
    return re.match(r"[ei]rknet(-|\W?\d|_\d)", name.strip(), re.IGNORECASE) is not None


def parse_name(name: str) -> Spelling:
    """`ERKNet-7x1_6x1_6x1` or `IRKNet-5×1_5×1_5×1-AB`."""
    match = NAME.fullmatch(name.strip())
    suffix = (match["suffix"] or "").upper() if match else ""
    if match is None or (match["suffix"] is not None and suffix not in ("A", "B", "AB")):
        raise ConfigError(f"{name!r} is not a network's name; expected ERKNet- or IRKNet-{EXAMPLE}, then nothing, -A, -B or -AB")
    return Spelling(match["kind"].upper() == "I", parse_stages(match["stages"]), "A" in suffix, "B" in suffix)


def parse_stages(stages: "str | Sequence[Sequence[int]]") -> Terms:
    """((3, 2), (4, 1)) from "3x2_4x1", "3×2_4×1" or [[3, 2], [4, 1]]."""
    try:
        pairs = [_term(term) for term in stages.split("_")] if isinstance(stages, str) else [tuple(map(int, term)) for term in stages]
        if not pairs or any(len(pair) != 2 or min(pair) < 1 for pair in pairs):
            raise ValueError
    except (TypeError, ValueError):
        raise ConfigError(
            f"stages={stages!r}; expected one term per period, stages × time-steps, each at least 1, such as '{EXAMPLE}'"
        ) from None
    return tuple((s, r) for s, r in pairs)


def _term(term: str) -> tuple[int, ...]:
    """(3, 2) from "3x2"; nothing where it is no term."""
    match = re.fullmatch(r"\s*(\d+)\s*[x×X]\s*(\d+)\s*", term)
    return tuple(map(int, match.groups())) if match else ()


def plain_stages(terms: Terms) -> str:
    """The terms as an option: "3x2_4x1"."""
    return "_".join(f"{s}x{r}" for s, r in terms)


def spelled(name: str) -> tuple[str, dict[str, Any]] | None:
    """The registered model and the options that a name of the paper stands for."""
    if not looks_spelled(name):
        return None
    read = parse_name(name)
    options = dict(stages=plain_stages(read.terms), attention=read.attention, bottleneck=read.bottleneck)
    return ("irknet" if read.implicit else "erknet"), options
