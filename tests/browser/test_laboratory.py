"""The explorer's panels for physiologists in a real browser: a grating, a bar, filters that are turned, and metamers."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

Opened = Callable[..., Any]
CURVE = """title => {
    const plots = Array.from(document.querySelectorAll('.js-plotly-plot'));
    const plot = plots.find(plot => plot._fullData.some(trace => trace.name === title));
    return plot ? JSON.stringify(Array.from(plot._fullData.find(trace => trace.name === title).y)) : '';
}"""


def move(page: Any, calmed: Callable[[Any], None], label: str, presses: int, key: str = "ArrowRight") -> None:
    page.get_by_test_id("stSlider").filter(has_text=label).get_by_role("slider").first.focus()
    for _ in range(presses):
        page.keyboard.press(key)
    page.wait_for_timeout(300)
    calmed(page)


def settled(page: Any, calmed: Callable[[Any], None], trace: str) -> str:
    """The values of a curve, once it is there and nothing is computed any more."""
    page.wait_for_function(f"title => ({CURVE})(title) !== ''", arg=trace)
    calmed(page)
    return page.evaluate(CURVE, trace)


def test_a_grating_drives_units_in_milliseconds_and_filters_change_their_tuning(opened: Opened, calmed: Callable[[Any], None]) -> None:
    page = opened("Stimulus")
    page.get_by_text("The film and h of block 1", exact=True).wait_for()
    page.wait_for_function("() => document.querySelector('.slider-label').textContent === '120 ms'")
    before = settled(page, calmed, "as trained")
    move(page, calmed, "Turn the block's filters", 6)
    turned = settled(page, calmed, "with your filters")
    assert turned != before
    move(page, calmed, "σ of the block's filters", 8)
    page.wait_for_function(f"seen => ({CURVE})('with your filters') !== seen", arg=turned)
    assert settled(page, calmed, "as trained") == before


def test_a_bar_is_placed_and_shown(opened: Opened, calmed: Callable[[Any], None]) -> None:
    page = opened("Stimulus")
    settled(page, calmed, "as trained")
    page.get_by_test_id("stButtonGroup").nth(1).get_by_text("bar", exact=True).click()
    page.get_by_text("y (° up)").wait_for()
    settled(page, calmed, "as trained")
    shown = "() => JSON.stringify(Array.from(document.querySelector('.js-plotly-plot')._fullData[0].z, row => Array.from(row)))"
    before = page.evaluate(shown)
    move(page, calmed, "x (° to the right)", 2)
    page.wait_for_function(f"seen => ({shown})() !== seen", arg=before)


def test_metamers_are_a_film_over_t(opened: Opened, calmed: Callable[[Any], None]) -> None:
    page = opened("Metamers")
    page.get_by_text("Metamers of block 1", exact=True).wait_for()
    calmed(page)
    label = page.locator(".slider-label").first
    assert label.text_content() == "t = 2.00"
    page.locator(".updatemenu-button").filter(has_text="play").first.click()
    page.wait_for_function("() => document.querySelector('.slider-label').textContent === 't = 2.00'")
    assert page.locator(".js-plotly-plot").count() == 2
