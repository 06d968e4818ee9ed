"""What studies found, read back from disk: from the folder of all runs, and from results/, which comes with the project."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from continua.errors import ConfigError
from continua.report import Entry, from_plain, read_entry
from continua.runs import runs_folder
from continua.studies.claims import claim_from
from continua.studies.known import STUDIES
from continua.studies.study import SCALES, Claim, Study

KEPT = Path("results")  # runs that are kept with the project, in folders one or two levels down


@dataclass(frozen=True)
class Written:
    """A study at a scale as it was written."""

    study: Study
    scale: str
    entry: Entry

    @property
    def claims(self) -> list[Claim]:
        """What the entry says about the paper's claims."""
        return [claim for note in self.entry.notes if (claim := claim_from(note)) is not None]


def study_folder(study: Study, scale: str, runs: "Path | None" = None) -> Path:
    """Where a study is written: under the folder of all runs."""
    return runs_folder(runs) / "studies" / study.id.replace("/", "-") / scale


def written_studies(runs: "Path | None" = None, kept: Path = KEPT) -> dict[str, dict[str, Written]]:
    """Every study that was carried out, by id and scale. One's own is taken before the kept one of the same scale."""
    found: dict[str, dict[str, Written]] = {}
    for one in (*_kept(kept), *_own(runs)):
        found.setdefault(one.study.id, {})[one.scale] = one
    return found


def largest(scales: "dict[str, Written]") -> Written:
    """The one at the largest scale: nearest to the paper."""
    return scales[max(scales, key=SCALES.index)]


def _own(runs: "Path | None") -> Iterator[Written]:
    for study in STUDIES.values():
        for scale in SCALES:
            path = study_folder(study, scale, runs) / "results.json"
            if path.is_file():
                yield _read(path, study, scale)


def _read(path: Path, study: Study, scale: str) -> Written:
    try:
        data = json.loads(path.read_text("utf-8"))
        return Written(study, scale, from_plain(Entry, data["entry"]))
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); `continua reproduce {study.id} --scale {scale}` writes it again") from None


def _kept(folder: Path) -> Iterator[Written]:
    """An entry of a study has the study's name as its path, and the scale in the command that makes it again."""
    for study in STUDIES.values():
        path = folder / f"{study.id}.json"
        if path.is_file():
            entry = read_entry(path)
            scale = re.search(r"--scale (\w+)", " ".join(entry.commands))
            if scale is not None and scale[1] in SCALES:
                yield Written(study, scale[1], entry)
