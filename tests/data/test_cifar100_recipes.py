"""CIFAR-100 by the recipes that the papers give for CIFAR-10: another data set, a head of 100 classes, nothing else."""

from pathlib import Path

import pytest
from official import random_bytes, write_cifar100

from continua.runs import Recipe, load_recipe, plain_recipe, resolve, task_of

RECIPES = ("dcn", "small_data", "anodev2_alexnet", "anodev2_resnet", "features", "rknet_cifar")


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Files of the official layout, hardly any images."""
    root = tmp_path_factory.mktemp("data")
    fine, coarse = [n % 100 for n in range(300)], [n % 20 for n in range(300)]
    write_cifar100(root, random_bytes(300, 3072), fine, coarse, binary=False)
    return root


def differing(one: Recipe, other: Recipe) -> set[str]:
    first, second = plain_recipe(one), plain_recipe(other)
    return {name for name in first if first[name] != second[name]}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_differs_by_its_data_and_the_number_of_classes(name, root):
    ten = load_recipe(name)
    hundred = resolve(load_recipe(name, {"data": "cifar100", "drop_last": True}), "cpu", root)
    assert ten.data == "cifar10"
    assert hundred.model_options["num_classes"] == 100
    assert differing(ten, load_recipe(name, {"data": "cifar100"})) == {"data"}
    net = task_of(hundred).build()
    linear = [module for module in net.modules() if getattr(module, "out_features", None) == 100]
    assert len(linear) == 1
