"""Limits are numbers that a person can look up and raise."""

import re
from pathlib import Path

import pytest

from continua import limits
from continua.errors import ConfigError

KNOWN = {value.variable: value for value in vars(limits).values() if isinstance(value, limits.Limit)}


def test_security_md_lists_every_limit_with_its_default_and_its_variable() -> None:
    text = (Path(__file__).parents[1] / "SECURITY.md").read_text("utf-8")
    rows = re.findall(r"^\| [^|]+ \| ([\d,]+) \| `(CONTINUA_MAX_\w+)` \|$", text, flags=re.M)
    assert {variable: int(number.replace(",", "")) for number, variable in rows} == {name: limit.default for name, limit in KNOWN.items()}


@pytest.mark.parametrize("said", ["no", "-1", "0", "1e999", "nan"])
def test_a_limit_that_is_no_number_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTINUA_MAX_PIXELS", said)
    with pytest.raises(ConfigError, match=r"CONTINUA_MAX_PIXELS is .*expected a whole number"):
        _ = limits.PIXELS.value
