"""Studies: every one runs at `smoke`, names all its runs, and finds finished runs again by their configuration."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from continua import ConfigError
from continua.analysis import ContrastSaving
from continua.cli import main
from continua.report import Entry, Table, from_plain
from continua.runs import Run, identity, load_recipe
from continua.studies import (
    SCALES,
    STUDIES,
    Finding,
    Row,
    Runs,
    Study,
    ask_kept,
    claim_above,
    claim_ahead,
    claim_that,
    dcn,
    decided,
    find_study,
    keep,
    reproduce,
    train_here,
    train_row,
)
from continua.studies.dcn_figures import _cost_of_scaling
from continua.studies.reproduction import KEPT, _copy_run, study_folder
from continua.studies.runs import Places, wanted_runs
from continua.train import RunOptions

pytestmark = pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
QUICK = ["dcn/table2a", "anodev2/table1", "features/table1", "rknet/table1"]  # one of each paper
OPTIONS = RunOptions(progress="off")


def smoke(name: str, runs: Path, train=train_here):
    return reproduce(find_study(name), "smoke", runs=runs, options=OPTIONS, train=train)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def check_written(made) -> None:
    """What a person finds after `continua reproduce`."""
    written = json.loads((made.folder / "results.json").read_text("utf-8"))
    assert written["study"] == made.study.id
    assert from_plain(Entry, written["entry"]).claims == list(made.finding.claims)
    assert (made.entry.study, made.entry.scale, made.entry.printed) == (made.study.id, made.scale, made.study.printed)
    assert all(run["result"]["identity"] == run["identity"] for run in written["runs"])
    assert (made.folder / "page.md").read_text("utf-8").startswith(f"# {made.study.id}")
    assert "<html" in (made.folder / "page.html").read_text("utf-8")


@pytest.mark.parametrize("name", QUICK)
def test_a_study_runs_at_smoke(name, runs):
    check_written(smoke(name, runs))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STUDIES if name not in QUICK])
def test_every_study_runs_at_smoke(name, runs):
    check_written(smoke(name, runs))


def test_a_study_run_again_trains_nothing(runs):
    smoke("dcn/table2a", runs)

    def refuse(missing, options):
        pytest.fail(f"asked to train {[run.name for run in missing]}")

    (study_folder(find_study("dcn/table2a"), "smoke", runs) / "by_size.svg").write_text("of an earlier time")
    made = smoke("dcn/table2a", runs, refuse)
    check_written(made)
    assert "<svg" in (made.folder / "by_size.svg").read_text("utf-8"), "pictures follow the numbers"


def test_runs_are_shared_between_studies():
    places = Places(Path("nowhere"), [], OPTIONS)
    first, second = (
        {identity(run.recipe): run.row.label for run in wanted_runs(find_study(name), "cpu", range(1), places)}
        for name in ("dcn/table1", "dcn/table2a")
    )
    assert {first[name] for name in first.keys() & second.keys()} == {"ResNet-blocks", "ODE-Net", "DCN-ODE"}


QUESTIONS = ["fig3a", "fig3c", "fig4a", "fig4b", "fig6", "fig7", "reaction_time"]  # to networks that Table 2a trains


@pytest.mark.parametrize("name", [*(f"dcn/{figure}" for figure in QUESTIONS), "neuro/tuning"])
def test_questions_are_asked_of_the_first_networks_of_table_2a(name):
    places = Places(Path("nowhere"), [], OPTIONS)
    trained, asked = find_study("dcn/table2a"), find_study(name)
    seeds = range(asked.setting("cpu").seeds)
    networks = {(run.row.label, run.recipe.seed): identity(run.recipe) for run in wanted_runs(trained, "cpu", seeds, places)}
    runs = [run for run in wanted_runs(asked, "cpu", seeds, places) if run.row.label != "DCN-full"]  # Figure 3a: of Table 1
    assert runs
    for run in runs:
        assert identity(run.recipe) == networks[f"{run.row.label}, 52 per class", run.recipe.seed]


def test_as_many_seeds_are_planned_as_the_claims_need():
    """Eight where the paper's main claim is decided, five where tables are trained for themselves, four where networks are only asked."""
    planned = {
        name: study.setting("cpu").seeds for name, study in STUDIES.items() if name.startswith(("dcn/", "neuro/")) and study.rows("cpu")
    }
    assert planned.pop("dcn/table2a") == 8
    assert {planned.pop(f"dcn/{name}") for name in ("table1", "table2b", "table4", "table5", "fig3b")} == {5}
    assert (planned.pop("dcn/fig5"), planned.pop("dcn/fig6")) == (1, 1), "one network of each kind is shown"
    assert set(planned.values()) == {4}


@pytest.mark.parametrize("name", STUDIES)
def test_every_scale_of_a_study_says_what_it_reduces(name):
    study = find_study(name)
    assert {"smoke", "cpu", "paper"} <= set(study.settings) <= set(SCALES)
    assert not (study.rows("paper") and study.setting("paper").reduced), "computed, not written by hand"
    if study.rows("cpu"):
        assert study.setting("cpu").threads  # bit for bit only at the same number
    labels = [row.label for row in study.rows("paper")]
    assert len(set(labels)) == len(labels)


def test_a_kept_study_is_found_again_without_its_runs(runs, tmp_path, monkeypatch):
    made = smoke("dcn/table2a", runs)
    monkeypatch.chdir(tmp_path)
    kept = keep(made)
    assert (KEPT / "dcn" / "table2a.json") in kept
    assert all(run.finished for run in wanted_runs(made.study, "smoke", range(1), Places(tmp_path / "none", [KEPT], OPTIONS)))


def test_small_data_says_how_far_each_training_came(runs):
    made = smoke("dcn/table2a", runs)
    (learnt,) = [part for part in made.entry.parts if isinstance(part, Table) and part.name == "learnt"]
    ends = {run.row.label: 100 * run.run.lines()[-1]["train_accuracy"] for run in made.runs}
    assert {row[0]: row[1].value for row in learnt.rows} == pytest.approx(ends)


def test_studies_share_the_answers_of_analyses(runs):
    smoke("dcn/fig4a", runs)
    asked = sorted(path.parent for path in (runs / "studies" / "analysis").rglob("numbers.json"))
    assert asked
    smoke("dcn/fig3c", runs)  # asks the same of the same networks
    assert sorted(path.parent for path in (runs / "studies" / "analysis").rglob("numbers.json")) == asked


def test_runs_with_large_weights_are_not_kept(runs, tmp_path, monkeypatch):
    made = smoke("dcn/table2a", runs)
    monkeypatch.chdir(tmp_path)
    largest = max(path.stat().st_size for run in made.runs for path in run.run.best.iterdir())
    monkeypatch.setattr("continua.studies.reproduction.MOST_BYTES", largest)
    kept = {path.name for path in keep(made)}
    names = {run.run.folder.name for run in made.runs}
    assert kept < {"table2a.json", *names}
    assert kept & names
    monkeypatch.setattr("continua.studies.reproduction.MOST_BYTES", largest + 1)
    assert {path.name for path in keep(made)} == {"table2a.json", *names}


def test_a_run_that_studies_of_two_papers_ask_is_kept_once(runs, tmp_path, monkeypatch):
    made = smoke("dcn/table2a", runs)
    monkeypatch.chdir(tmp_path)
    keep(made)
    other = replace(made, study=replace(made.study, id="another/table"))
    assert {path.name for path in keep(other)} == {"table.json"}


def test_a_contrast_that_changes_nothing_is_no_evidence_that_nothing_is_lost():
    unchanged = ContrastSaving([1.0, 1.0], 0.0, 0.0)
    claim = _cost_of_scaling("nothing is lost", [unchanged] * 4, "accuracy lost")
    (judged,) = decided([claim], 4)
    assert judged.verdict == "undecided"
    assert not judged.fact
    changed = [ContrastSaving([0.5, 1.0], 0.2, lost) for lost in (0.0001, 0.0002, 0.0001, 0.0)]
    (judged,) = decided([_cost_of_scaling("nothing is lost", [unchanged, *changed], "accuracy lost")], 4)
    assert (judged.verdict, judged.seeds) == ("holds", 4)


def test_a_kept_decoder_names_no_folder_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoder, run = tmp_path / "runs" / "an_encoder", Run(tmp_path / "runs" / "a_decoder")
    run.create(load_recipe("reconstruction", {"encoder": str(encoder)}))
    for path in (run.metrics, run.environment, run.result_file, run.best / "config.json"):
        run.write(path, "{}")
    kept = Run(_copy_run(run, KEPT / "dcn" / "a_decoder"))
    assert kept.recipe == replace(run.recipe, encoder="results/dcn/an_encoder")
    assert str(tmp_path) not in kept.config.read_text("utf-8")


def test_one_row_is_trained_gone_on_with_and_left_alone(tmp_path, capsys):
    words = ["reproduce", "dcn/table2a", "--scale", "smoke", "--row", "ODE-Net, 2 per class", "--seed", "3", "--runs", str(tmp_path)]
    assert main(words) == 0
    (config,) = tmp_path.glob("*/config.yaml")
    assert "seed3" in config.parent.name
    before = config.with_name("metrics.jsonl").stat().st_mtime_ns
    assert main(words) == 0
    assert config.with_name("metrics.jsonl").stat().st_mtime_ns == before
    assert "ODE-Net, 2 per class, seed 3: test accuracy" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="did you mean ODE-Net, 2 per class"):
        train_row(find_study("dcn/table2a"), "smoke", "ODE-Net 2 per class", 0, runs=tmp_path, options=OPTIONS, train=train_here)


def test_a_study_compares_the_runs_that_are_finished(tmp_path):
    options: dict = dict(runs=tmp_path, options=OPTIONS)
    study = find_study("dcn/table2a")
    train_row(study, "smoke", "DCN-ODE, 2 per class", 0, train=train_here, **options)
    made = reproduce(study, "smoke", train=None, **options)
    assert [run.row for run in made.entry.runs] == ["DCN-ODE, 2 per class"]


def planted(seeds: int) -> Study:
    """One network under two names, each trained by itself: they differ in how many images are tested at a time, which decides nothing."""

    def rows(scale: str) -> list[Row]:
        return [Row(label, "small_data", dict(model="resnet_blocks", evaluation_batch_size=size)) for label, size in (("A", 60), ("B", 50))]

    def ask(runs: Runs) -> Finding:
        losses = runs.by_seed("test_loss")
        higher = claim_ahead("A has a higher loss than B", losses.get("A", {}), losses.get("B", {}), unit="in loss")
        return Finding([], [higher, claim_that("both were trained", {"A", "B"} <= losses.keys())])

    setting = replace(find_study("dcn/table2a").setting("smoke"), seeds=seeds)
    return Study("planted/null", "nobody", "two names for one network", "Is one ahead?", {"smoke": setting}, ask, rows, claims=2)


def test_one_network_under_two_names_is_trained_twice_and_comes_out_undecided(tmp_path):
    made = reproduce(planted(2), "smoke", runs=tmp_path, options=OPTIONS, train=train_here)
    assert len({run.run.folder for run in made.runs}) == 4, "nothing was taken from the other name"
    null, trained = made.finding.claims
    assert (null.verdict, null.seeds) == ("undecided", 2)
    assert null.statistic == pytest.approx(0, abs=1e-6)
    assert trained.verdict == "holds"


def test_a_study_with_fewer_seeds_than_planned_judges_nothing_unless_its_plan_is_gone(tmp_path):
    """Its claim is as clear as can be, but is asked of two seeds of three."""

    def rows(scale: str, **change: object) -> list[Row]:
        return [replace(row, change={**row.change, **change}) for row in planted(3).rows(scale)[:1]]

    def ask(runs: Runs) -> Finding:
        losses = runs.by_seed("test_loss")["A"]
        return Finding([], [claim_above("a loss is above zero", [1 + loss / 1e6 for loss in losses.values()], of="1 + loss / 10⁶")])

    study, kept = replace(planted(3), ask=ask, rows=rows), tmp_path / "results"
    options: dict = dict(runs=tmp_path / "runs", options=OPTIONS, train=train_here)
    made = reproduce(study, "smoke", seeds=2, **options)
    (early,) = made.finding.claims
    assert (early.verdict, early.planned) == ("undecided", 3)
    assert "so far, 2 of 3 seeds" in early.sentence
    keep(made, kept)
    again = ask_kept(study, options=OPTIONS, kept=kept, out=tmp_path / "out")
    assert again.finding.claims == made.finding.claims, "what is kept keeps its plan"
    others = replace(study, rows=lambda scale: rows(scale, optimiser=dict(lr=0.2)))
    earlier = ask_kept(others, options=OPTIONS, kept=kept, out=tmp_path / "out")
    assert earlier.entry.earlier
    assert earlier.finding.claims[0].verdict == "holds", "the plan of earlier recipes is gone"
    (whole,) = reproduce(study, "smoke", **options).finding.claims
    assert whole.verdict == "holds"


def test_every_network_of_the_controls_takes_the_same_share_of_t_in_each_step():
    """So the steps of a control with T = 2 are twice as long; whether they are short enough is asked in the table itself."""
    places = Places(Path("nowhere"), [], OPTIONS)
    runs = list(wanted_runs(find_study("dcn/table5"), "cpu", range(1), places))
    assert {run.recipe.model_options["t1"] for run in runs} == {1.0, 2.0}
    first, *others = ((run.recipe.model_options["solver"], run.recipe.model_options["block_solvers"]) for run in runs)
    assert all(other == first for other in others)


@pytest.mark.parametrize("name", ["dcn/table1", "dcn/table2a", "dcn/table4", "dcn/table5"])
def test_every_table_asks_whether_its_ode_networks_are_resolved(name):
    """The same weights under a fine solve, for each row that has a solver and for no other."""
    asked = []

    def fine_and_as_trained(question, label, **how):
        asked.append(label)
        assert how["limit"] == 10_000
        settings = [SimpleNamespace(accuracy=accuracy) for accuracy in (0.5, 0.496)]
        return {0: SimpleNamespace(result=SimpleNamespace(settings=settings))}

    wanted = wanted_runs(find_study(name), "cpu", range(1), Places(Path("nowhere"), [], OPTIONS))
    by_label = {run.row.label: [run] for run in wanted}
    runs = SimpleNamespace(scale="cpu", by_label=by_label, ask_each=fine_and_as_trained)
    (table,) = dcn.resolution(runs, list(by_label))  # pyright: ignore[reportArgumentType]  # a stand-in
    in_time = [label for label, (run,) in by_label.items() if run.recipe.model_options.get("solver")]
    assert asked == [row[0] for row in table.rows] == in_time
    assert [row[1].value for row in table.rows] == pytest.approx([0.4] * len(in_time))
    assert {row[-1] for row in table.rows} == {"yes"}
    assert len(by_label) - len(in_time) == sum("ResNet" in label for label in by_label)


def test_the_small_data_study_is_optimised_as_the_paper_says():
    """SGD 0.1, momentum 0.9, batches of 128, drops at 40 % and 70 %, sampled N-jets, last weights; 4,000 updates on 52 images per class,
    a quarter of them at cpu."""
    places = Places(Path("nowhere"), [], OPTIONS)
    for scale, updates in (("cpu", 1000), ("wide", 4000)):
        for run in wanted_runs(find_study("dcn/table2a"), scale, range(1), places):
            recipe, printed = run.recipe, load_recipe("small_data")
            assert (recipe.optimiser, recipe.augmentation) == (printed.optimiser, printed.augmentation)
            assert (recipe.batch_size, recipe.selection) == (128, "last")
            assert recipe.schedule.milestones == (0.4 * recipe.epochs, 0.7 * recipe.epochs)
            assert not recipe.model_options.get("conv_options")
            if recipe.per_class == 52:
                assert recipe.drop_last is True
                assert recipe.epochs * (520 // 128) == updates


def test_groups_of_norms_have_as_many_channels_as_in_the_paper():
    places = Places(Path("nowhere"), [], OPTIONS)
    for run in wanted_runs(find_study("features/table1"), "cpu", range(1), places):
        assert run.recipe.model_options["width"] / run.recipe.model_options["norm_groups"] == 256 / 32
    full = {run.row.label: run.recipe.model_options for run in wanted_runs(find_study("dcn/table1"), "cpu", range(1), places)}
    assert full["DCN-full"]["norm_groups"] == "channels"
    assert full["DCN-ODE"]["channels"][-1] / full["DCN-ODE"]["norm_groups"] == 128 / 32


def test_an_unknown_study_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean dcn/table2a"):
        find_study("dcn/tabel2a")


def test_every_output_says_what_was_reduced_and_how_it_was_computed(runs):
    made = smoke("dcn/table2a", runs)
    for text in [(made.folder / name).read_text("utf-8") for name in ("page.md", "page.html")]:
        assert f"Reduced from the paper: {made.study.setting('smoke').reduced[0]}." in text
        assert "threads 1" in text
        assert "precision float32" in text
    environment = json.loads((made.folder / "results.json").read_text("utf-8"))["entry"]["environment"]
    assert environment["precision"] == "float32"
    assert environment["threads"] == 1


def test_the_printed_command_makes_the_same_numbers_again(runs, tmp_path, monkeypatch, capsys):
    """In a fresh folder, word for word: every number but the time is the same, bit for bit."""
    made = smoke("dcn/table2a", runs)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CONTINUA_RUNS", raising=False)
    (command,) = made.entry.commands
    program, *words = command.split()
    assert program == "continua"
    assert main(words) == 0
    again = tmp_path / "runs" / "studies" / "dcn-table2a" / "smoke" / "results.json"
    assert lasting(again) == lasting(made.folder / "results.json")
    assert f"numbers, pictures and page.html in {again.parent.relative_to(tmp_path)}" in capsys.readouterr().out


def lasting(results: Path) -> dict:
    """results.json without what the clock decides."""
    data = json.loads(results.read_text("utf-8"))
    for run in data["runs"]:
        run["result"].pop("seconds")
    return data
