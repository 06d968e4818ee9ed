"""What every test stands on: one thread, a fixed seed, checked shapes, and the `device` and `dtype` fixtures."""

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
