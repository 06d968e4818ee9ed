"""The run of a recipe is found by what it is, not by what its folder is called."""

from pathlib import Path

import pytest
from training import tiny_recipe

from continua.cli import main
from continua.data import load
from continua.train import Run, find_run, identity, load_recipe, resolve, run_id


def begun(folder: Path, **changes: object) -> Run:
    run = Run(folder)
    run.create(resolve(tiny_recipe(**changes)))
    return run


def test_a_run_is_found_by_its_recipe_whatever_its_folder_is_called(tmp_path: Path) -> None:
    begun(tmp_path / "mine", seed=1)
    begun(tmp_path / "study" / "cell", seed=2)
    for seed, folder in [(1, tmp_path / "mine"), (2, tmp_path / "study" / "cell")]:
        found = find_run(tiny_recipe(seed=seed), tmp_path)
        assert found is not None
        assert found.folder == folder
    assert find_run(tiny_recipe(seed=3), tmp_path) is None
    assert find_run(tiny_recipe(), tmp_path / "nowhere") is None


def test_a_finished_run_comes_before_one_that_was_only_begun(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        begun(tmp_path / name)
    finished = Run(tmp_path / "b")
    finished.write_json(finished.result_file, {"identity": run_id(tiny_recipe())})
    found = find_run(tiny_recipe(), tmp_path)
    assert found is not None
    assert found.folder.name == "b"


def test_what_is_no_run_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.yaml").write_text("model: [")
    begun(tmp_path / "whole")
    assert find_run(tiny_recipe(), tmp_path) is not None


@pytest.mark.parametrize(("per_class", "holdout"), [(8, None), (1, None), (2, 0.25), (None, 0.1), (2, 0.19)])
@pytest.mark.parametrize("batch", [15, 16, 17, 1294])
def test_drop_last_is_decided_when_a_recipe_is_resolved_as_the_loader_would(
    per_class: int | None, holdout: float | None, batch: int
) -> None:
    recipe = tiny_recipe(per_class=per_class, holdout=holdout, batch_size=batch, drop_last="auto")
    images = len(load("digits", per_class=per_class, holdout=holdout)["train"])
    assert resolve(recipe).drop_last is (images >= batch)


def test_auto_and_what_it_comes_to_are_the_same_run() -> None:
    auto = tiny_recipe(drop_last="auto")
    assert run_id(auto) == run_id(tiny_recipe(drop_last=True)) != run_id(tiny_recipe(drop_last=False))
    assert run_id(resolve(auto)) == run_id(auto) == identity(resolve(auto))


def test_an_empty_table_on_the_command_line_empties_the_recipes_and_leaves_the_epochs_alone(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--recipe", "small_data", "--per_class", "52", "--print-config"]
    assert main([*words, "--length_by_per_class", "{}"]) == 0
    plain = capsys.readouterr().out
    assert main(words) == 0
    multiplied = capsys.readouterr().out
    assert "epochs: 100\n" in plain
    assert "epochs: 1000\n" in multiplied
    assert load_recipe("small_data", {"length_by_per_class": {}}).length_by_per_class == {}


def test_an_empty_mapping_empties_and_a_filled_one_is_laid_on_top(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("model_options: {channels: [8, 16], solver: {rtol: 0.1, atol: 0.01}}\n")
    assert load_recipe(tmp_path / "r.yaml", {"model_options": {}}).model_options == {}
    kept = load_recipe(tmp_path / "r.yaml", {"model_options": {"solver": {"rtol": 0.5}}}).model_options
    assert kept == {"channels": [8, 16], "solver": {"rtol": 0.5, "atol": 0.01}}
