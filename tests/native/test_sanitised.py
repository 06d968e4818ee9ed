"""The fuzz of the native kernels under an address and undefined-behaviour sanitiser, which sees every read and write out of bounds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from continua.native.build import NoCompiler, build_library, find_compiler

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def sanitised(tmp_path_factory) -> tuple[Path, str]:
    """A library built with sanitisers, and what must be loaded before it."""
    try:
        compiler = find_compiler().split()[0]
        library = build_library(
            tmp_path_factory.mktemp("native") / "libcontinua.so",
            ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1", "-g"),
        )
    except NoCompiler as error:
        pytest.skip(str(error))
    runtimes = [
        subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    if not all(os.path.isabs(path) for path in runtimes):
        pytest.skip(f"{compiler} has no sanitiser libraries")
    return library, ":".join(runtimes)


def run_fuzz(library: Path, preload: str, seed: int, calls: int = 150) -> subprocess.CompletedProcess:
    environment = os.environ | {
        "CONTINUA_NATIVE": str(library),
        "LD_PRELOAD": preload,
        "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0",
        "PYTHONMALLOC": "malloc",
    }
    script = Path(__file__).parents[1] / "support" / "native_cases.py"
    return subprocess.run([sys.executable, str(script), str(calls), str(seed)], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_read_or_written_out_of_bounds(sanitised, seed):
    done = run_fuzz(*sanitised, seed)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "150 calls" in done.stdout


def test_the_sanitiser_would_say_so(sanitised, tmp_path):
    library, preload = sanitised
    program = tmp_path / "out_of_bounds.py"
    program.write_text(
        "import ctypes, torch\n"
        "from continua.native import find_library\n"
        "from continua.native.library import MapStrides, NormArguments\n"
        "x = torch.zeros(1, 16, 3, 3)\n"
        "y = torch.empty(1, 16, 3, 2)\n"  # a column too few
        "op = NormArguments(32, 1, 16, 3, 3, 4, 0, 1, 1e-5)\n"
        "op.x, op.x_strides, op.y, op.y_strides = x.data_ptr(), MapStrides.of(x), y.data_ptr(), MapStrides(144, 9, 3, 1)\n"
        "find_library().norm_act(ctypes.byref(op))\n"
    )
    environment = os.environ | {
        "CONTINUA_NATIVE": str(library),
        "LD_PRELOAD": preload,
        "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0",
    }
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=environment)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
