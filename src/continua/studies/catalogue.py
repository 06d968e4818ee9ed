"""All studies by their names, and what is on disk of those that were carried out: one's own, and those kept with the project."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from continua.errors import ConfigError, unknown_name
from continua.report import VERSION, Entry, from_plain, read_entry
from continua.studies import anodev2, dcn, dcn_figures, features, rknet
from continua.studies.study import SCALES, Study
from continua.train import runs_folder

KEPT = Path("results")  # runs that are kept with the project, in folders one or two levels down
STUDIES: dict[str, Study] = {}


def register_study(study: Study) -> Study:
    """Make a study known by its name, to `continua reproduce` and `continua report`; returns it. A second one of that name is refused."""
    known = STUDIES.get(study.id)
    if known is not None and known.ask.__module__ != study.ask.__module__:
        raise ConfigError(f"there is a study {study.id!r} already, of {known.ask.__module__}; give this one another name")
    STUDIES[study.id] = study
    return study


for _paper in ([*dcn.STUDIES, *dcn_figures.STUDIES], anodev2.STUDIES, features.STUDIES, rknet.STUDIES):
    for _study in sorted(_paper, key=lambda study: ("/fig" in study.id, study.id)):  # as in the papers: tables by number, then figures
        register_study(_study)


def find_study(name: str) -> Study:
    """A study by its name."""
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES, see="`continua reproduce --list` shows all")
    return STUDIES[name]


def find_studies(name: str) -> list[Study]:
    """One study, or all of a paper's."""
    return [study for study in STUDIES.values() if study.id.startswith(f"{name}/")] or [find_study(name)]


# --- on disk --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """A study as it was carried out and written."""

    study: Study
    entry: Entry

    @property
    def scale(self) -> str:
        return self.entry.scale


def study_folder(study: Study, scale: str, runs: "Path | None" = None) -> Path:
    """Where a study is written: under the folder of all runs."""
    return runs_folder(runs) / "studies" / study.id.replace("/", "-") / scale


def written_studies(runs: "Path | None" = None, kept: Path = KEPT) -> dict[str, dict[str, Written]]:
    """Every study that was carried out, by id and scale. One's own is taken before the kept one of the same scale."""
    by_id: dict[str, dict[str, Written]] = {}
    for written in (*_kept(kept), *_own(runs)):
        by_id.setdefault(written.study.id, {})[written.scale] = written
    return by_id


def largest(scales: Mapping[str, Written]) -> Written:
    """The one at the largest scale: nearest to the paper."""
    return scales[max(scales, key=SCALES.index)]


def _own(runs: "Path | None") -> Iterator[Written]:
    for study in STUDIES.values():
        for scale in SCALES:
            path = study_folder(study, scale, runs) / "results.json"
            if path.is_file():
                yield Written(study, _read(path, study, scale))


def _read(path: Path, study: Study, scale: str) -> Entry:
    try:
        data = json.loads(path.read_text("utf-8"))
        return from_plain(Entry, data["entry"] if data.get("version") == VERSION else _upgraded(data, study, scale))
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); `continua reproduce {study.id} --scale {scale}` writes it again") from None


def _upgraded(data: Mapping[str, Any], study: Study, scale: str) -> dict[str, Any]:
    """The entry that format 1 of results.json held: its claims were sentences among the notes, and stood beside it as data."""
    words = {True: "holds", False: "fails", None: "undecided"}
    claims = [{"hypothesis": claim["text"], "verdict": words[claim["holds"]]} for claim in data.get("claims", [])]
    return {**data["entry"], "notes": [], "study": study.id, "scale": scale, "claims": claims}


def _kept(folder: Path) -> Iterator[Written]:
    """The entry of a study has the study's name as its path."""
    for study in STUDIES.values():
        path = folder / f"{study.id}.json"
        if path.is_file():
            entry = read_entry(path)
            if entry.study == study.id and entry.scale in SCALES:
                yield Written(study, entry)
