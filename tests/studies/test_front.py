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
from continua.report import Column, Entry, Figure, Page, PlusMinus, Table, page_json, write_text
from continua.report.page import Link
from continua.report.plain import to_plain
from continua.runs import Recipe, Run, RunView
from continua.studies import STUDIES, Claim, find_study
from continua.studies.claims import claim_from, claim_text, verdict
from continua.studies.front import NOT_RUN, front_page, headline
from continua.studies.overview import asked_for, report_page
from continua.studies.written import Written, largest, study_folder, written_studies

CLAIMS = [Claim("with 52 images DCN-ODE is ahead — of **all**", True), Claim("so it is with 8", False), Claim("and with 2", None)]


def entry(name: str, scale: str, ours: float = 46.25) -> Entry:
    """What a study leaves: one table with the row that the front page shows."""
    row, column = find_study(name).compared
    table = Table("accuracy", "Accuracy", ["model", Column(f"{column}, accuracy", "%", 1)], [["other", 1.0], [row, PlusMinus(ours, 0.5)]])
    command = f"continua reproduce {name} --scale {scale}"
    notes = [claim_text(claim) for claim in CLAIMS]
    return Entry(f"{name}: a title", "DCN", "Is it?", [command], ["everything"], {"threads": 1, "precision": "float32"}, [table], notes)


def write(name: str, scale: str, runs: Path, ours: float = 46.25) -> None:
    """As `continua reproduce` does, without training anything."""
    target = study_folder(find_study(name), scale, runs) / "results.json"
    target.parent.mkdir(parents=True)
    target.write_text(json.dumps({"study": name, "entry": to_plain(entry(name, scale, ours)), "runs": []}))


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_is_read_back_from_its_sentence(claim: Claim) -> None:
    assert claim_from(claim_text(claim)) == claim


def test_other_sentences_are_no_claims() -> None:
    assert claim_from("Claim: nothing.") is None
    assert claim_from("A note by hand — **bold**.") is None


@pytest.mark.parametrize(
    ("claims", "scale", "said"),
    [
        (CLAIMS[:1], "cpu", "agrees: 1 of 1 claims hold"),
        (CLAIMS, "cpu", "differs: 1 of 2 claims hold"),
        (CLAIMS[2:], "cpu", "cannot be told"),
        (CLAIMS, "smoke", "not judged"),
        ([], "cpu", "shown"),
    ],
)
def test_a_verdict_counts_the_claims_that_can_be_told(claims: list[Claim], scale: str, said: str) -> None:
    assert verdict(claims, scale) == said


def test_the_front_page_has_a_row_for_every_study_and_links_to_those_that_were_run(tmp_path: Path) -> None:
    write("dcn/table2a", "cpu", tmp_path)
    page = report_page(asked_for([], tmp_path), tmp_path)
    (table,) = [part for part in page.parts if isinstance(part, Table)]
    rows = {cells[0].text if isinstance(cells[0], Link) else cells[0]: cells for cells in table.rows}
    assert list(rows) == list(STUDIES)
    first = rows["dcn/table2a"]
    assert first[2:] == ("44.5 ± 0.8 % (DCN-ODE, 52 per class)", "46.2 ± 0.5\u00a0%", "cpu", "differs: 1 of 2 claims hold")
    linked = [cell.section for cells in table.rows for cell in cells if isinstance(cell, Link)]
    assert set(linked) <= {section.title for section in page.sections}
    assert all((cells[-1] == NOT_RUN) is not isinstance(cells[0], Link) for cells in table.rows)


def test_a_study_is_shown_at_its_largest_scale_unless_asked_otherwise(tmp_path: Path) -> None:
    write("dcn/table2a", "smoke", tmp_path, 11.0)
    write("dcn/table2a", "paper", tmp_path, 44.0)
    found = written_studies(tmp_path, tmp_path / "nothing")["dcn/table2a"]
    assert largest(found).scale == "paper"
    assert list(found) == ["smoke", "paper"]
    shown = [report_page(asked_for([word], tmp_path), tmp_path).sections[0].title for word in ("dcn/table2a", "dcn/table2a@smoke")]
    assert [title.partition(":")[0] for title in shown] == ["dcn/table2a at paper", "dcn/table2a at smoke"]


def test_kept_results_count_and_ones_own_come_first(tmp_path: Path) -> None:
    entry("dcn/table1", "cpu", 80.0).write(tmp_path / "results" / "dcn" / "table1.json")
    assert headline(written_studies(tmp_path / "runs", tmp_path / "results")["dcn/table1"]["cpu"]) == "80.0 ± 0.5\u00a0%"
    write("dcn/table1", "cpu", tmp_path / "runs", 70.0)
    assert headline(written_studies(tmp_path / "runs", tmp_path / "results")["dcn/table1"]["cpu"]) == "70.0 ± 0.5\u00a0%"


def test_without_a_number_the_front_page_says_what_became_of_the_first_claim() -> None:
    bare = entry("dcn/fig4a", "cpu")
    written = Written(find_study("dcn/fig4a"), "cpu", bare)
    assert headline(written) == f"{CLAIMS[0].text}: holds here"


def test_every_study_with_a_printed_number_names_the_row_it_is_compared_with() -> None:
    for study in STUDIES.values():
        if re.match(r"(about )?\d", study.printed) and study.rows("paper") and "evaluations" not in study.printed:
            assert study.compared[0], study.id


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
        ("dcn/table2a@large", "expected one of smoke"),
        (".", "is not a run"),
        ("runs/nowhere", "neither the folder of a run nor a study"),
    ],
)
def test_what_is_neither_a_run_nor_a_study_is_refused(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        asked_for([word])


def test_a_front_page_of_nothing_says_that_nothing_was_run() -> None:
    page = front_page(list(STUDIES.values()), {})
    assert page.parts[0] == f"{len(STUDIES)} studies of 4 papers: {len(STUDIES)} not run."


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
    two, one = figure.series
    assert (two.x, two.y) == ((1.0, 2.0), (2.0, 4.0))
    assert two.error == (pytest.approx(2**0.5), 0.0)
    assert one.error is None
    assert {two.dash, one.dash} == {0, 1}
