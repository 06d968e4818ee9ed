"""Notebooks as pages of the documentation: text as it is, code as code, outputs below it, pictures inside the page.

mkdocs calls the two functions while it builds (`hooks:` in mkdocs.yml). Nothing is executed and nothing comes from the network.
"""

import json
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page


class NotebookFile(File):
    """A file that is a page although its name does not end in .md."""

    def is_documentation_page(self) -> bool:
        return True


def on_files(files: Files, config: Any) -> Files:
    """Let every notebook be a page."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
            files.append(NotebookFile(file.src_uri, config.docs_dir, config.site_dir, config.use_directory_urls))
    return files


def on_page_read_source(page: Page, config: Any) -> str | None:
    """The notebook as Markdown; None leaves other pages to mkdocs."""
    if not isinstance(page.file, NotebookFile) or page.file.abs_src_path is None:
        return None
    with open(page.file.abs_src_path, encoding="utf-8") as file:
        cells = json.load(file)["cells"]
    name = page.file.src_uri.rpartition("/")[2]
    note = f"*This page is the notebook `docs/notebooks/{name}`, as it was last run.*"
    return "\n\n".join([*(_markdown(cell) for cell in cells), note]) + "\n"


def _markdown(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    return "\n\n".join([f"```python\n{source}\n```", *filter(None, (_shown(output) for output in cell["outputs"]))])


def _shown(output: dict[str, Any]) -> str:
    """One output of a cell: a picture if there is one, else its text."""
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f"![what this code draws](data:image/png;base64,{picture})"
    text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
    return f"```text\n{text}\n```" if text else ""
