"""What differs from a paper is computed from two recipes: every planted difference is named, and none that is not there."""

from dataclasses import replace
from pathlib import Path

import pytest

from continua.errors import DataError
from continua.ode import SolverConfig
from continua.runs import load_recipe, resolve
from continua.studies import STUDIES, Study, find_study
from continua.studies.plain import PLAIN_WORDS
from continua.studies.published import SOLVER, Trained, differences, published_recipes, reduced
from continua.studies.runs import Places, _wanted, wanted_runs
from continua.train import RunOptions

PAPER = resolve(load_recipe("dcn", {"model": "dcn_ode"}))


def said(**changes: object) -> list[str]:
    return differences([Trained("DCN-ODE", replace(PAPER, **changes))], {"DCN-ODE": PAPER})


def test_the_same_recipe_differs_in_nothing() -> None:
    assert said() == []
    assert said(seed=7, evaluation_batch_size=10) == [], "these decide no result"


def test_a_solver_that_a_recipe_does_not_name_is_the_default_one() -> None:
    assert SolverConfig() == SolverConfig(**SOLVER)


def test_every_planted_difference_is_named_with_both_values() -> None:
    optimiser = replace(PAPER.optimiser, lr=0.025, clip_norm=1.0, weight_decay=5e-4)
    options = {**PAPER.model_options, "norm_groups": 8, "solver": dict(method="rk4", steps=2)}
    words = said(optimiser=optimiser, model_options=options, holdout=0.1, per_class=52, selection="paper", epochs=12)
    for text in (
        "learning rate 0.025 instead of 0.1",
        "gradient clipped at 1 instead of nothing",
        "weight decay 0.0005 instead of 0",
        "groups of a norm 8 instead of 32",
        "solver rk4 instead of dopri5",
        "fixed steps 2 instead of adaptive ones",
        "share held out 0.1 instead of none",
        "training images per class 52 instead of all",
        "weights from the epoch best on test images instead of from the last epoch",
        "epochs 12 instead of 100",
    ):
        assert text in words
    assert len(words) == 10


def test_a_difference_of_some_rows_says_of_which() -> None:
    other = resolve(load_recipe("dcn", {"model": "odenet"}))
    trained = [Trained("DCN-ODE", replace(PAPER, epochs=7)), Trained("ODE-Net", other)]
    assert differences(trained, {"DCN-ODE": PAPER, "ODE-Net": other}) == ["epochs 7 instead of 100 (dcn_ode)"]


PLACES = Places(Path("nowhere"), [], RunOptions(progress="off"))


def planned(study: Study, scale: str) -> list[Trained]:
    """Every training that a study wants, as if it were done; decoders need a trained encoder, and stand here as their recipe does."""
    runs = []
    for row in study.rows(scale):
        if row.encoder is not None:
            changes = {**study.setting(scale).change, **row.change, "encoder": "."}
            changes.pop("model_options", None)
            runs.append(Trained(row.label, load_recipe(row.recipe, changes)))
            continue
        runs.append(Trained(row.label, _wanted(row, study.setting(scale), 0, None, PLACES).recipe))
    return runs


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_says_at_every_scale_what_it_reduces(name: str) -> None:
    study = STUDIES[name]
    for scale, setting in study.settings.items():
        try:
            trained = planned(study, scale)
        except DataError:
            assert (name, scale) == ("rknet/table3", "paper"), "ImageNet is the one data set that cannot be planned without its files"
            continue
        words = reduced(study, scale, setting.seeds, trained)
        assert all(isinstance(sentence, str) and sentence for sentence in words)
        assert not any("{" in sentence or "[" in sentence or "model_options" in sentence for sentence in words), "words, not data"
        if scale == "cpu" and trained:
            assert len(words) > 3, "much is reduced to fit a CPU"


def test_a_network_from_before_there_was_an_option_differs_in_nothing() -> None:
    paper = resolve(load_recipe("rknet_cifar", {"model": "erknet_k36_6x1_6x1_6x1"}))
    old = replace(paper, model_options={name: value for name, value in paper.model_options.items() if name != "form"})
    assert differences([Trained("a", old)], {"a": paper}) == []
    other = replace(paper, model_options={**paper.model_options, "form": "summed"})
    assert differences([Trained("a", other)], {"a": old}) == ["form summed instead of concatenated"]


def test_steps_of_growing_lengths_are_said_in_words_for_each_block() -> None:
    def steps(lengths: object, **blocks: object) -> list[str]:
        return said(model_options={**PAPER.model_options, "solver": dict(method="dopri5", steps=lengths), **blocks})

    assert "fixed steps 3, each 2 times as long as the one before, instead of adaptive ones" in steps([1, 2, 4])
    assert "fixed steps 3 (lengths in proportion 1 : 2 : 9) instead of adaptive ones" in steps([1, 2, 9])
    words = steps(2, block_solvers=[dict(steps=[1, 1.4, 2], method="rk4"), {}, {}])
    assert "in block 1 fixed steps 3, each about 1.4 times as long as the one before, instead of adaptive ones" in words
    assert "in block 1 solver rk4 instead of dopri5" in words
    assert sum("in block" in sentence for sentence in words) == 2
    same = {**PAPER.model_options, "block_solvers": [dict(method="dopri5"), {}, {}]}
    assert said(model_options=same) == [], "a block that repeats what holds for all of them differs in nothing"


def test_a_length_that_the_paper_does_not_give_is_not_held_against_it() -> None:
    study = find_study("dcn/table2a")
    words = reduced(study, "cpu", 8, planned(study, "cpu"))
    assert [sentence for sentence in words if sentence.startswith(("epochs", "drops"))] == [
        "epochs 250 instead of 1,000 (with 52 per class)",
        "drops of the rate at epochs 100, 175 instead of 400, 700 (with 52 per class)",
        "epochs 750 with 8, 500 with 16, 375 with 32 images per class, about which the paper says nothing (lengths of our own)",
    ]


def test_what_the_paper_is_silent_about_is_named() -> None:
    study = find_study("rknet/table1")
    words = reduced(study, "paper", 1, planned(study, "paper"))
    assert "momentum of the norms' statistics 0.01, about which the paper says nothing (as in the author's later code)" in words


def test_a_row_without_a_recipe_of_the_paper_is_not_passed_over_in_silence() -> None:
    """ImageNet is not here, so its rows cannot be resolved; any other error is an error."""
    study = find_study("rknet/table3")
    words = reduced(study, "paper", 1, [Trained(row.label, PAPER) for row in study.rows("paper")])
    assert any("not compared with the paper's recipe" in sentence and study.rows("paper")[0].label in sentence for sentence in words)


def test_an_experiment_of_our_own_says_what_it_is() -> None:
    words = reduced(find_study("anodev2/gradients"), "cpu", 0, [])
    assert "8 channels" in words[1]
    assert "60 updates" in words[1]


def test_the_scale_of_the_paper_says_what_it_does_otherwise() -> None:
    study = find_study("features/table1")
    wanted = wanted_runs(study, "paper", range(1), Places(Path("nowhere"), [], RunOptions(progress="off")))
    words = reduced(study, "paper", 1, [Trained(run.row.label, run.recipe) for run in wanted])
    assert "share held out 0.1 instead of none" in words
    assert "gradient checkpoint instead of adjoint (ode_only_net, res_ode_net)" in words


def test_the_text_of_the_paper_is_what_a_decoder_is_held_against() -> None:
    decoder = published_recipes(find_study("dcn/table2b"))["DCN-ODE decoder"]
    assert (decoder.epochs, decoder.drop_last) == (100, True)


def test_every_study_has_a_sentence_that_anybody_understands() -> None:
    assert PLAIN_WORDS.keys() == {name for name in STUDIES if name.partition("/")[0] in ("dcn", "anodev2", "features", "rknet", "neuro")}
