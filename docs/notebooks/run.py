"""Run the notebooks in this folder and keep their outputs. `make notebooks` does this."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def main() -> None:
    chosen = [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb"))
    for path in chosen:
        notebook, start = nbformat.read(path, as_version=4), perf_counter()
        with TemporaryDirectory() as folder:  # what a notebook writes is not kept
            where = {"metadata": {"path": folder}}
            NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where, record_timing=False).execute()
        notebook.metadata = nbformat.NotebookNode(
            kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"}, language_info={"name": "python"}
        )
        nbformat.write(notebook, path)
        print(f"{path.name}: {perf_counter() - start:.0f} s, {path.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
