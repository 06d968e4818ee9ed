"""What every test stands on: one thread, a fixed seed, checked shapes, number types that work, the `device` and `dtype` fixtures."""

import os
import random

import numpy as np
import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

# Rooms whose shape annotations are checked at every call. This must run before the rooms are first imported.
SHAPE_CHECKED = ["continua.data", "continua.filters"]
install_import_hook(SHAPE_CHECKED, "shapes.check")

from continua.machine.facts import inductor  # noqa: E402 - after the shape checks are in place
from continua.machine.number_types import LIMIT, NUMBER_TYPES, Verdict, onednn_limit, verdict  # noqa: E402

# The same probe as everywhere. Where bfloat16 works under a limit only, all tests run under it: now, before PyTorch computes.
BFLOAT16 = verdict("bfloat16")
if BFLOAT16.state == "limited" and not onednn_limit():
    os.environ[LIMIT] = BFLOAT16.limit

# A failing example of a property is printed as a line that replays it; in CI the examples are the same every time.
settings.register_profile("local", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# `make test` runs two workers on two cores: more threads in each would only get in one another's way.
torch.set_num_threads(1)

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
DTYPES = ["float32", "float64"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="all", choices=["all", "cpu", "cuda"], help="devices for tests that take `device`")
    parser.addoption(
        "--dtype", default="all", choices=["all", *DTYPES, "bfloat16", "float16"], help="number types for tests that take `dtype`"
    )


def pytest_configure(config: pytest.Config) -> None:
    # In pyproject.toml this line would import continua before the shape checks above are in place.
    config.addinivalue_line("filterwarnings", "error::continua.ContinuaWarning")


def pytest_report_header() -> str:
    return f"bfloat16: {BFLOAT16}" + (f"; all tests run with {LIMIT}={onednn_limit()}" if onednn_limit() else "")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what cannot be computed here, with the reason."""
    wanted = [name for mark in item.iter_markers("needs") for name in mark.args]
    dtype = item.callspec.params.get("dtype") if hasattr(item, "callspec") else None  # pyright: ignore[reportAttributeAccessIssue]
    wanted += [name for name in NUMBER_TYPES if dtype is getattr(torch, name)]
    for name in wanted:
        found = inductor() if name == "inductor" else verdict(name)
        if not (found.state in ("works", "emulated") if isinstance(found, Verdict) else found.works):
            pytest.skip(f"{name} {found}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--device")
        names = DEVICES if chosen == "all" else [chosen]
        metafunc.parametrize("device", [torch.device(name) for name in names], ids=names)
    if "dtype" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--dtype")
        names = DTYPES if chosen == "all" else [chosen]
        metafunc.parametrize("dtype", [getattr(torch, name) for name in names], ids=names)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """The same random numbers whichever tests ran before, in whichever worker."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - some libraries still draw from the global state
    torch.manual_seed(0)
