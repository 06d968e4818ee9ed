"""The documentation as a reader gets it: the strict build, every public name in the reference, nothing from the network; notebooks run."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
PUBLIC = [line for line in (ROOT / "tests" / "api.txt").read_text("utf-8").splitlines() if line.startswith("continua.")]
SECTIONS = ["Start", "How-to", "Ideas", "Results", "Reference", "How it compares"]
LIGHT = 300_000  # bytes


def navigation() -> list[dict]:
    # mkdocs.yml holds no tags, so a safe loader reads it.
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]


def test_the_sections_are_those_a_reader_looks_for() -> None:
    assert [name for section in navigation() for name in section] == SECTIONS


def test_every_room_has_a_page_of_reference() -> None:
    rooms = {name.rpartition(".")[0] for name in PUBLIC}
    described = {line.removeprefix("::: ") for page in (DOCS / "reference").glob("*.md") for line in page.read_text().splitlines()}
    assert rooms <= described


def test_there_are_four_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["coupled_weights", "pattern_completion", "physiology", "scales"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_light_and_was_run_in_order(path: Path) -> None:
    assert path.stat().st_size < LIGHT
    code = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert all(output["output_type"] != "error" and output.get("name") != "stderr" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.delenv("MPLBACKEND", raising=False)  # importing streamlit sets it, and then notebooks show no pictures
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, env={"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_strict_build_passes_and_the_reference_has_every_public_name(site: Path) -> None:
    anchors = {name for page in (site / "reference").glob("**/*.html") for name in re.findall(r'id="(continua[\w.]*)"', page.read_text())}

    def described(name: str) -> bool:
        """Under its own name, or, where a module is called the same, under the place it is defined at."""
        room, _, last = name.rpartition(".")
        return any(re.fullmatch(rf"{re.escape(room)}(\.[a-z_]+)*\.{last}", anchor) for anchor in anchors)

    assert not [name for name in PUBLIC if not described(name)]


@pytest.mark.slow
def test_pages_fetch_nothing_from_the_network(site: Path) -> None:
    loads = re.compile(
        r"<(?:script|img|iframe|source)[^>]+(?:src|srcset)=\"(?:https?:)?//|<link[^>]+rel=\"(?:stylesheet|preconnect)\"[^>]+href=\"(?:https?:)?//"
    )
    found = {page.name: loads.findall(page.read_text("utf-8")) for page in site.glob("**/*.html")}
    assert not {name: what for name, what in found.items() if what}


@pytest.mark.slow
def test_notebooks_are_pages_with_their_pictures(site: Path) -> None:
    for path in NOTEBOOKS:
        page = (site / "notebooks" / path.stem / "index.html").read_text("utf-8")
        assert "data:image/png;base64," in page
        assert "What" in page or "<h1" in page


@pytest.mark.slow
def test_the_errors_of_gradients_on_the_page_are_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    path = DOCS / "pictures" / "gradient_error.py"
    monkeypatch.syspath_prepend(path.parent)
    kept = json.loads(path.with_suffix(".json").read_text("utf-8"))
    module = runpy.run_path(str(path))
    problem, place = module["Problem"](), kept["tolerances"].index(1e-3)
    for name, (way, reference) in module["ways"](problem).items():
        found = module["distance"](way(1e-3)[0], reference(1e-3)[0])
        printed = kept["relative distance"][name]["from the computed"][place]
        # Rounding decides what is left of the exact ones; the others are far above it.
        assert found < 1e-13 if printed < 1e-13 else found == pytest.approx(printed, rel=0.02)
