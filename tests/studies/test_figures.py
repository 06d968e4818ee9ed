"""Every kept study can be seen, not only read."""

from pathlib import Path

import pytest

from continua.report import Axis, Figure, Maps, read_entry
from continua.studies import STUDIES, every_seed

RESULTS = Path(__file__).parents[2] / "results"
KEPT = [study for study in STUDIES.values() if (RESULTS / f"{study.id}.json").is_file()]


@pytest.mark.parametrize("study", KEPT, ids=lambda study: study.id)
def test_a_kept_study_has_a_figure(study):
    entry = read_entry(RESULTS / f"{study.id}.json")
    if entry.earlier:
        pytest.skip("of earlier recipes: its next result has one")
    assert any(isinstance(part, Figure | Maps) for part in entry.parts) or study.shows_images


def test_each_run_is_a_point_beside_the_mean_of_its_row():
    (figure,) = every_seed("seeds", "Accuracy", {"A": {0: 1.0, 2: 3.0}, "B": {0: 5.0}, "none": {}}, Axis("accuracy", "%"))
    points, means = figure.series
    assert list(zip(points.x, points.y, strict=True)) == [("A", 1.0), ("A", 3.0), ("B", 5.0)]
    assert list(zip(means.x, means.y, strict=True)) == [("A", 2.0), ("B", 5.0)]


def test_nothing_finished_is_no_figure():
    assert every_seed("seeds", "Accuracy", {"A": {}}, Axis("accuracy", "%")) == []
