"""What the documentation shows is true: its Python runs as it stands, page by page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def python_blocks(page: Path) -> str:
    """All ```python blocks of a page as one program whose line numbers are the page's."""
    text = page.read_text("utf-8")
    program = [""] * len(text.splitlines())
    for block in re.finditer(r"^```python\n(.*?)^```", text, flags=re.M | re.S):
        first = text[: block.start(1)].count("\n")
        lines = block[1].splitlines()
        program[first : first + len(lines)] = lines
    return "\n".join(program)


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in PAGES if python_blocks(page).strip()]
)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(python_blocks(page), str(page), "exec"), {"__name__": "__main__"})
