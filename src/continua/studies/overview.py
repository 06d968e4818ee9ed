"""What is known about runs and studies, as one page: the words of `continua report` in, a page with a part for each out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from continua.analysis import runs_page
from continua.errors import ConfigError
from continua.report import Page
from continua.runs import RunView, run_folders, runs_folder
from continua.studies.front import front_page, written_page
from continua.studies.known import STUDIES, find_studies
from continua.studies.study import SCALES, Study
from continua.studies.written import KEPT, largest, written_studies


@dataclass(frozen=True)
class Asked:
    """What the words of the command name: folders of runs, and studies with the scale asked for (None: the largest there is)."""

    runs: Sequence[Path]
    studies: Sequence[tuple[Study, str | None]]


def asked_for(words: Sequence[str], runs: "Path | None" = None) -> Asked:
    """A word is a run where it is the folder of one, else a study; no word at all means all studies, and all runs that none of them has."""
    if not words:
        return Asked(_loose_runs(runs), [(study, None) for study in STUDIES.values()])
    folders, studies, papers = [], [], {study.partition("/")[0] for study in STUDIES}
    for word in words:
        name, at, scale = word.partition("@")
        if (Path(word) / "config.yaml").is_file():
            folders.append(Path(word))
        elif Path(word).is_dir() and name not in papers:
            raise ConfigError(f"{word} is not a run: it has no config.yaml")
        elif at and scale not in SCALES:
            raise ConfigError(f"{word!r} asks for the scale {scale!r}; expected one of {', '.join(SCALES)}")
        elif not get_close_matches(name.partition("/")[0], papers):
            raise ConfigError(
                f"{word} is neither the folder of a run nor a study; studies are called dcn/table2a, `continua reproduce --list` shows all"
            )
        else:
            studies += [(study, scale or None) for study in find_studies(name)]
    return Asked(folders, studies)


def report_page(asked: Asked, runs: "Path | None" = None, title: str | None = None) -> Page:
    """Runs alone as they always were; with studies, a front page that leads to each of them, and the runs behind."""
    name = title if not asked.studies else "Runs that belong to no study here" if len(asked.runs) > 1 else None
    about = runs_page([RunView(folder) for folder in asked.runs], name) if asked.runs else None
    if not asked.studies and about is not None:
        return about
    written = written_studies(runs)
    found = {}
    for study, scale in asked.studies:
        scales = written.get(study.id, {})
        if scale is None and scales:
            found[study.id] = largest(scales)
        elif scale in scales:
            found[study.id] = scales[scale]
    page = front_page([study for study, _ in asked.studies], found, title)
    folders = {folder.name: folder for folder in _all_runs(runs)}
    sections = [written_page(one, folders) for one in found.values()]
    return replace(page, sections=[*sections, *([about] if about is not None else [])])


def _all_runs(runs: "Path | None") -> list[Path]:
    return [*run_folders(KEPT), *run_folders(runs_folder(runs))]


def _loose_runs(runs: "Path | None") -> list[Path]:
    """Runs that no written study names: one's own trainings."""
    named = {run["folder"] for scales in written_studies(runs).values() for one in scales.values() for run in one.entry.runs}
    return [folder for folder in _all_runs(runs) if folder.name not in named]
