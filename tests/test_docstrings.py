"""What the reference says of every public function: each parameter, what comes back, what is raised, and an example that runs."""

import ast
import doctest
import importlib
import inspect
import re
import textwrap
from pathlib import Path
from types import FunctionType

import pytest

ROOT = Path(__file__).parents[1]
PUBLIC = [line for line in (ROOT / "tests" / "api.txt").read_text("utf-8").splitlines() if line.startswith("continua.")]
MAIN = (
    "continua.create_model",
    "continua.from_pretrained",
    "continua.list_models",
    "continua.solve",
    "continua.train.train",
    "continua.train.resume",
    "continua.runs.evaluate",
    "continua.runs.evaluate_run",
    "continua.studies.reproduce",
    "continua.demo.demo",
    "continua.explore.serve",
)


def public_functions() -> dict[str, FunctionType]:
    found: dict[str, FunctionType] = {}
    for name in PUBLIC:
        module, _, attribute = name.rpartition(".")
        value = getattr(importlib.import_module(module), attribute)
        if inspect.isfunction(value) and value.__module__.startswith("continua") and value not in found.values():
            found[name] = value
    return found


FUNCTIONS = public_functions()


def missing(function: FunctionType) -> list[str]:
    """What a docstring does not say."""
    text, signature = inspect.getdoc(function) or "", inspect.signature(function)
    described = {
        word for line in re.findall(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \(.*?\))?:", text, re.M) for word in re.split(r"[*, ]+", line)
    }
    lacks = [name for name in signature.parameters if name not in described]
    silent = signature.return_annotation in (None, "None", inspect.Signature.empty)
    lacks += [] if silent or re.search(r"^(Returns|Yields):$", text, re.M) else ["what comes back"]
    lacks += [] if not raises(function) or re.search(r"^Raises:$", text, re.M) else ["what it raises"]
    return lacks + ([] if ">>> " in text else ["an example"])


def raises(function: FunctionType) -> bool:
    """Whether the function itself has a `raise`, other than of what it caught."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    return any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_describes_everything(name: str) -> None:
    assert missing(FUNCTIONS[name]) == []


def test_the_main_functions_are_among_them() -> None:
    assert set(MAIN) - set(FUNCTIONS) == set()


def test_no_docstring_has_columns_which_the_site_would_run_together() -> None:
    columns = re.compile(r"^\w+ {2,}\S.*\n^\w+ {2,}\S", re.M)
    public = [getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in PUBLIC]
    described = [value for value in public if inspect.isclass(value) or inspect.isfunction(value)]
    assert [value.__qualname__ for value in described if columns.search(inspect.getdoc(value) or "")] == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_example_imports_what_there_is(name: str) -> None:
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    for example in doctest.DocTestParser().get_examples(text):
        compile(example.source, name, "exec")
        if re.match(r"from continua[\w.]* import |import continua", example.source):
            exec(example.source, {})


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_example_runs(name: str) -> None:
    function = FUNCTIONS[name]
    parsed = doctest.DocTestParser().get_doctest(inspect.getdoc(function) or "", {}, name, None, None)
    runner, said = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), []
    runner.run(parsed, out=said.append)
    assert runner.failures == 0, "".join(said)
