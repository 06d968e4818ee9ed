"""Fuzzing `solve`: whatever its arguments hold, the answer is a solution or a `ContinuaError`, soon and in bounded memory."""

from typing import Any

import pytest
import torch
from fuzzing import VALUES, fuzzed, only_our_errors
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from continua import solve
from continua.ode import METHODS, Event, broadcast_time

pytestmark = pytest.mark.filterwarnings("ignore")

NUMBERS = st.one_of(
    st.floats(),
    st.integers(-3, 3),
    st.sampled_from([1e-300, 1e-45, 1e-8, 1e300, 3.4e38, 10**30, 2**63, 10**400]),
    st.lists(st.floats(width=32), max_size=3).map(torch.tensor),
    st.lists(st.floats(), max_size=3),
)
STATES = st.one_of(
    st.sampled_from([(0,), (1,), (2,), (2, 3), (0, 3), (2, 0), (1, 2, 2, 2), ()]).flatmap(
        lambda shape: st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64, torch.bool]).flatmap(
            lambda dtype: st.sampled_from([0.0, 1.0, -1.0, 1e30, float("inf"), float("nan")]).map(
                lambda value: torch.full(shape, 1 if dtype in (torch.int64, torch.bool) else value, dtype=dtype)
            )
        )
    ),
    VALUES,
)
# Each field is a plain function of t and y, from harmless to broken.
FIELDS: dict[str, Any] = {
    "decay": lambda t, y: -y,
    "explosion": lambda t, y: y * y,
    "constant": lambda t, y: torch.zeros_like(y),
    "nan": lambda t, y: y * float("nan"),
    "jump": lambda t, y: torch.where(broadcast_time(t, y) > 0.5, -y, 1e8 * y),
    "other shape": lambda t, y: y.sum(),
    "nothing": lambda t, y: None,
    "number": lambda t, y: 1.0,
    "tuple": lambda t, y: (y,),
    "other dtype": lambda t, y: y.double() if y.dtype == torch.float32 else y.float(),
}
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "method": st.one_of(st.sampled_from(sorted(METHODS)), VALUES),
    "rtol": st.one_of(NUMBERS, VALUES),
    "atol": st.one_of(NUMBERS, VALUES),
    "steps": st.one_of(st.integers(-1, 5), VALUES),
    "control": st.one_of(
        st.sampled_from(["batch", "sample"]),
        st.fixed_dictionaries({}, optional=dict.fromkeys(("min_step", "max_step", "first_step", "max_steps", "safety"), NUMBERS)),
        VALUES,
    ),
    "gradient": st.one_of(st.sampled_from(["checkpoint", "direct", "reversible", "adjoint"]), VALUES),
    "save_at": st.one_of(NUMBERS, st.lists(st.floats(0, 1), max_size=4).map(sorted), VALUES),
    "dense": st.one_of(st.booleans(), VALUES),
    "params": VALUES,
    "event": st.one_of(st.just(Event(lambda t, y: y.flatten(1).sum(1) if y.ndim > 1 else y)), VALUES),
    "on_failure": st.one_of(st.sampled_from(["raise", "status"]), VALUES),
    "record_steps": st.one_of(st.booleans(), VALUES),
    "unheard_of": VALUES,
}


@fuzzed("arguments of solve")
@given(
    field=st.sampled_from(sorted(FIELDS)),
    y0=STATES,
    t0=st.one_of(st.just(0.0), NUMBERS, VALUES),
    t1=st.one_of(st.just(1.0), NUMBERS, VALUES),
    options=st.fixed_dictionaries({}, optional=OPTIONS),
    learning=st.booleans(),
)
def test_solve_with_any_arguments(field: str, y0: Any, t0: Any, t1: Any, options: dict[str, Any], learning: bool) -> None:
    if isinstance(y0, Tensor) and y0.is_floating_point() and learning:
        y0 = y0.clone().requires_grad_()
    options = {"control": {"max_steps": 200}} | options  # what takes long is refused by the number of steps, not by patience
    with only_our_errors():
        solution = solve(FIELDS[field], y0, t0, t1, **options)
        if isinstance(solution.y1, Tensor) and solution.y1.requires_grad:
            solution.y1.sum().backward()
