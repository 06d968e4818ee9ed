"""Break the core on purpose, one small change at a time, and count how many of the changes a test notices.

    .venv/bin/pip install -c constraints.txt coverage
    .venv/bin/python scripts/mutants.py --sample 300 --seed 1 --json results/checks/mutants.json

First the tests of the core run once, each with the lines it executes. Then mutants are drawn at random from `ode`, `filters` and
checkpointing: `<` becomes `<=`, `+` becomes `-`, a number grows by one, a condition is negated, a statement is left out, ... Each runs in a
forked process, where PyTorch is imported already, against the quickest tests that execute the changed line. A mutant survives when all of
them pass: a test is missing, or the change makes no difference.
"""

import argparse
import ast
import copy
import importlib.machinery
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CODE = ROOT / "src" / "continua"
CORE = ["ode/*.py", "ode/*/*.py", "filters/*.py", "train/checkpoint.py"]
TESTS = ["tests/ode", "tests/filters", "tests/blocks", "tests/train/test_checkpoint.py", "tests/train/test_resume.py"]
UNMARKED = "not slow and not slurm and not browser"
MOST_SECONDS, MOST_TESTS = 25.0, 60  # of tests for one mutant
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.Pow: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


# --- mutants ------------------------------------------------------------------------------------------------------------


def places(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Every node that can be changed, with the kind of change; not what only people read: messages, annotations, docstrings."""

    def walk(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom) or "TYPE_CHECKING" in ast.dump(node)[:60]:
            return
        yield from ((node, kind) for kind in kinds(node))
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child)

    yield from walk(tree)


def kinds(node: ast.AST) -> list[str]:
    match node:
        case ast.Compare(ops=[only]) | ast.BinOp(op=only) | ast.BoolOp(op=only) | ast.AugAssign(op=only) if type(only) in SWAPS:
            return ["swap"]
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return ["drop sign"]
        case ast.Constant(value=bool()) | ast.Constant(value=int()) | ast.Constant(value=float()):
            return ["constant"]
        case ast.If() | ast.IfExp() | ast.While():
            return ["negate"]
        case ast.Return(value=ast.AST() as value) if not isinstance(value, ast.Constant):
            return ["return nothing"]
        case ast.Expr(value=ast.Call()):
            return ["leave out"]
    return []


def mutated(node: Any, kind: str) -> None:
    """Change a node of a copied tree in place."""
    if kind == "swap" and isinstance(node, ast.Compare):
        node.ops = [SWAPS[type(node.ops[0])]()]
    elif kind == "swap":
        node.op = SWAPS[type(node.op)]()
    elif kind == "drop sign":
        become(node, node.operand)
    elif kind == "constant":
        old = node.value
        node.value = (not old) if isinstance(old, bool) else old + 1 if isinstance(old, int) else old * 2 if old else 1.0
    elif kind == "negate":
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif kind == "return nothing":
        node.value = ast.Constant(None)
    else:
        become(node, ast.Pass())


def become(node: ast.AST, other: ast.AST) -> None:
    """Turn a node into another one, where it stands."""
    node.__class__ = type(other)  # pyright: ignore[reportAttributeAccessIssue]
    for name in list(node._fields):
        setattr(node, name, getattr(other, name))


def all_mutants() -> list[tuple[str, int, str, str]]:
    """(file, which place, its kind, what stood there with its line), of every place of the core."""
    found = []
    for path in sorted({path for pattern in CORE for path in CODE.glob(pattern)}):
        for index, (node, kind) in enumerate(places(ast.parse(path.read_text()))):
            line = int(getattr(node, "lineno", 0))
            found.append((str(path.relative_to(CODE)), index, kind, f"{line}: {ast.unparse(node).splitlines()[0][:120]}"))
    return found


def source_of(file: str, index: int) -> tuple[str, int, str]:
    """The changed file, the line of the change, and what stands there now."""
    tree = copy.deepcopy(ast.parse((CODE / file).read_text()))
    node, kind = list(places(tree))[index]
    line = int(getattr(node, "lineno", 0))
    mutated(node, kind)
    return ast.unparse(ast.fix_missing_locations(tree)), line, ast.unparse(node).splitlines()[0][:120]


# --- tests ----------------------------------------------------------------------------------------------------------------


class Recorder:
    """A plugin that notes which lines each test executes and how long it takes; kept as it goes on, for a run that is cut short."""

    def __init__(self, target: Path) -> None:
        import coverage

        self.target, self.failed = target, set[str]()
        self.coverage = coverage.Coverage(data_file=None, include=[f"{CODE}/*"], messages=False)
        self.coverage.start()
        self.seconds: dict[str, float] = {}  # of processor time: beside other work a clock on the wall says little

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)
        self.seconds[nodeid] = -_processor_seconds()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] += _processor_seconds()
        if len(self.seconds) % 200 == 0:
            self.write()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:  # beside other work a test may run out of time: it is not used, and named
            print(f"\n{report.nodeid} fails before anything was changed", flush=True)
            self.failed.add(report.nodeid)

    def write(self) -> None:
        seconds = {name: cost for name, cost in self.seconds.items() if name not in self.failed}
        self.target.write_text(json.dumps(dict(lines=self.lines(), seconds=seconds)))

    def lines(self) -> dict[str, dict[int, list[str]]]:
        data = self.coverage.get_data()
        names = [name for name in data.measured_files() if name.startswith(str(CODE))]
        return {str(Path(name).relative_to(CODE)): data.contexts_by_lineno(name) for name in names}


def _processor_seconds() -> float:
    """Of this process and of those it has waited for."""
    return sum(os.times()[:4])


def record(folder: Path) -> None:
    """Run the tests of the core once, in a process of its own."""
    import pytest

    recorder = Recorder(folder / "recorded.json")
    pytest.main(["-q", "-p", "no:cacheprovider", "--timeout=0", "-m", UNMARKED, *TESTS], plugins=[recorder])
    recorder.coverage.stop()
    if len(recorder.failed) > len(recorder.seconds) // 100:
        raise SystemExit("too many tests fail before anything was changed")
    recorder.write()


def chosen_tests(names: list[str], seconds: dict[str, float]) -> list[str]:
    """The quickest tests that reach the line, the first case of every test before the second of any."""
    cases: dict[str, list[str]] = defaultdict(list)
    for name in sorted((name for name in names if name in seconds), key=seconds.__getitem__):
        cases[name.partition("[")[0]].append(name)
    ranked = sorted((rank, seconds[name], name) for group in cases.values() for rank, name in enumerate(group))
    chosen, total = [], 0.0
    for _, cost, name in ranked:
        if len(chosen) < MOST_TESTS and (not chosen or total + cost <= MOST_SECONDS):
            chosen.append(name)
            total += cost
    return chosen


def survives(file: str, source: str, tests: list[str], limit: float) -> bool:
    """Whether all tests pass with this text in the file's place; a crash or a hang counts as noticed."""
    child = os.fork()
    if child == 0:
        try:
            _run(str(CODE / file), source.encode(), tests, limit)
        finally:
            os._exit(3)
    begun = time.monotonic()
    while time.monotonic() - begun < 20 * limit:  # a child that waits for ever uses no processor time
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _run(path: str, source: bytes, tests: list[str], limit: float) -> None:
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
    read = importlib.machinery.SourceFileLoader.get_data
    name = Path(path).stem

    def get_data(self: Any, where: str) -> bytes:
        if where == path:
            return source
        if where.endswith(".pyc") and Path(where).name.startswith(f"{name}."):
            raise OSError("the stored form is that of the file as it was")
        return read(self, where)

    importlib.machinery.SourceFileLoader.get_data = get_data
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os._exit(0 if pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]) == 0 else 1)


# --- the count ------------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=ROOT / ".tmp" / "mutants", help="where the lines of each test are kept")
    parser.add_argument("--again", action="store_true", help="run the tests again, after they or the code have changed")
    parser.add_argument("--only", type=Path, help="a JSON file of an earlier count: its survivors only")
    parser.add_argument("--minutes", type=float, default=1e6, help="how long to go on; the same command takes it up again")
    parser.add_argument("--json", type=Path, help="what is judged; mutants that are in it are not tried again")
    options = parser.parse_args()
    os.chdir(ROOT)
    os.environ.update(CI="true", OMP_NUM_THREADS="1")
    sys.dont_write_bytecode = True
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.again or not (options.folder / "recorded.json").exists():
        child = os.fork()
        if child == 0:
            record(options.folder)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
            raise SystemExit("the tests could not be recorded")
    recorded = json.loads((options.folder / "recorded.json").read_text())

    import hypothesis  # noqa: F401 - imported once, for every child
    import pytest  # noqa: F401
    import scipy.integrate  # noqa: F401
    import torch
    import torchdiffeq  # noqa: F401

    torch.set_num_threads(1)
    sample = random.Random(options.seed).sample(all_mutants(), options.sample)
    if options.only:
        earlier = {(row["file"], row["was"]) for row in kept_rows(options.only) if row["outcome"] != "noticed"}
        sample = [mutant for mutant in sample if (mutant[0], mutant[3]) in earlier]
    rows = kept_rows(options.json)
    judged, end = {(row["file"], row["was"], row["kind"]) for row in rows}, time.monotonic() + 60 * options.minutes
    for file, index, kind, was in sample:
        if (file, was, kind) in judged:
            continue
        if time.monotonic() > end:
            break
        source, line, now = source_of(file, index)
        tests = chosen_tests(recorded["lines"].get(file, {}).get(str(line), []), recorded["seconds"])
        limit = 3 * sum(recorded["seconds"][name] for name in tests) + 30
        outcome = "no test reaches it" if not tests else "survived" if survives(file, source, tests, limit) else "noticed"
        rows.append(dict(file=file, kind=kind, was=was, now=now, tests=len(tests), outcome=outcome))
        if outcome != "noticed":
            print(f"{outcome}  {file}:{was}  ->  {now}  ({len(tests)} tests)", flush=True)
        if options.json:
            command = f"python scripts/mutants.py --sample {options.sample} --seed {options.seed}"
            options.json.write_text(json.dumps(dict(command=command, **summary(rows), mutants=rows), indent=1) + "\n")
        if len(rows) % 10 == 0:
            print(summary(rows), flush=True)
    print(f"{len(rows)} of {len(sample)} mutants: {summary(rows)}")
    return 0


def kept_rows(path: Path | None) -> list[dict[str, Any]]:
    """What an earlier count has judged already."""
    return json.loads(path.read_text())["mutants"] if path is not None and path.exists() else []


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    counts = Counter(row["outcome"] for row in rows)
    return dict(judged=len(rows), **counts, share_noticed=round(counts["noticed"] / max(1, len(rows)), 4))


if __name__ == "__main__":
    sys.exit(main())
