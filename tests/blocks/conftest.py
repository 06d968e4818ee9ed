"""The states of tests are small, and the default gradient would keep their graph: here it replays, as for states that are large."""

import pytest


@pytest.fixture(autouse=True)
def replays_also_small_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("continua.ode.gradients.checkpoint.SMALL_GRAPH", 0)
