"""`continua report RUN...`: what is known about some runs, as one HTML page."""

import json
from dataclasses import asdict
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from continua.errors import ConfigError
from continua.report import Page, page_from, write_html, write_page
from continua.report.runs import RunFacts, runs_page
from continua.train.run import Run


def add_report_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+", help="folders of runs, finished or not")
    parser.add_argument("--out", type=Path | None, default=None, help="the HTML file (else report.html in the first run's folder)")
    parser.add_argument("--title", type=str | None, default=None, help="title of the page")
    parser.add_argument("--files", type=Path | None, default=None, help="also write pictures (PNG, SVG), CSV and Markdown to this folder")


def report_command(options: Namespace) -> None:
    """Run `continua report`."""
    page = runs_page([facts(run) for run in options.runs], options.title)
    target = write_html(page, options.out or options.runs[0] / "report.html")
    print(f"wrote {target}")
    if options.files is not None:
        print(f"wrote {len(write_page(page, options.files, ('png', 'svg')))} files to {options.files}")


def facts(folder: Path) -> RunFacts:
    """A run as the report sees it, with the newest answer to each question that was asked of it."""
    run = Run(folder)
    recipe = asdict(run.recipe)
    environment = json.loads(run.environment.read_text("utf-8")) if run.environment.is_file() else {}
    return RunFacts(run.folder.resolve().name, recipe, run.lines(), run.result, environment, _analyses(run))


def _analyses(run: Run) -> list[Page]:
    newest: dict[str, Path] = {}
    for path in sorted((run.folder / "analysis").glob("*/*/page.json"), key=lambda path: path.stat().st_mtime):
        if (path.parent / "numbers.json").is_file():  # comparisons with other runs belong to no single one
            newest[path.parts[-3]] = path
    try:
        return [page_from(json.loads(path.read_text("utf-8"))) for _, path in sorted(newest.items())]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"an answer under {run.folder / 'analysis'} cannot be read ({error}); remove it and ask again") from None
