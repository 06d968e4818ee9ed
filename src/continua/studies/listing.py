"""`continua reproduce --list`: every study, how far it is, how long the rest will take, what it found."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from continua.errors import DataError
from continua.studies.claims import verdict
from continua.studies.known import STUDIES
from continua.studies.runs import Places, Wanted, wanted_runs
from continua.studies.study import SCALES, Study
from continua.studies.written import KEPT, Written, written_studies
from continua.train import RunOptions


@dataclass(frozen=True)
class State:
    """One study at one scale: runs that are finished of all it wants (None where its data set is not here), and what was written."""

    study: Study
    scale: str
    finished: int | None
    total: int
    seconds_left: float | None
    written: Mapping[str, Written]

    @property
    def text(self) -> str:
        """done, partly or not run; with the other scales at which it was done."""
        others = [scale for scale in SCALES if scale in self.written and scale != self.scale]
        if self.scale in self.written:
            return "done" + (f" (also at {', '.join(others)})" if others else "")
        if self.finished is None:
            here = "not run: its data set is not here"
        elif self.finished:
            here = f"partly: {self.finished} of {self.total} runs"
        else:
            here = "not run" + (f": {self.total} run{'s' * (self.total > 1)}" if self.total else "")
        return here + (f" (done at {', '.join(others)})" if others else "")

    @property
    def time(self) -> str:
        """What is left, as people say it; nothing where no run of the study has finished, so that it cannot be known."""
        if self.scale in self.written or self.seconds_left is None:
            return ""
        minutes = self.seconds_left / 60
        return f"about {minutes / 60:.1f} h" if minutes >= 90 else f"about {max(1, round(minutes))} min"

    @property
    def found(self) -> str:
        """The verdict at this scale."""
        return verdict(self.written[self.scale].claims, self.scale) if self.scale in self.written else ""


def study_states(scale: str, *, seeds: int | None = None, runs: "Path | None" = None, options: RunOptions) -> list[State]:
    """Every study at a scale."""
    places, written = Places(runs, [KEPT], options), written_studies(runs)
    return [_state(study, scale, seeds, places, written.get(study.id, {})) for study in STUDIES.values()]


def _state(study: Study, scale: str, seeds: int | None, places: Places, written: Mapping[str, Written]) -> State:
    count = seeds or study.setting(scale).seeds
    total = len(study.rows(scale)) * count
    try:
        wanted = list(wanted_runs(study, scale, range(count), places))
    except DataError:
        return State(study, scale, None, total, None, written)
    return State(study, scale, sum(one.finished for one in wanted), total, seconds_left(wanted, total), written)


def seconds_left(wanted: Sequence[Wanted], total: int) -> float | None:
    """In one process, from what finished runs took: of the same row where there is one, else of the study. None if none has finished."""
    took: dict[str, list[float]] = defaultdict(list)
    for one in wanted:
        if one.run.result is not None:
            took[one.row.label].append(float(one.run.result["seconds"]))
    if not took:
        return None
    typical = fmean(seconds for some in took.values() for seconds in some)
    missing = [one for one in wanted if not one.finished]
    known = sum(fmean(took[one.row.label]) if one.row.label in took else typical for one in missing)
    return known + typical * (total - len(wanted))  # decoders whose encoder is not trained yet are not among the wanted
