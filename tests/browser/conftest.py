"""The explorer as a person has it: its own process, and Chromium in front of it."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from explorers import free_port, start_explorer
from exploring import make_run

WAIT = 150_000  # ms: generous, as tests may share the machine


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: continuous in depth, coupled, and one that is spoilt once the page is up."""
    folder = tmp_path_factory.mktemp("explored")
    make_run(folder / "continuous")
    make_run(folder / "coupled", "resnet4_anodev2_c1", channels=[4])
    make_run(folder / "spoilt", seed=3)
    return folder


@pytest.fixture(scope="session")
def address(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    folders = [str(runs / name) for name in ("continuous", "coupled", "spoilt")]
    process = start_explorer(port, *folders, "--runs", str(tmp_path_factory.mktemp("none")))
    shutil.rmtree(runs / "spoilt" / "best")
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(30)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=WAIT)

    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.fail("no Chromium here: install Debian's package chromium, or name its program in the variable CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser.new_context()  # one for all tests: the page's scripts are read once
        browser.close()


@pytest.fixture
def opened(chromium: Any, address: str, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page: `opened(panel="Space")`. A picture of each page is left in the test's folder."""
    pages = []

    def open_page(panel: str | None = None, network: str | None = None, size: tuple[int, int] = (1280, 1100), dark: bool = False) -> Any:
        page = chromium.new_page()
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.set_default_timeout(WAIT)
        page.asked = []
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(address)
        pages.append(page)
        calm(page)
        if network is not None:
            page.get_by_test_id("stSidebar").locator("[data-testid=stSelectbox] input").first.click()
            page.get_by_role("option", name=network).click()
            calm(page)
        if panel is not None:
            page.get_by_test_id("stButtonGroup").first.get_by_text(panel, exact=True).click()
            calm(page)
        return page

    yield open_page
    for number, page in enumerate(pages):
        page.screenshot(path=tmp_path / f"page{number}.png", full_page=True)
        page.close()


def calm(page: Any) -> None:
    """Wait until the script has run and everything is drawn."""
    page.locator("[data-testid=stButtonGroup], [data-testid=stAlert]").first.wait_for(state="attached")
    page.wait_for_timeout(250)  # a change is sent to the server after a moment
    page.wait_for_function(
        """() => document.querySelector('[data-testid=stApp]')?.getAttribute('data-test-script-state') === 'notRunning'
                 && !document.querySelector('[data-testid=stSkeleton], [data-testid=stAppSkeleton], .st-key-computing')"""
    )


@pytest.fixture
def calmed() -> Callable[[Any], None]:
    return calm
