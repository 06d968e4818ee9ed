"""Rules 1–4 of the RKNet paper (§3.3), when a block is a Runge–Kutta time-step; and textbook methods to hold a learned one against."""

from collections import Counter
from dataclasses import dataclass

from continua.errors import ConfigError
from continua.ode import find_method


@dataclass(frozen=True)
class PeriodShape:
    """A period that keeps the rules: s stages of m growths of k channels, r time-steps."""

    growth: int
    m: int
    stages: int
    steps: int = 1

    @property
    def channels(self) -> int:
        """Of y_n: m·k (rule 1)."""
        return self.m * self.growth


class BrokenRule(ConfigError):
    """A block that is not a Runge–Kutta step; `rule` is the number of the rule, `nearest` the setting closest to the one asked for."""

    def __init__(self, rule: int, period: int, problem: str, nearest: str) -> None:
        super().__init__(f"period {period + 1} breaks rule {rule} of RKNets: {problem}; nearest valid: {nearest}")
        self.rule, self.period, self.nearest = rule, period, nearest


def rule_1(period: int, channels: int, growth: int) -> int:
    """m: y_n has m·k channels."""
    if channels % growth or channels < growth:
        options = sorted({max(1, channels // growth), -(-channels // growth)}, key=lambda m: abs(m * growth - channels))
        nearest = " or ".join(f"{m * growth} channels (m = {m})" for m in options)
        raise BrokenRule(1, period, f"y_n has {channels} channels, not a multiple of the growth rate k = {growth}", nearest)
    return channels // growth


def rule_2(period: int, channels: int, growth: int, m: int) -> None:
    """m successive growths are a group, which is added to y_n."""
    if m * growth != channels:
        problem = (
            f"m = {m} growths of k = {growth} channels make groups of {m * growth}, which cannot be added to y_n of {channels} channels"
        )
        raise BrokenRule(2, period, problem, f"m = {max(1, round(channels / growth))}")


def rule_2_even(period: int, widths: list[int]) -> int:
    """k: all growths of a period have the same width."""
    if len(set(widths)) > 1:
        usual = Counter(widths).most_common(1)[0][0]
        odd = next(index for index, width in enumerate(widths) if width != usual)
        problem = f"growth {odd + 1} has {widths[odd]} channels and most have {usual}, so that m successive growths are no group of m·k"
        raise BrokenRule(2, period, problem, f"k = {usual} in every growth")
    return widths[0]


def rule_3(period: int, growths: int, m: int) -> int:
    """s: there are m·s growths."""
    if growths % m or growths < m:
        options = sorted({max(1, growths // m), -(-growths // m)}, key=lambda s: (abs(s * m - growths), -s))
        nearest = " or ".join(f"{s * m} growths ({s} stage{'s' if s > 1 else ''})" for s in options)
        raise BrokenRule(3, period, f"{growths} growths are no whole number of groups of m = {m}", nearest)
    return growths // m


def rule_4(period: int, m: int, growth: int) -> None:
    """IRKNets have m = 1."""
    if m != 1:
        raise BrokenRule(4, period, f"an implicit step has m = 1, and here m = {m}", f"m = 1, so y_n has k = {growth} channels")


# --- textbook methods -------------------------------------------------------------------------------------------------

EXPLICIT = {1: "euler", 2: "heun", 4: "rk4", 6: "fehlberg45", 7: "dopri5"}
IMPLICIT = {1: "gauss2", 2: "gauss4", 3: "radau5"}


def familiar_method(stages: int, implicit: bool) -> tuple[str, list[list[float]]]:
    """Name and matrix a_ij of a known method with as many stages; where there is none, ones wherever such a method may have a number."""
    name = (IMPLICIT if implicit else EXPLICIT).get(stages)
    if name is not None:
        return name, [list(row) for row in find_method(name).a]
    kind = "implicit" if implicit else "explicit"
    return f"any {kind} method", [[1.0 if implicit or j < i else 0.0 for j in range(stages)] for i in range(stages)]
