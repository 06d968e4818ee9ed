"""An option of the wrong kind is refused by name when the network is built, never as an error from deep inside."""

from typing import Any

import numpy as np
import pytest

from continua.errors import ConfigError
from continua.models import create_model, list_models, model_entry

ONE_OF_EACH = ("dcn_ode", "ode_only_net", "resnet4_anodev2_c1", "erknet")


@pytest.mark.parametrize("model", ONE_OF_EACH)
@pytest.mark.parametrize("option", ["num_classes", "in_channels"])
@pytest.mark.parametrize("value", ["ten", None, 2.5, [10], 0, -1, True])
def test_a_network_has_a_whole_number_of_classes_and_channels(model: str, option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{option} is .*; expected (a whole number|at least 1)"):
        create_model(model, **{option: value})


@pytest.mark.parametrize(
    ("model", "option", "value", "expected"),
    [
        ("dcn_ode", "channels", 8, "a list, of a whole number each"),
        ("resnet4_anodev2_c1", "channels", None, "a list, of a whole number each"),
        ("erknet", "growths", 8, "a list, of a whole number each or nothing"),
        ("dcn_ode", "solver", "rk4", "SolverConfig or options by name or nothing"),
        ("dcn_ode", "filter_options", [8], "options by name or nothing"),
        ("dcn_ode", "activation", ["relu"], "a name"),
        ("residual_net", "dropout", "half", "a number"),
        ("erknet", "attention", 1, "true or false"),
        ("irknet", "filters", 3, "'pixel' or 'njet'"),
    ],
)
def test_what_was_given_and_what_is_expected_are_said(model: str, option: str, value: Any, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        create_model(model, **{option: value})
    assert str(caught.value) == f"{model}: {option} is {value!r}; expected {expected}"


@pytest.mark.parametrize("inside", ["filter_options", "conv_options"])
def test_an_option_that_no_filter_has_is_refused(inside: str) -> None:
    with pytest.raises(ConfigError, match="'colour'"):
        create_model("dcn_ode", **{inside: {"colour": 1}})


def test_numbers_of_numpy_and_numbers_without_a_point_are_numbers() -> None:
    net = create_model("dcn_ode", num_classes=np.int64(3), channels=[4, 8], t1=2)
    assert net.config["options"]["num_classes"] == 3


@pytest.mark.parametrize("model", list_models())
def test_what_every_model_is_made_of_passes(model: str) -> None:
    """The defaults and the tiny options of the whole zoo agree with what its signatures say."""
    assert create_model(model, **model_entry(model).tiny).name == model
