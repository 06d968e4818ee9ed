"""Studies of Runge–Kutta networks: costs that are equal, runs that are shared, and measured errors apart from printed ones."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from training import QUIET

from continua.models import describe_model
from continua.report import Figure, Table
from continua.runs import identity
from continua.studies import find_study, reproduce
from continua.studies.rknet import EQUAL, PEERS2, TABLE1, TABLE2, _cost_the_same, top5_errors
from continua.studies.runs import Places, wanted_runs
from continua.train import RunOptions, load_recipe, train

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = RunOptions(progress="off")


def test_networks_of_a_kind_cost_the_same_in_any_number_of_steps() -> None:
    for growth in (12, 36):
        networks = {
            label: describe_model(model, growth=growth, **({"stages": stages} if stages else {}))
            for label, (model, stages) in EQUAL.items()
        }
        for kind in ("ERKNet", "IRKNet"):
            assert len({network.flops for label, network in networks.items() if label.startswith(kind)}) == 1
        explicit = {network.parameters for label, network in networks.items() if label.startswith("ERKNet")}
        assert len(explicit) == 1, "explicit ones have as many parameters, too"


def test_costs_that_differ_are_noticed() -> None:
    same = {"ERKNet-a": 1.0, "ERKNet-b": 1.005, "IRKNet-a": 2.0, "IRKNet-b": 2.0}
    assert _cost_the_same(same) is True
    assert _cost_the_same({**same, "IRKNet-b": 2.1}) is False
    assert _cost_the_same({"ERKNet-a": 1.0, "ERKNet-b": 1.0}) is None, "of implicit ones there is nothing to compare"


def test_stages_and_steps_are_compared_with_the_runs_of_table_1() -> None:
    places = Places(Path("nowhere"), [], OPTIONS)
    table1, steps = (
        {run.row.label: identity(run.recipe) for run in wanted_runs(find_study(name), "cpu", [0], places)}
        for name in ("rknet/table1", "rknet/steps")
    )
    assert steps["ERKNet-6×1_6×1_6×1"] == table1["erknet_k36_6x1_6x1_6x1"]
    assert len(set(steps.values())) == len(EQUAL)


@pytest.fixture(scope="module")
def figure4(tmp_path_factory: pytest.TempPathFactory) -> list[Figure]:
    """Of the kept runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)  # where kept runs are
        made = reproduce(find_study("rknet/fig4"), "cpu", runs=tmp_path_factory.mktemp("runs"), options=OPTIONS, train=None)
    return [part for part in made.entry.parts if isinstance(part, Figure)]


def test_measured_errors_share_no_axis_with_printed_ones(figure4: list[Figure]) -> None:
    printed = {value for row in (*TABLE1.values(), *TABLE2.values(), *PEERS2.values()) for value in row[2:]}
    measured = [figure for figure in figure4 if figure.name.startswith("measured")]
    assert [figure.name for figure in measured] == ["measured_parameters", "measured_flops"]
    for figure in measured:
        assert not printed & {y for series in figure.series for y in series.y}
        assert all(len(series.x) == 2 for series in figure.series), "the first and the last of each kind"
        assert all(series.error is not None for series in figure.series)


def test_cliquenets_are_drawn_wherever_the_paper_prints_their_errors(figure4: list[Figure]) -> None:
    for classes, place in ((10, 2), (100, 3)):
        for cost in ("parameters", "flops"):
            (figure,) = [figure for figure in figure4 if figure.name == f"{cost}_cifar{classes}"]
            (clique,) = [series for series in figure.series if series.name == "CliqueNet"]
            assert sorted(clique.y) == sorted(row[place] for name, row in PEERS2.items() if "CliqueNet" in name)


@pytest.mark.parametrize("name", ["rknet/table2", "rknet/table3"])
def test_tables_of_printed_errors_say_what_is_empty_and_draw_the_rest(name: str, tmp_path: Path) -> None:
    made = reproduce(find_study(name), "cpu", runs=tmp_path, options=OPTIONS, train=None)
    (table,) = [part for part in made.entry.parts if isinstance(part, Table)]
    for place, head in enumerate(table.heads):
        if head.label.endswith("error, ours"):
            assert all(row[place] is None for row in table.rows)
    assert "empty" in table.caption
    assert any(isinstance(part, Figure) for part in made.entry.parts)


def test_the_top_5_error_of_finished_networks_is_asked_of_them(tmp_path: Path) -> None:
    changes = dict(model="erknet", data="digits", per_class=6, epochs=1, batch_size=30, augmentation=dict(mean=None, std=None))
    changes["model_options"] = dict(stages="2x1_1x1", growth=4)
    run: Any = train(load_recipe("rknet_cifar", changes), tmp_path / "run", QUIET)
    runs: Any = SimpleNamespace(by_label={"a network": [SimpleNamespace(run=run)]}, options=OPTIONS)
    (error,) = top5_errors(runs)["a network"]
    assert 0 < error < 100 * (1 - run.result["test_accuracy"]), "five guesses err less than one"
