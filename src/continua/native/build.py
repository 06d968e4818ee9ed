"""Compile the native kernels into one shared library: `python -m continua.native.build`. Standard library only: also run when installing.

Each instruction set is one compilation of the same sources, and the library chooses among them when it is loaded.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).with_name("csrc")
TARGET = Path(__file__).with_name("libcontinua.so")
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")
X86 = {"avx512": ("-march=x86-64-v4", "-mprefer-vector-width=512"), "avx2": ("-march=x86-64-v3",), "portable": ()}


INSTEAD = "the PyTorch routes serve instead, with the same numbers to rounding, several times slower"


def fingerprint() -> str:
    """Of the sources and of how they are compiled: a library says which it was made of."""
    parts = [Path(__file__), *sorted(SOURCES.iterdir())]
    return hashlib.sha256(b"".join(path.read_bytes() for path in parts)).hexdigest()[:16]


class NoCompiler(Exception):
    """There is no C++ compiler, or it could not build the kernels."""


def find_compiler() -> str:
    """$CXX, g++ or clang++."""
    for name in (os.environ.get("CXX", ""), "g++", "clang++"):
        if name and shutil.which(name.split()[0]):
            return name
    raise NoCompiler("no C++ compiler (g++ or clang++) is on the path")


def build_library(target: Path = TARGET, extra: tuple[str, ...] = ()) -> Path:
    """Compile and link; the library appears whole or not at all. `extra` flags go to every compilation, for sanitisers."""
    if os.name != "posix":
        raise NoCompiler(f"the native kernels are not built on {platform.system()}")
    compiler, mark = find_compiler().split(), fingerprint()
    sets = X86 if platform.machine() in ("x86_64", "AMD64") else {"portable": ()}
    with tempfile.TemporaryDirectory() as folder:

        def compile_one(name: str, flags: tuple[str, ...]) -> str:
            unit = "dispatch.cpp" if name == "dispatch" else "kernels.cpp"
            made = str(Path(folder) / f"{name}.o")
            _run(
                [
                    *compiler,
                    *FLAGS,
                    *flags,
                    *extra,
                    f"-DCONTINUA_ISA={name}",
                    f'-DCONTINUA_SOURCES="{mark}"',
                    "-c",
                    str(SOURCES / unit),
                    "-o",
                    made,
                ]
            )
            return made

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [pool.submit(compile_one, name, flags) for name, flags in {**sets, "dispatch": ()}.items()]
            objects = [job.result() for job in jobs]
        made = Path(folder) / target.name
        _run([*compiler, "-shared", *extra, *objects, "-o", str(made), "-pthread"])
        part = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copyfile(made, part)
        part.replace(target)
    return target


def is_fresh(target: Path = TARGET) -> bool:
    """Whether the library is younger than all it is made of."""
    made_of = [Path(__file__), *SOURCES.iterdir()]
    return target.is_file() and target.stat().st_mtime > max(path.stat().st_mtime for path in made_of)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise NoCompiler(f"{command[0]} could not build the native kernels: {said}")


if __name__ == "__main__":
    print("building the native kernels, about a minute ...", flush=True)
    try:
        print(f"built {build_library()}")
    except NoCompiler as error:
        sys.exit(f"continua: {error}; {INSTEAD}")
