"""A report as a browser draws it."""

from pathlib import Path
from typing import Any

import pytest

from continua.report import Axis, Figure, Page, Series, write_html

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [390, 1280])
def test_long_legends_take_nothing_from_the_axes(chromium: Any, tmp_path: Path, width: int) -> None:
    """On a phone each name has a row of its own: five of them left the axes 50 pixels."""
    curves = [Series(f"network {k}: images × c, T of block 1 × c", [0.1, 1.0], [k, k + 1.0]) for k in range(5)]
    page = Page("Curves", [Figure("one", "One", Axis("c"), Axis("y"), curves[:1]), Figure("five", "Five", Axis("c"), Axis("y"), curves)])
    address = write_html(page, tmp_path / "report.html").resolve().as_uri()
    opened = chromium.new_page()
    opened.set_viewport_size({"width": width, "height": 844})
    opened.goto(address)
    opened.locator(".plot .nsewdrag").nth(1).wait_for(state="attached")
    alone, beside = (opened.locator(".plot .nsewdrag").nth(place).bounding_box()["height"] for place in (0, 1))
    opened.close()
    assert beside > 0.8 * alone > 120
