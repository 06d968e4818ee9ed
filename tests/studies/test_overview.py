"""The report's front page: a row for every study, ours beside the printed value, a verdict, and a link to the study's own page."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from continua.analysis import curves_over_seeds, runs_page
from continua.cli import main
from continua.errors import ConfigError
from continua.files import write_text
from continua.report import VERSION, Column, Entry, Figure, Link, Page, PlusMinus, Table, page_json, to_plain
from continua.runs import Recipe, Run, RunView
from continua.studies import STUDIES, Claim, Printed, asked_for, find_study, report_page
from continua.studies.overview import NOT_RUN, front_page, headline
from continua.studies.reproduction import Written, largest, study_folder, written_studies

CLAIMS = [
    Claim("with 52 images DCN-ODE is ahead — of **all**", "holds", interval=(0.5, 1.5)),
    Claim("so it is with 8", "fails"),
    Claim("and with 2", "undecided"),
]


def entry(name: str, scale: str, ours: float = 46.25) -> Entry:
    """What a study leaves: one table with the row that the front page shows."""
    study = find_study(name)
    row, column = (study.printed.cells, study.printed.column) if isinstance(study.printed, Printed) else ((name,), "ours")
    names = [f"name {place}" for place in range(len(row))]
    rows = [[*["other"] * len(row), 1.0], [*row, PlusMinus(ours, 0.5)]]
    return Entry(
        title=f"{name}: a title",
        paper="DCN",
        asked="Is it?",
        commands=["typed by hand"],
        reduced=["everything"],
        environment={"threads": 1, "precision": "float32"},
        parts=[Table("accuracy", "Accuracy", [*names, Column(column, "%", 1)], rows)],
        study=name,
        scale=scale,
        printed=study.printed,
        claims=CLAIMS,
    )


def write(name: str, scale: str, runs: Path, ours: float = 46.25) -> None:
    """As `continua reproduce` does, without training anything."""
    target = study_folder(find_study(name), scale, runs) / "results.json"
    target.parent.mkdir(parents=True)
    target.write_text(json.dumps({"version": VERSION, "entry": to_plain(entry(name, scale, ours)), "runs": []}))


def test_claims_scale_and_printed_value_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    write("dcn/table2a", "cpu", tmp_path)
    entry("dcn/table2a", "smoke").write(tmp_path / "results" / "dcn" / "table2a.json")
    scales = written_studies(tmp_path, tmp_path / "results")["dcn/table2a"]
    assert {scale: written.entry for scale, written in scales.items()} == {
        "smoke": entry("dcn/table2a", "smoke"),
        "cpu": entry("dcn/table2a", "cpu"),
    }


def test_what_version_0_1_wrote_into_the_folder_of_runs_is_still_read(tmp_path: Path) -> None:
    old = to_plain(entry("dcn/table2a", "cpu"))
    claims = [{"text": claim.hypothesis, "holds": holds} for claim, holds in zip(CLAIMS, (True, False, None), strict=True)]
    for key in ("study", "scale", "printed", "claims"):
        del old[key]
    old["notes"] = [f"Claim: {claim['text']} — **in words**." for claim in claims]
    target = study_folder(find_study("dcn/table2a"), "cpu", tmp_path) / "results.json"
    target.parent.mkdir(parents=True)
    target.write_text(json.dumps({"study": "dcn/table2a", "scale": "cpu", "claims": claims, "entry": old, "runs": []}))
    written = written_studies(tmp_path, tmp_path / "nothing")["dcn/table2a"]["cpu"]
    assert [(claim.hypothesis, claim.verdict) for claim in written.entry.claims] == [(c.hypothesis, c.verdict) for c in CLAIMS]
    assert not written.entry.notes
    assert headline(written) == "46.2 ± 0.5\u00a0%"


def test_the_front_page_has_a_row_for_every_study_and_links_to_those_that_were_run(tmp_path: Path) -> None:
    write("dcn/table2a", "cpu", tmp_path)
    page = report_page(asked_for([], tmp_path), tmp_path)
    (table,) = [part for part in page.parts if isinstance(part, Table)]
    rows = {cells[0].text if isinstance(cells[0], Link) else cells[0]: cells for cells in table.rows}
    assert list(rows) == list(STUDIES)
    first = rows["dcn/table2a"]
    assert first[2:] == ("44.5 ± 0.8 % (DCN-ODE, 52 per class)", "46.2 ± 0.5\u00a0%", "cpu", "1 hold, 1 fail, 1 undecided")
    linked = [cell.section for cells in table.rows for cell in cells if isinstance(cell, Link)]
    assert set(linked) <= {section.title for section in page.sections}
    assert all((cells[-1] == NOT_RUN) is not isinstance(cells[0], Link) for cells in table.rows)


def test_a_study_is_shown_at_its_largest_scale_unless_asked_otherwise(tmp_path: Path) -> None:
    write("dcn/table2a", "smoke", tmp_path, 11.0)
    write("dcn/table2a", "paper", tmp_path, 44.0)
    scales = written_studies(tmp_path, tmp_path / "nothing")["dcn/table2a"]
    assert largest(scales).scale == "paper"
    assert list(scales) == ["smoke", "paper"]
    shown = [report_page(asked_for([word], tmp_path), tmp_path).sections[0].title for word in ("dcn/table2a", "dcn/table2a@smoke")]
    assert [title.partition(":")[0] for title in shown] == ["dcn/table2a at paper", "dcn/table2a at smoke"]


def test_kept_results_count_and_ones_own_come_first(tmp_path: Path) -> None:
    entry("dcn/table1", "cpu", 80.0).write(tmp_path / "results" / "dcn" / "table1.json")
    assert headline(written_studies(tmp_path / "runs", tmp_path / "results")["dcn/table1"]["cpu"]) == "80.0 ± 0.5\u00a0%"
    write("dcn/table1", "cpu", tmp_path / "runs", 70.0)
    assert headline(written_studies(tmp_path / "runs", tmp_path / "results")["dcn/table1"]["cpu"]) == "70.0 ± 0.5\u00a0%"


def test_without_a_number_the_front_page_says_what_became_of_the_first_claim() -> None:
    bare = entry("dcn/fig4a", "cpu")
    written = Written(find_study("dcn/fig4a"), bare)
    assert headline(written) == f"{CLAIMS[0].hypothesis}: holds here"


def test_every_study_with_a_printed_number_names_the_row_it_is_compared_with() -> None:
    for study in STUDIES.values():
        if re.match(r"(about )?\d", study.published) and study.rows("paper") and "evaluations" not in study.published:
            assert isinstance(study.printed, Printed), study.id
            assert study.printed.column, study.id


def test_a_printed_number_is_written_as_the_paper_has_it() -> None:
    assert find_study("dcn/table4").published == "89.97 ± 0.30 % (DCN σ(t))"
    assert find_study("dcn/table2b").published == "0.0171 (DCN-ODE)"
    assert find_study("anodev2/table4").published == "77.73 % (ResNet-4)"
    assert find_study("rknet/table3").published == "23.14 % top-1 (3×1_3×1_6×1_2×1-B)"
    assert find_study("features/fig2").published == "about 21 % at t = 0.45 (ODE-only Net)"


def test_the_report_of_studies_is_one_file_whose_links_lead_somewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # away from the results kept with the project, which may hold the study at a larger scale
    write("dcn/table2a", "smoke", tmp_path)
    assert main(["report", "dcn", "--runs", str(tmp_path), "--files", str(tmp_path / "files")]) == 0
    text = (tmp_path / "report.html").read_text("utf-8")
    anchors, targets = set(re.findall(r'id="([^"]+)"', text)), set(re.findall(r'href="#([^"]+)"', text))
    assert targets <= anchors
    assert "dcn-table2a-at-smoke-small-data" in targets
    assert "Reduced from the paper: everything." in text
    assert "threads 1" in text
    assert "precision float32" in text
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
    assert (tmp_path / "files" / "studies.csv").read_text("utf-8").startswith("study,what,published,ours,scale,verdict")
    assert "wrote" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("dcn/tabel2a", "did you mean dcn/table2a"),
        ("dnc/table2a", "did you mean dcn/table2a"),
        ("dcn/table2a@large", "unknown scale 'large'; .*known: smoke"),
        (".", "is not a run"),
        ("runs/nowhere", "neither the folder of a run nor a study"),
    ],
)
def test_what_is_neither_a_run_nor_a_study_is_refused(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        asked_for([word])


def test_a_front_page_of_nothing_says_that_nothing_was_run() -> None:
    page = front_page(list(STUDIES.values()), {})
    claims, own = (sum(study.claims for study in STUDIES.values() if study.own is own) for own in (False, True))
    studies = f"{len(STUDIES)} studies of 4 papers and of our own"
    assert page.parts[0] == (
        f"{studies}: 0 done, 0 partly, 0 kept from earlier recipes, {len(STUDIES)} without a result. "
        f"Claims: 0 hold, 0 fail, 0 undecided, {claims} not run. Claims of our own: 0 hold, 0 fail, 0 undecided, {own} not run."
    )


def begun(folder: Path, lines: Sequence[dict[str, Any]]) -> RunView:
    """A run with these lines of metrics."""
    run = Run(folder)
    run.create(Recipe())
    for line in lines:
        run.append(line)
    return RunView(folder)


def test_a_page_about_many_runs_is_a_table_and_nothing_that_grows_with_them(tmp_path: Path) -> None:
    lines = [{"event": "epoch", "epoch": epoch, "loss": 1.0, "train_accuracy": 0.5} for epoch in (1, 2, 3)]
    runs = [begun(tmp_path / f"run {place}", lines) for place in range(13)]
    for run in runs:
        answer = run.folder / "analysis" / "scales" / "0123456789abcdef"
        write_text(answer / "page.json", page_json(Page("Scales", ["σ"])))
        write_text(answer / "numbers.json", "{}")
    few, many = runs_page(runs[:12]), runs_page(runs)
    assert (len(few.every(Figure)), len(few.sections)) == (2, 12)
    assert (len(many.every(Figure)), len(many.sections)) == (0, 0)
    assert len(many.every(Table)[0].rows) == 13
    assert "up to 12 runs" in str(many.parts[-1])


def test_curves_over_seeds_are_means_with_a_band_over_the_epochs_that_all_have(tmp_path: Path) -> None:
    def run(*losses: float) -> RunView:
        lines = [{"event": "epoch", "epoch": place + 1, "loss": loss} for place, loss in enumerate(losses)]
        return begun(tmp_path / str(losses), lines)

    (figure,) = curves_over_seeds({"two": [run(1.0, 4.0), run(3.0, 4.0, 9.0)], "one": [run(2.0, 1.0)], "none": []})
    two, single = figure.series
    assert (two.x, two.y) == ((1.0, 2.0), (2.0, 4.0))
    assert two.error == (pytest.approx(2**0.5), 0.0)
    assert single.error is None
    assert {two.dash, single.dash} == {0, 1}
