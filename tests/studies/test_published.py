"""What differs from a paper is computed from two recipes: every planted difference is named, and none that is not there."""

from dataclasses import replace
from pathlib import Path

from continua.ode import SolverConfig
from continua.runs import load_recipe, resolve
from continua.studies import STUDIES, find_study
from continua.studies.plain import PLAIN_WORDS
from continua.studies.published import SOLVER, Trained, differences, published_recipes, reduced
from continua.studies.runs import Places, wanted_runs
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


def test_the_scale_of_the_paper_says_what_it_does_otherwise() -> None:
    study = find_study("features/table1")
    wanted = wanted_runs(study, "paper", range(1), Places(Path("nowhere"), [], RunOptions(progress="off")))
    words = reduced(study, "paper", 1, [Trained(run.row.label, run.recipe) for run in wanted])
    assert "share held out 0.1 instead of none" in words
    assert "gradient checkpoint instead of adjoint (ode_only_net, res_ode_net)" in words


def test_the_text_of_the_paper_is_what_a_decoder_is_held_against() -> None:
    assert published_recipes(find_study("dcn/table2b"))["DCN-ODE decoder"].epochs == 100


def test_every_study_has_a_sentence_that_anybody_understands() -> None:
    assert PLAIN_WORDS.keys() == {name for name in STUDIES if name.partition("/")[0] in ("dcn", "anodev2", "features", "rknet", "neuro")}
