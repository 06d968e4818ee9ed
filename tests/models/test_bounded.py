"""Options that ask for more than a machine has are refused before it is allocated, with the limit and how to raise it."""

from typing import Any

import pytest
import torch

from continua import create_model
from continua.errors import ConfigError
from continua.models import complete_options


@pytest.mark.parametrize(
    ("name", "options", "variable"),
    [
        ("dcn_ode", dict(order=10**9), "CONTINUA_MAX_ORDER"),
        ("dcn_ode", dict(solver=dict(method="rk4", steps=10**9)), "CONTINUA_MAX_STEPS"),
        ("dcn_ode", dict(channels=[10**12]), "CONTINUA_MAX_PARAMETERS"),
        ("dcn_ode", dict(num_classes=10**12), "CONTINUA_MAX_PARAMETERS"),
        ("resnet4", dict(steps=10**9), "no option|CONTINUA_MAX_STEPS"),
        ("resnet4_anodev2_c2", dict(weight_steps=10**9), "CONTINUA_MAX_STEPS"),
        ("erknet", dict(stages="1000000000x1"), "CONTINUA_MAX_STAGES"),
        ("erknet", dict(growth=10**9), "CONTINUA_MAX_PARAMETERS"),
        ("dcn_ode", dict(channels=[10**30]), "at most"),
    ],
)
def test_what_would_not_end_or_not_fit_is_refused_while_it_is_built(name: str, options: dict[str, Any], variable: str) -> None:
    with pytest.raises(ConfigError, match=variable):
        create_model(name, **options)


def test_a_limit_can_be_raised_and_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    small = dict(channels=[4, 8], norm_groups=4)
    monkeypatch.setenv("CONTINUA_MAX_PARAMETERS", "100")
    with pytest.raises(ConfigError, match=r"dcn_ode .*the limit is 100 numbers"):
        create_model("dcn_ode", **small)
    monkeypatch.setenv("CONTINUA_MAX_PARAMETERS", "1e6")
    net = create_model("dcn_ode", **small)
    assert net.name == "dcn_ode"
    monkeypatch.setenv("CONTINUA_MAX_ORDER", "40")
    assert complete_options("dcn_ode", dict(order=33))["order"] == 33


def test_counting_changes_no_weights() -> None:
    from continua.models import model_config, model_entry

    torch.manual_seed(3)
    counted = create_model("dcn_ode").state_dict()
    torch.manual_seed(3)
    plain = model_entry("dcn_ode").build(model_config("dcn_ode")).state_dict()
    assert all(torch.equal(counted[name], value) for name, value in plain.items())
