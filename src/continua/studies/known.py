"""All studies, by their names."""

from difflib import get_close_matches

from continua.errors import ConfigError
from continua.studies import anodev2, dcn, dcn_figures, features, rknet
from continua.studies.study import Study

_PAPERS = ([*dcn.STUDIES, *dcn_figures.STUDIES], anodev2.STUDIES, features.STUDIES, rknet.STUDIES)
# As in the papers: tables by number, then figures.
STUDIES: dict[str, Study] = {one.id: one for paper in _PAPERS for one in sorted(paper, key=lambda one: ("/fig" in one.id, one.id))}


def find_study(name: str) -> Study:
    """A study by its name."""
    if name not in STUDIES:
        near = get_close_matches(name, STUDIES, n=2, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else "`continua reproduce --list` shows all"
        raise ConfigError(f"there is no study {name!r}; {hint}")
    return STUDIES[name]


def find_studies(name: str) -> list[Study]:
    """One study, or all of a paper's."""
    return [study for study in STUDIES.values() if study.id.startswith(f"{name}/")] or [find_study(name)]
