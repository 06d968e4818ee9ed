"""The rules of the house: who imports whom, which names are public, what `import continua` costs, one version, honest links."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from jaxtyping import TypeCheckError

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "continua"
INVENTORY = Path(__file__).with_name("api.txt")
INVENTORY_HEAD = "# Every public name. After a change on purpose, write this file again: .venv/bin/python tests/test_house.py\n"

# Who may import whom, and from the room's `__init__` only: that is its whole surface. `errors`, `files`, `limits`,
# `options`, `reading`, `showing`, `tally` and `float64` are open to all; `cli` and the package's own `__init__` may import every room.
BELOW = {
    "machine": set(),
    "native": set(),
    "ode": {"native"},
    "filters": {"ode", "machine", "native"},  # machine: which number types can be computed in
    "blocks": {"filters", "ode", "native", "report"},  # report: how the dispersion relation of a neural field is drawn
    "models": {"blocks", "filters", "ode"},
    "data": {"machine"},
    "report": set(),
    # runs: blocks and ode, the blocks that have a solver and what their solves cost; filters and machine, which number types are fast here
    "runs": {"models", "blocks", "filters", "ode", "data", "machine", "native"},
    # train: blocks, to change tolerances and share statistics; filters, to group scales and evolutions
    "train": {"runs", "report", "blocks", "filters", "models", "data", "machine"},
    # analysis: looks inside networks, down to filters and solvers, and says how its numbers are shown
    "analysis": {"runs", "report", "models", "blocks", "filters", "ode", "data"},
    # neuro: looks inside networks as analysis does, and integrates fields of its own
    "neuro": {"runs", "report", "models", "blocks", "filters", "ode", "data"},
    # studies: models, counts; filters, Figure 1 of the DCN paper and what N-jets are tuned to
    "studies": {"train", "analysis", "neuro", "runs", "report", "models", "filters"},
    # explore: blocks, filters and ode, to look into blocks, turn filters and offer solvers; neuro: stimuli, driven networks, metamers
    "explore": {"train", "analysis", "neuro", "runs", "report", "models", "blocks", "data", "filters", "ode"},
    "demo": {"train", "analysis", "runs", "report", "models", "blocks", "data"},
    # compat: other libraries' interfaces, each a package of its own; blocks and data, to ask ODE blocks for h(t) and to read stimuli
    "compat": {"ode", "models", "train", "runs", "blocks", "data"},
    "recipes": set(),
    "errors": set(),
    "files": set(),
    "limits": set(),
    "options": set(),
    "reading": set(),
    "showing": set(),
    "tally": set(),
    "float64": set(),
    "__main__": {"cli"},
}
OPEN_TO_ALL = {"errors", "files", "limits", "options", "reading", "showing", "tally", "float64"}
MAY_IMPORT_ALL = {"__init__", "cli"}


# --- who imports whom -------------------------------------------------------------------------------------------------


def room_of(module: str) -> str:
    """`continua.ode.solve` -> `ode`; the package itself -> `__init__`."""
    return [*module.split("."), "__init__"][1]


def source_of(node: ast.ImportFrom, package: str) -> str:
    """The full name of the module that `from ... import` in a file of `package` imports from."""
    parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    return ".".join([*parents, *([node.module] if node.module else [])])


def imported_modules(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Line and full name of each module a file of `package` imports: at the top, inside functions, by string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = source_of(node, package)
            # `from continua import x` reaches either the room x or a name of the package itself.
            rooms = BELOW.keys() | MAY_IMPORT_ALL if source == "continua" else set()
            yield from ((node.lineno, f"{source}.{alias.name}" if alias.name in rooms else source) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
                name = node.args[0].value
                yield node.lineno, f"continua{name}" if name.startswith(".") else name


def wrong_imports(code: str, file: str) -> list[str]:
    """What `file` (relative to src/continua) imports against the rules, one line of text for each."""
    parts = Path(file).with_suffix("").parts
    room, package = parts[0], ".".join(["continua", *parts[:-1]])
    if room not in BELOW.keys() | MAY_IMPORT_ALL:
        return [f"{file}: the house has no room {room!r}"]
    allowed = BELOW.get(room, set()) | OPEN_TO_ALL | {room}
    wrong = []
    for line, module in imported_modules(ast.parse(code), package):
        if module.split(".")[0] != "continua" or room_of(module) == room:
            continue
        if room not in MAY_IMPORT_ALL and room_of(module) not in allowed:
            wrong.append(f"{file}:{line}: {room} may not import {module}")
        elif module.count(".") > 1:
            wrong.append(f"{file}:{line}: {module} is inside another room; import from continua.{room_of(module)}")
    return wrong


def test_rooms_import_only_downwards() -> None:
    wrong = [line for path in sources() for line in wrong_imports(path.read_text("utf-8"), path.relative_to(SOURCE).as_posix())]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("ode/solve.py", "import continua.filters"),
        ("ode/solve.py", "import torch, continua.filters.njet as njet"),
        ("ode/solve.py", "from continua.filters import NJet"),
        ("ode/solve.py", "from continua import filters"),
        ("ode/solve.py", "from continua import ContinuaError"),
        ("ode/solve.py", "import continua"),
        ("ode/solve.py", "from continua.compat import torchdiffeq"),
        ("compat/torchdiffeq/event.py", "from continua.ode.dense import Saver"),
        ("compat/torchdiffeq/event.py", "from continua.filters import NJet"),
        ("ode/solve.py", "from ..filters import NJet"),
        ("ode/solve.py", "from .. import filters"),
        ("ode/deep/er.py", "from ...filters.njet import NJet"),
        ("ode/__init__.py", "from ..cli import main"),
        ("filters/njet.py", "def late():\n    if True:\n        from continua.blocks import OdeBlock"),
        ("filters/njet.py", "import importlib\nimportlib.import_module('continua.models')"),
        ("data/cifar.py", "from continua.report import table"),
        ("report/table.py", "from continua.data import DataSet"),
        ("train/loop.py", "from continua.studies import run"),
        ("runs/view.py", "from continua.train import train"),
        ("runs/view.py", "from continua.report import Page"),
        ("analysis/steps.py", "from continua.train import train"),
        ("train/loop.py", "from continua.analysis import subject_of"),
        ("errors.py", "from continua.ode import solve"),
        ("filters/njet.py", "from continua.ode.tableau import Tableau"),
        ("filters/njet.py", "from ..ode.tableau import Tableau"),
        ("cli/train.py", "from continua.train.loop import Training"),
        ("__init__.py", "from continua.models.registry import create_model"),
        ("helpers.py", "import torch"),
    ],
)
def test_the_import_check_sees_a_wrong_import(file: str, code: str) -> None:
    assert len(wrong_imports(code, file)) == 1


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("ode/solve.py", "from continua.errors import SolverError\nfrom continua.ode.tableau import DOPRI5"),
        ("ode/solve.py", "from .tableau import DOPRI5\nfrom . import control\nfrom ..errors import SolverError"),
        ("ode/__init__.py", "from .solve import solve"),
        ("filters/njet.py", "from continua import ode, errors\nimport torch"),
        ("data/cifar.py", "import continuation\nfrom numpy import ode"),
        ("cli/__init__.py", "from continua.studies import run"),
        ("cli/commands.py", "from continua.cli.train import train_command"),
        ("__init__.py", "from continua.models import create_model"),
    ],
)
def test_the_import_check_lets_a_right_import_pass(file: str, code: str) -> None:
    assert wrong_imports(code, file) == []


def test_import_continua_leaves_the_heavy_modules_alone() -> None:
    heavy = ["matplotlib", "plotly", "sklearn", "lightning", "streamlit", "submitit", "PIL"]
    code = f"import sys, continua; print(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_wrong_shapes_are_caught_while_tests_run() -> None:
    from continua.data.augment import greyscale

    assert greyscale(torch.zeros(2, 3, 4, 4)).shape == (2, 1, 4, 4)
    with pytest.raises(TypeCheckError):
        greyscale(torch.zeros(3, 4, 4))


# --- no cycles --------------------------------------------------------------------------------------------------------


def top_level(tree: ast.AST) -> Iterator[ast.AST]:
    """What is run when a module is imported: not the bodies of functions, not what only a type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            continue
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from top_level(node)


def import_graph(code: dict[str, str]) -> dict[str, set[str]]:
    """From each module to those it imports when it is imported itself. `code`: the source of each module, packages by their own name.

    That importing a module imports its packages first is left out: a room's `__init__` imports all of it.
    """
    graph: dict[str, set[str]] = {}
    parents = {name.rpartition(".")[0] for name in code}
    for name, text in code.items():
        package = name if name in parents else name.rpartition(".")[0]
        targets: set[str] = set()
        for node in top_level(ast.parse(text)):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                source = source_of(node, package)
                targets |= {full if (full := f"{source}.{alias.name}") in code else source for alias in node.names}
        graph[name] = (targets & code.keys()) - {name}
    return graph


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """A way round, if there is one."""
    done: set[str] = set()

    def search(node: str, way: list[str]) -> list[str]:
        if node in way:
            return [*way[way.index(node) :], node]
        if node in done:
            return []
        for target in sorted(graph.get(node, ())):
            if ring := search(target, [*way, node]):
                return ring
        done.add(node)
        return []

    return next((ring for node in sorted(graph) if (ring := search(node, []))), [])


def modules() -> dict[str, str]:
    """The source of every module by its full name; a package by its own."""
    files = {".".join(["continua", *path.relative_to(SOURCE).with_suffix("").parts]): path for path in sources()}
    return {name.removesuffix(".__init__"): path.read_text("utf-8") for name, path in files.items()}


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert cycle_in(import_graph(modules())) == []


def test_no_room_imports_itself_by_way_of_others() -> None:
    """Also not inside functions: what a room is allowed to import is checked against its order, and this against the source."""
    rooms: dict[str, set[str]] = {}
    for path in sources():
        room, package = path.relative_to(SOURCE).with_suffix("").parts[0], ".".join(["continua", *path.relative_to(SOURCE).parts[:-1]])
        targets = {
            room_of(name) for _, name in imported_modules(ast.parse(path.read_text("utf-8")), package) if name.startswith("continua.")
        }
        rooms.setdefault(room, set()).update(targets - {room})
    assert cycle_in(rooms) == []
    assert cycle_in(BELOW) == []


@pytest.mark.parametrize(
    ("b", "ring"),
    [
        ("from continua.room.a import x", ["continua.room.a", "continua.room.b", "continua.room.a"]),
        ("if True:\n    from .a import x", ["continua.room.a", "continua.room.b", "continua.room.a"]),
        ("class B:\n    from . import a", ["continua.room.a", "continua.room.b", "continua.room.a"]),
        ("from continua.room import x", ["continua.room", "continua.room.a", "continua.room.b", "continua.room"]),
        ("def late():\n    from continua.room.a import x", []),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import x", []),
    ],
)
def test_the_cycle_check_sees_a_ring(b: str, ring: list[str]) -> None:
    code = {"continua.room": "from .a import x", "continua.room.a": "from continua.room.b import y", "continua.room.b": b}
    assert cycle_in(import_graph(code)) == ring


# --- public names -----------------------------------------------------------------------------------------------------


def public_modules() -> list[str]:
    """The package, each of its rooms that is there, and the interfaces in `compat`, which are imported by their own names."""
    rooms = [f"continua.{path.parent.name}" for path in sorted(SOURCE.glob("*/__init__.py"))]
    return ["continua", *rooms, *(f"continua.compat.{path.parent.name}" for path in sorted(SOURCE.glob("compat/*/__init__.py")))]


def public_names() -> list[str]:
    return [f"{module}.{name}" for module in public_modules() for name in sorted(importlib.import_module(module).__all__)]


def test_every_room_is_a_package() -> None:
    loose = {path.parent.name for path in SOURCE.glob("*/*.py")} - {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert not loose, f"no __init__.py in {sorted(loose)}"


@pytest.mark.parametrize("module", public_modules())
def test_a_room_says_what_is_public(module: str) -> None:
    names = importlib.import_module(module).__all__
    assert list(names) == list(dict.fromkeys(names)), "a name is there twice"
    assert all(hasattr(importlib.import_module(module), name) for name in names)


def packages() -> list[Path]:
    """The package, its rooms and their subpackages."""
    return [path.parent for path in sorted(SOURCE.rglob("__init__.py"))]


def bound_names(tree: ast.AST, package: str) -> set[str]:
    """What importing, defining and assigning at the top of a package gives names to, besides its own modules."""
    names: set[str] = set()
    for node in top_level(tree):
        if isinstance(node, ast.ImportFrom) and source_of(node, package) == package:
            continue  # `from continua.studies import dcn` is the module itself
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


@pytest.mark.parametrize("package", packages(), ids=lambda path: path.relative_to(SOURCE.parent).as_posix())
def test_no_name_of_a_package_shadows_a_module_in_it(package: Path) -> None:
    """`continua.analysis.steps` is the function, so no module may be called that."""
    modules = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/__init__.py")}
    name = ".".join(package.relative_to(SOURCE.parent).parts)
    assert modules & bound_names(ast.parse((package / "__init__.py").read_text("utf-8")), name) == set()


def definitions() -> dict[str, list[str]]:
    """Every public function and class at the top of a module: its name, and the files that define it. Signatures alone do not count."""
    files: dict[str, list[str]] = {}
    for path in sources():
        for node in ast.parse(path.read_text("utf-8")).body:
            defines = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_")
            if defines and "overload" not in map(ast.unparse, node.decorator_list):
                files.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
    return files


# Names that several files may define, and which files: one meaning each, all the same.
SHARED_NAMES = {
    **dict.fromkeys(("Options", "ask", "present"), "analysis/questions/*"),  # the three parts of every question
    "reconstruction": "*/reconstruction.py",  # the model's registered name, and that of the analysis which trains it
}


def test_a_name_is_defined_in_one_place() -> None:
    """One meaning per name in the whole house, so that a name read anywhere leads to one definition."""
    several = {name: files for name, files in definitions().items() if len(files) > 1}
    allowed = {name for name, files in several.items() if all(fnmatchcase(file, SHARED_NAMES.get(name, "")) for file in files)}
    assert {name: files for name, files in several.items() if name not in allowed} == {}
    assert allowed == SHARED_NAMES.keys(), "a shared name that is shared no longer"


def test_public_names_are_the_inventory() -> None:
    head, *written = INVENTORY.read_text("utf-8").splitlines()
    names = public_names()
    gone, new = sorted(set(written) - set(names)), sorted(set(names) - set(written))
    assert (gone, new) == ([], []), head
    assert written == names, head


def own_docstring(thing: object) -> str:
    """What someone wrote: not a parent's docstring, not the signature a dataclass makes up."""
    text = (vars(thing).get("__doc__") if inspect.isclass(thing) else getattr(thing, "__doc__", None)) or ""
    return "" if inspect.isclass(thing) and text.startswith(f"{thing.__name__}(") else text.strip()


def test_every_public_name_has_a_docstring() -> None:
    things = {name: getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in public_names()}
    bare = [name for name, thing in things.items() if (inspect.isroutine(thing) or inspect.isclass(thing)) and not own_docstring(thing)]
    assert not bare, f"no docstring: {bare}"


# --- files ------------------------------------------------------------------------------------------------------------


def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def project_files() -> list[Path]:
    """Every file that belongs to the project: what git knows, or else everything that is not hidden or built."""
    git = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True)
    if git.returncode == 0 and git.stdout:
        return [path for name in sorted(git.stdout.decode().strip("\0").split("\0")) if (path := ROOT / name).is_file()]
    return [path for folder in ("src", "tests", "docs", "benchmarks") for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]


def texts() -> Iterator[tuple[Path, str]]:
    for path in project_files():
        try:
            yield path, path.read_text("utf-8")
        except UnicodeDecodeError:
            continue


def test_every_source_file_says_what_it_is() -> None:
    bare = [path.relative_to(ROOT).as_posix() for path in sources() if not ast.get_docstring(ast.parse(path.read_text("utf-8")))]
    assert not bare, f"no module docstring: {bare}"


# A folder of somebody's machine, not the path part of an address such as https://example.org/home/page.
MACHINE_PATH = re.compile(r"(?<![\w.~>)\]}-])(?:/(?:home|root|Users|opt|work|mnt|srv|scratch)/\w|[A-Z]:\\+Users\\)")


def test_no_file_names_a_folder_of_someones_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("open('" + "/home" + "/ann/data.bin')", True),
        ("see " + "/opt" + "/wheels", True),
        ("C:" + "\\Users\\ann", True),
        ("https://example.org/home/page", False),
        ("docs/work/flow.md", False),
        ("~/.cache/continua", False),
    ],
)
def test_the_path_check_knows_a_machine_path(line: str, seen: bool) -> None:
    assert bool(MACHINE_PATH.search(line)) is seen


def headings(markdown: str) -> set[str]:
    """The anchors that the headings of a page make."""
    titles = re.findall(r"^#{1,6} +(.+?) *$", re.sub(r"^```.*?^```", "", markdown, flags=re.M | re.S), flags=re.M)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


def broken_links(page: Path) -> list[str]:
    """Links and pictures of a page that point at no file of the project, or at no heading of it."""
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)\s]+)[^)]*\)", prose) + re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", prose)
    broken = []
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in headings(file.read_text("utf-8"))):
            broken.append(f"{page.relative_to(ROOT) if page.is_relative_to(ROOT) else page.name}: {target}")
    return broken


def test_links_lead_somewhere() -> None:
    broken = [line for path in project_files() if path.suffix == ".md" for line in broken_links(path)]
    assert not broken, "\n".join(broken)


def test_the_link_check_sees_a_broken_link(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '# One title\n[here](#one-title) [gone](gone.md) [not](#two) <img src="gone.svg"> [far](https://example.org) `[code](x)`\n'
    )
    assert [line.split(": ")[1] for line in broken_links(page)] == ["gone.md", "#two", "gone.svg"]


# --- dependencies -----------------------------------------------------------------------------------------------------


def plain_name(requirement: str) -> str:
    """`PyYAML>=6` -> `pyyaml`, as package indexes spell names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


def test_every_dependency_has_a_range_and_a_pin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    lines = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if line and not line.startswith("#")]
    pinned = [plain_name(line) for line in lines]
    assert not [line for line in wanted if ">=" not in line], "a dependency without a lower bound"
    assert not [line for line in wanted if plain_name(line) not in pinned], "a dependency without a pin in constraints.txt"
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    assert pinned == sorted(set(pinned)), "pins are sorted by name, each once"


# --- one version ------------------------------------------------------------------------------------------------------


def test_there_is_one_version_number() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    told = subprocess.run([sys.executable, "-m", "continua", "--version"], capture_output=True, text=True, check=True).stdout.split()
    cited = re.search(r"^version: *\"?([^\s\"]+)", (ROOT / "CITATION.cff").read_text("utf-8"), flags=re.M)
    changed = re.search(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.M)
    assert cited is not None
    assert changed is not None
    everywhere = {
        "pyproject.toml": declared,
        "the installed package": version("continua"),
        "continua.__version__": importlib.import_module("continua").__version__,
        "continua --version": told[-1],
        "CITATION.cff": cited[1],
        "CHANGELOG.md": changed[1],
    }
    assert set(everywhere.values()) == {declared}, everywhere


if __name__ == "__main__":
    INVENTORY.write_text(INVENTORY_HEAD + "".join(f"{name}\n" for name in public_names()), "utf-8")
    print(f"wrote {INVENTORY}")
