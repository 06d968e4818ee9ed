"""A run as the report sees it: plain data from the files in its folder."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from continua.errors import ConfigError
from continua.report import Page, RunFacts, page_from
from continua.train.run import Run


def facts(folder: Path, analyses: bool = True) -> RunFacts:
    """A run, finished or not, with the newest answer to each question that was asked of it."""
    run = Run(folder)
    recipe = asdict(run.recipe)
    environment = json.loads(run.environment.read_text("utf-8")) if run.environment.is_file() else {}
    return RunFacts(run.folder.resolve().name, recipe, run.lines(), run.result, environment, _analyses(run) if analyses else ())


def run_folders(folder: Path) -> Iterator[Path]:
    """Every run in a folder and in its folders."""
    for pattern in ("*/config.yaml", "*/*/config.yaml"):
        yield from (path.parent for path in sorted(folder.glob(pattern)))


def _analyses(run: Run) -> list[Page]:
    newest: dict[str, Path] = {}
    for path in sorted((run.folder / "analysis").glob("*/*/page.json"), key=lambda path: path.stat().st_mtime):
        if (path.parent / "numbers.json").is_file():  # comparisons with other runs belong to no single one
            newest[path.parts[-3]] = path
    try:
        return [page_from(json.loads(path.read_text("utf-8"))) for _, path in sorted(newest.items())]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"an answer under {run.folder / 'analysis'} cannot be read ({error}); remove it and ask again") from None
