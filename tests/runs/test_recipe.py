"""Recipes: what is packaged, what is refused and how, what a resolved recipe is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training import tiny_recipe

from continua.data import Augmentation
from continua.errors import ConfigError
from continua.models import list_models
from continua.runs.loading import parse_recipe, recipe_fields, stretched, write_yaml
from continua.train import Optimiser, Recipe, identity, load_recipe, recipe_names, resolve

DCN_MODELS = [name for name in list_models() if name.startswith(("dcn_", "resnet_blocks", "resnet_srf", "odenet"))]


def refusal(changes: dict[str, Any], base: str = "dcn") -> str:
    with pytest.raises(ConfigError) as refused:
        resolve(load_recipe(base, changes))
    return str(refused.value)


@pytest.mark.parametrize("name", recipe_names())
def test_a_packaged_recipe_reads_back_from_its_own_text(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name, {"encoder": "some/run"} if name == "reconstruction" else {})
    (tmp_path / "copy.yaml").write_text(write_yaml(recipe), "utf-8")
    assert load_recipe(tmp_path / "copy.yaml") == recipe


def test_dcn_is_the_published_set_up() -> None:
    recipe = load_recipe("dcn")
    assert (recipe.epochs, recipe.batch_size, recipe.data, recipe.selection) == (100, 128, "cifar10", "last")
    assert recipe.optimiser == Optimiser(kind="sgd", lr=0.1, momentum=0.9, weight_decay=0.0)
    assert (recipe.schedule.kind, recipe.schedule.milestones, recipe.schedule.factor) == ("multistep", (40.0, 70.0), 0.1)
    assert recipe.augmentation == Augmentation(crop_padding=4, flip=True)


@pytest.mark.parametrize("model", DCN_MODELS)
def test_every_dcn_model_has_a_resolved_recipe(model: str) -> None:
    recipe = resolve(load_recipe("dcn", {"model": model}))
    assert (recipe.model_options["num_classes"], recipe.model_options["in_channels"]) == (10, 3)
    assert resolve(recipe) == recipe, "resolving twice changes nothing"


@pytest.mark.parametrize(("per_class", "factor"), [(2, 40), (52, 10), (103, 5), (512, 2), (1024, 1)])
def test_small_data_trains_longer_on_fewer_images(per_class: int, factor: int) -> None:
    recipe = resolve(load_recipe("small_data", {"per_class": per_class}))
    assert recipe.epochs == 100 * factor
    assert recipe.schedule.milestones == (40 * factor, 70 * factor)
    assert recipe.length_by_per_class == {}


def test_a_size_without_an_entry_in_the_table_needs_a_number_of_epochs() -> None:
    assert "512" in refusal({"per_class": 500}, "small_data")
    recipe = resolve(load_recipe("small_data", {"per_class": 500, "epochs": 50}))
    assert (recipe.epochs, recipe.schedule.milestones) == (50, (20.0, 35.0))


def test_another_number_of_epochs_stretches_the_schedule_unless_it_is_given_too() -> None:
    assert load_recipe("dcn", {"epochs": 20}).schedule.milestones == (8.0, 14.0)
    assert load_recipe("dcn", {"epochs": 20, "schedule": {"milestones": [5, 10]}}).schedule.milestones == (5.0, 10.0)
    recipe = load_recipe("dcn")
    assert stretched(stretched(recipe, 4), 0.25) == recipe


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"optimisr": {"lr": 1}}, "unknown key 'optimisr'; did you mean optimiser?"),
        ({"optimiser": {"momentun": 0.5}}, "unknown key 'optimiser.momentun'; did you mean optimiser.momentum?"),
        ({"lr": 0.1}, "did you mean optimiser.lr?"),
        ({"optimiser": {"class_path": "os.system"}}, "unknown key 'optimiser.class_path'"),
        ({"class_path": "os.system", "init_args": {}}, "unknown key 'class_path'"),
        ({"augmentation": {"resized_crop": {"areas": 1}}}, "did you mean augmentation.resized_crop.area?"),
        ({"optimiser": 0.1}, "optimiser is 0.1; expected fields of its own: kind, lr"),
        ({"epochs": "many"}, "epochs is 'many'; expected a whole number"),
        ({"epochs": 2.5}, "epochs is '2.5'; expected a whole number"),
        ({"optimiser": {"kind": "sdg"}}, "optimiser.kind is 'sdg'; expected sgd or adamw"),
        ({"model": "dcn_oed"}, "did you mean dcn_ode"),
        ({"model_options": {"chanels": [8]}}, "did you mean channels?"),
        ({"model_options": {"solver": {"rtoll": 1}}}, "did you mean rtol?"),
        ({"data": "cifra10"}, "did you mean cifar10?"),
    ],
)
def test_a_mistake_names_the_key_and_the_nearest_right_one(changes: dict[str, Any], said: str) -> None:
    assert said in refusal(changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"selection": "holdout"}, "nothing is held out"),
        ({"schedule": {"kind": "plateau", "milestones": []}}, "set holdout"),
        ({"schedule": {"kind": "cosine"}}, "milestones belong to 'multistep'"),
        ({"schedule": {"kind": "step", "milestones": []}}, "'step', which needs it"),
        ({"schedule": {"milestones": [70, 40]}}, "rising"),
        ({"schedule": {"warmup": 100}}, "must end before"),
        ({"optimiser": {"kind": "adamw", "nesterov": True}}, "nesterov needs"),
        ({"optimiser": {"lr": 0}}, "optimiser.lr is 0.0"),
        ({"task": "reconstruct"}, "`encoder` (a run) belongs to"),
        ({"encoder": "runs/x"}, "`encoder` (a run) belongs to"),
        ({"task": "reconstruct", "encoder": "runs/x", "label_smoothing": 0.1}, "label_smoothing has no meaning"),
        ({"ema": 1.0}, "ema is 1.0"),
        ({"holdout": 1.5}, "holdout is 1.5"),
        ({"failure": {"tolerance_factor": 1.0}}, "failure.tolerance_factor"),
        ({"augmentation": {"crop_padding": 4, "resized_crop": {}}}, "choose one way to crop"),
    ],
)
def test_what_cannot_work_together_is_refused(changes: dict[str, Any], said: str) -> None:
    assert said in refusal(changes)


@pytest.mark.parametrize(
    ("text", "said"), [("- 1\n- 2\n", "holds list"), ("a: [", "is not YAML"), ("!!python/object:os.system {}", "is not YAML")]
)
def test_a_file_that_is_no_recipe_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_recipe(tmp_path / "bad.yaml")


def test_powers_of_ten_in_yaml_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("optimiser: {lr: 1e-3}\nmodel_options: {solver: {rtol: 1e-4, atol: .5e-2}}\n")
    recipe = load_recipe(tmp_path / "r.yaml")
    assert recipe.optimiser.lr == 1e-3
    assert recipe.solver == {"rtol": 1e-4, "atol": 5e-3}


def test_the_identity_follows_whatever_changes_the_result_and_nothing_else() -> None:
    recipe = resolve(tiny_recipe())
    assert identity(recipe) == identity(resolve(tiny_recipe()))
    written_out = replace(recipe, model_options=dict(reversed(recipe.model_options.items())))
    assert identity(written_out) == identity(recipe), "the order of options does not count"
    others = [{"seed": 1}, {"per_class": 7}, {"epochs": 4}, {"optimiser": {"lr": 0.2}}, {"model_options": {"solver": {"steps": 2}}}]
    names = [identity(resolve(tiny_recipe(**changes))) for changes in others]
    assert len({identity(recipe), *names}) == 1 + len(others)


def test_an_explicit_default_is_the_same_run() -> None:
    assert identity(resolve(tiny_recipe(model_options={"activation": "celu"}))) == identity(resolve(tiny_recipe()))


def test_every_field_can_be_named() -> None:
    names = [name for name, _ in recipe_fields()]
    assert {"epochs", "optimiser.lr", "schedule.milestones", "failure.policy", "augmentation.flip", "regularise.kinetic"} <= set(names)


def test_precision_auto_is_decided_when_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("continua.runs.resolving.why_unusable", lambda name: "")
    for fast, expected in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr("continua.runs.resolving.fast_on_cpu", lambda dtype, fast=fast: fast)
        assert resolve(tiny_recipe(precision="auto", model="odenet")).precision == expected
        # N-jets are computed in float32 by the native kernels, which bfloat16 around them only slows down
        for reason, of_jets in ((None, "float32"), ("there are no kernels", expected)):
            monkeypatch.setattr("continua.runs.resolving.why_no_library", lambda reason=reason: reason)
            assert resolve(tiny_recipe(precision="auto")).precision == of_jets


def test_plain_data_makes_a_recipe() -> None:
    assert parse_recipe({}) == Recipe()


@pytest.mark.parametrize(
    "text",
    [
        "data: null",
        "model_options: {solver: {method: {a: 1}}}",
        "model_options: {solver: {control: [1]}}",
        "model_options: {channels: [1000000000000000000000000000000]}",
        "model_options: {channels: {a: 1}}",
        "seed: 99999999999999999999999999",
        "epochs: 99999999999999999999999999",
        "optimiser: {lr: 1" + "0" * 400 + "}",
        "length_by_per_class: {5: .inf}\nper_class: 5",
        "format: [1]",
        "1: 2",
        "schedule: 3",
        "augmentation: null",
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused_in_words(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(text + "\n")
    with pytest.raises(ConfigError):
        resolve(load_recipe(tmp_path / "r.yaml"))
