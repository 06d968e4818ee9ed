"""The explorer in a real browser: open it, move its sliders, upload, compare, and hand it what is wrong."""

import io
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

Opened = Callable[..., Any]
FIRST_MAP = """(() => JSON.stringify(Array.from(document.querySelector('.js-plotly-plot')._fullData[0].z, row => Array.from(row))))()"""


def expect(target: Any) -> Any:
    """Playwright's own, which asks again until it is so. Imported late: without Playwright the other tests can still be collected."""
    from playwright.sync_api import expect

    return expect(target)


def digit(kind: str = "PNG", mode: str = "RGB", **options: Any) -> bytes:
    """Ink on paper: a seven."""
    image = Image.new("RGB", (120, 100), "white")
    draw = ImageDraw.Draw(image)
    draw.line([(35, 20), (85, 20), (50, 85)], fill="black", width=10)
    file = io.BytesIO()
    image.convert(mode).save(file, kind, **options)
    return file.getvalue()


def upload(page: Any, calmed: Callable[[Any], None], name: str, content: bytes) -> None:
    page.get_by_test_id("stSidebar").get_by_text("your own").click()
    calmed(page)
    page.locator("input[type=file]").set_input_files({"name": name, "mimeType": "application/octet-stream", "buffer": content})
    page.wait_for_timeout(500)
    calmed(page)


def moved(page: Any, calmed: Callable[[Any], None], label: str, presses: int, key: str = "ArrowRight") -> None:
    """Move a slider of the page with the keyboard."""
    page.get_by_test_id("stSlider").filter(has_text=label).get_by_role("slider").first.focus()
    for _ in range(presses):
        page.keyboard.press(key)
    page.wait_for_timeout(300)
    calmed(page)


def test_the_page_opens_and_asks_nobody_else(opened: Opened, address: str) -> None:
    page = opened()
    assert page.title() == "Continua explorer"
    expect(page.get_by_text("evaluations of f (")).to_be_visible()
    expect(page.get_by_text("Figures 4a, 6 and 7 of the DCN paper")).to_be_visible()
    elsewhere = [url for url in page.asked if not url.startswith((address, address.replace("http", "ws"), "data:", "blob:"))]
    assert elsewhere == []


def test_the_time_slider_moves_the_maps_and_plays(opened: Opened) -> None:
    page = opened()
    now = page.locator(".slider-label").first
    assert now.text_content() == "t = 2.00"
    end = page.evaluate(FIRST_MAP)
    rail = page.locator(".slider-rail-touch-rect").first
    rail.scroll_into_view_if_needed()
    box = rail.bounding_box()
    page.mouse.click(box["x"] + 0.05 * box["width"], box["y"] + box["height"] / 2)
    page.wait_for_function("() => document.querySelector('.slider-label').textContent.match(/t = 0/)")
    page.wait_for_function(f"end => {FIRST_MAP} !== end", arg=end)
    page.locator(".updatemenu-button").filter(has_text="play").first.click()
    page.wait_for_function("() => document.querySelector('.slider-label').textContent === 't = 2.00'")
    page.wait_for_function(f"end => {FIRST_MAP} === end", arg=end)


def test_another_block_shows_other_maps(opened: Opened, calmed: Callable[[Any], None]) -> None:
    page = opened()
    expect(page.get_by_text("h(t) in block 1", exact=True)).to_be_visible()
    page.get_by_test_id("stMain").locator("[data-testid=stSelectbox] input").first.click()
    page.get_by_role("option", name="block 2").click()
    calmed(page)
    expect(page.get_by_text("h(t) in block 2", exact=True)).to_be_visible()
    expect(page.get_by_text("D(t) in block 2", exact=True)).to_be_visible()


def test_sliders_of_space_redraw_the_filter_and_its_response(opened: Opened, calmed: Callable[[Any], None]) -> None:
    page = opened("Space")
    labels = page.locator(".js-plotly-plot").first.locator(".xtick text")
    learned, yours = labels.all_text_contents()
    assert learned.replace("learned", "yours")[:12] == yours[:12]
    before = page.evaluate(FIRST_MAP)
    moved(page, calmed, "σ (pixels)", 10)
    expect(labels.nth(1)).not_to_have_text(yours)
    wider = page.evaluate(FIRST_MAP)
    moved(page, calmed, "Rotation (degrees)", 9)
    page.wait_for_function(f"seen => !seen.includes({FIRST_MAP})", arg=[before, wider])


def test_perturbing_says_what_each_change_does(opened: Opened, calmed: Callable[[Any], None]) -> None:
    page = opened("Perturb")
    legend = page.locator(".js-plotly-plot .legendtext")
    expect(legend).to_have_text(["as it is", "mask 2×2"])
    moved(page, calmed, "Mask (pixels a side)", 2)
    expect(legend).to_have_text(["as it is", "mask 4×4"])
    moved(page, calmed, "Contrast", 4, "ArrowLeft")
    expect(legend).to_have_text(["as it is", "all together"])
    page.locator(".numbers td").filter(has_text="time of block 1 × 0.8").first.wait_for()


def test_two_runs_stand_side_by_side(opened: Opened, runs: Path) -> None:
    page = opened("Compare")
    names = [f"{runs.name}/continuous", f"{runs.name}/coupled"]
    expect(page.locator(".js-plotly-plot .legendtext")).to_have_text(names * 2)
    expect(page.locator(".slider-rail-touch-rect")).to_have_count(1)  # moves the maps of both
    cells = page.locator(".numbers td").all()
    assert all(cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth") for cell in cells), "a table is not cut"


def test_kernels_of_a_coupled_network_move(opened: Opened) -> None:
    page = opened("Weight", "coupled")
    expect(page.get_by_text("block 1 conv 1: kernels to channel 0")).to_be_visible()
    end = page.evaluate(FIRST_MAP)
    box = page.locator(".slider-rail-touch-rect").first.bounding_box()
    page.mouse.click(box["x"] + 0.02 * box["width"], box["y"] + box["height"] / 2)
    page.wait_for_function("() => document.querySelector('.slider-label').textContent === 't = 0.00'")
    page.wait_for_function(f"end => {FIRST_MAP} !== end", arg=end)  # the label changes first, the map is drawn in a later frame


def test_numbers_and_pictures_can_be_taken_away(opened: Opened) -> None:
    page = opened()
    for kind, start in (("CSV", b"row,column"), ("PNG", b"\x89PNG"), ("SVG", b"<?xml")):
        with page.expect_download() as waiting:
            page.get_by_test_id("stDownloadButton").filter(has_text=kind).first.get_by_role("button").click()
        assert waiting.value.suggested_filename == f"states-block1.{kind.lower()}"
        assert Path(waiting.value.path()).read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("seven.png", digit(), None),
        ("print.jpg", digit("JPEG", "CMYK"), "CMYK"),
        ("poem.png", b"roses are red", "not an image"),
        ("half.jpg", digit("JPEG")[: len(digit("JPEG")) // 2], "damaged"),
    ],
)
def test_uploads_are_seen_or_refused_kindly(
    opened: Opened, calmed: Callable[[Any], None], name: str, content: bytes, words: str | None
) -> None:
    page = opened()
    before = page.locator("[data-testid=stImage] img").first.get_attribute("src")
    upload(page, calmed, name, content)
    refused = words is not None and words != "CMYK"
    alerts = page.get_by_test_id("stAlert")
    expect(alerts.filter(has_text=words) if words else alerts).to_have_count(int(words is not None))
    image = page.locator("[data-testid=stImage] img").first
    if refused:
        expect(image).to_have_attribute("src", before)
    else:
        expect(image).not_to_have_attribute("src", before)
    expect(page.get_by_text("evaluations of f (")).to_be_visible()


def test_odd_pixels_and_turned_photographs_are_put_right(opened: Opened, calmed: Callable[[Any], None]) -> None:
    page = opened()
    clear, dot = io.BytesIO(), io.BytesIO()
    Image.new("RGBA", (64, 64), (0, 0, 0, 0)).save(clear, "PNG")
    Image.new("RGB", (1, 1)).save(dot, "PNG")
    turned = Image.Exif()
    turned[0x0112] = 6
    for name, content, words in (
        ("clear.png", clear.getvalue(), "laid on white"),
        ("turned.jpg", digit("JPEG", exif=turned), "turned upright"),
        ("dot.png", dot.getvalue(), "nothing to see below"),
    ):
        upload(page, calmed, name, content)
        page.get_by_test_id("stAlert").filter(has_text=words).wait_for()


def test_two_hundred_megabytes_never_leave_the_browser(opened: Opened, calmed: Callable[[Any], None], tmp_path: Path) -> None:
    page = opened()
    large = tmp_path / "large.png"
    with large.open("wb") as file:
        file.truncate(200_000_000)
    page.get_by_test_id("stSidebar").get_by_text("your own").click()
    calmed(page)
    page.locator("input[type=file]").set_input_files(large)
    page.get_by_text(re.compile("must be 10.*smaller")).wait_for()
    assert not any("upload_file" in url for url in page.asked)


def test_a_spoilt_run_is_said_and_the_page_goes_on(opened: Opened, calmed: Callable[[Any], None]) -> None:
    page = opened(network="spoilt")
    expect(page.get_by_text("has no weights in best/")).to_be_visible()
    page.get_by_test_id("stSidebar").locator("[data-testid=stSelectbox] input").first.click()
    page.get_by_role("option", name="continuous").click()
    calmed(page)
    expect(page.get_by_text("evaluations of f (")).to_be_visible()


@pytest.mark.parametrize("panel", ["Depth", "Space", "Weight", "Perturb", "Compare"])
def test_a_phone_in_the_dark_scrolls_down_only(opened: Opened, panel: str) -> None:
    page = opened(panel, size=(390, 844), dark=True)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    paper = page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", paper)[:3])) < 3 * 64
    assert page.get_by_test_id("stException").count() == 0


def test_the_open_panel_stays_highlighted_when_it_is_clicked_again(opened: Opened, calmed: Callable[[Any], None]) -> None:
    page = opened("Space")
    tab = page.get_by_test_id("stButtonGroup").first.get_by_role("radio", name="Space")
    tab.click()
    calmed(page)
    expect(tab).to_have_attribute("aria-checked", "true")
    expect(page.get_by_text("σ (pixels)").first).to_be_visible()


def test_on_a_phone_the_result_comes_before_the_controls(opened: Opened) -> None:
    page = opened("Perturb", size=(390, 844))
    table, controls = page.locator(".numbers").first, page.locator(".st-key-controls-perturb")
    assert table.bounding_box()["y"] < controls.bounding_box()["y"]


def test_a_wrong_folder_is_said_before_a_browser_opens(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "continua", "explore", str(tmp_path), "--no-browser"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert "is not a run" in done.stderr


def answers(host: str, port: int) -> bool:
    with socket.socket() as trial:
        trial.settimeout(2)
        return trial.connect_ex((host, port)) == 0


def test_the_server_ends_with_its_command_and_listens_here_alone(runs: Path) -> None:
    from explorers import free_port, start_explorer

    port = free_port()
    process = start_explorer(port, str(runs / "continuous"))
    assert not answers("127.0.0.2", port)  # another address of this machine
    assert answers("127.0.0.1", port)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert not answers("127.0.0.1", port)
