"""Break the core on purpose, one small change at a time, and count how many of the changes a test notices.

    .venv/bin/pip install -c constraints.txt coverage
    .venv/bin/python scripts/mutants.py --sample 300 --seed 1 --json results/checks/mutants.json
    .venv/bin/python scripts/mutants.py --survivors --tests 500 --seconds 20 --json results/checks/mutants.json    # after tests were added

First the tests of the core run once (one case of each), each with the lines it executes. Then mutants are drawn at random, half of them
from `ode`, 3 of 10 from `filters`, the others from checkpointing: `<` becomes `<=`, `+` becomes `-`, a number grows by one, a condition is
negated, a statement is left out, ... Each runs in a forked process against the quickest tests that execute the changed line. There PyTorch,
Continua and the tests are imported and collected already: the code of the functions that changed is exchanged in place. What is no
function's (constants of a module, defaults of parameters) is imported anew. A mutant survives when all of its tests pass: a test is
missing, or the change makes no difference.
"""

import argparse
import ast
import gc
import importlib.machinery
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

from mutating import CODE, Mutant, all_mutants, changed, core_digest, exchanged

ROOT = Path(__file__).parents[1]
TESTS = {
    "ode": ["tests/ode", "tests/blocks"],
    "filters": ["tests/filters", "tests/blocks"],
    "checkpointing": [
        "tests/train/test_checkpoint.py",
        "tests/train/test_failing_disk.py",
        "tests/train/test_resume.py",
        "tests/test_files.py",
        "tests/test_files_below.py",
        "tests/runs/test_strangers.py::test_a_compressed_checkpoint_is_not_unpacked",
    ],
}
UNMARKED = "not slow and not slurm and not browser"
PARTS = {"ode": 0.5, "filters": 0.3, "checkpointing": 0.2}  # of a sample
CASES = 1  # of each test, when lines are noted
ELSEWHERE = 5  # how a child ends that found no function to exchange
# --- tests ----------------------------------------------------------------------------------------------------------------


class Tests:
    """A plugin: the tests are collected once, then `work` gets them instead of pytest; each of its children runs some of them."""

    def __init__(self, work: Callable[["Tests"], None]) -> None:
        self.work, self.items, self.functions = work, dict[str, Any](), defaultdict[str, list[FunctionType]](list)
        self.report: Callable[[Any], None] = lambda _: None

    def pytest_runtestloop(self, session: Any) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType) and thing.__code__.co_filename.startswith(str(CODE)):
                self.functions[thing.__code__.co_filename].append(thing)
        self.work(self)
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.report(report)

    def run(self, names: list[str], after: Callable[[str], None] = lambda _: None) -> None:
        chosen = [self.items[name] for name in names]
        for item, following in zip(chosen, [*chosen[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            after(item.nodeid)

    def cases(self) -> dict[str, list[str]]:
        """The cases of each test."""
        found: dict[str, list[str]] = defaultdict(list)
        for name in self.items:
            found[name.partition("[")[0]].append(name)
        return found


def record(tests: Tests, names: list[str], target: Path, known: dict[str, Any]) -> None:
    """Which lines each test executes and how long it takes; kept as it goes on, for a run that is cut short."""
    import coverage  # pyright: ignore[reportMissingImports] - installed by whoever counts mutants

    failed, seconds = set[str](), dict[str, float]()
    tracer = coverage.Coverage(data_file=None, include=[f"{CODE}/*"], messages=False)

    def report(report: Any) -> None:
        if report.failed:  # beside other work a test may run out of time: it is not used, and named
            print(f"{report.nodeid} fails before anything was changed", flush=True)
            failed.add(report.nodeid)

    def write() -> None:
        data, reached = tracer.get_data(), defaultdict(list, {place: list(tests) for place, tests in known["reached"].items()})
        for name in data.measured_files():
            for line, contexts in data.contexts_by_lineno(name).items():
                reached[f"{Path(name).relative_to(CODE)}:{line}"] += [test for test in contexts if test in seconds and test not in failed]
        kept = dict(source=known["source"], reached=reached, seconds=known["seconds"] | seconds, failed=sorted(failed))
        target.write_text(json.dumps(kept))

    def after(_: str) -> None:
        seconds[current[0]] = _processor_seconds() - current[1]
        if len(seconds) % 100 == 0:
            print(f"{len(seconds)} of {len(names)} tests", flush=True)
            write()

    tests.report = report
    tracer.start()
    for name in names:
        tracer.switch_context(name)
        current = (name, _processor_seconds())
        tests.run([name], after)
    tracer.stop()
    if len(failed) > len(names) // 50:
        raise SystemExit("too many tests fail before anything was changed")
    write()


def _processor_seconds() -> float:
    """Of this process and of those it has waited for: beside other work a clock on the wall says little."""
    return sum(os.times()[:4])


def chosen_tests(mutant: Mutant, recorded: dict[str, Any], cases: dict[str, list[str]], most: float, most_tests: int) -> list[str]:
    """The quickest tests that reach the line, the first case of every test before the second of any."""
    reached, seconds = recorded["reached"], recorded["seconds"]
    names = set(reached.get(f"{mutant.file}:{mutant.line}", []))
    if not names:  # a line that runs when the module is imported: whatever uses the module
        names = {name for place, tests in reached.items() if place.rpartition(":")[0] == mutant.file for name in tests}
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names & seconds.keys(), key=seconds.__getitem__):
        groups[name.partition("[")[0]].append(name)
    ranked = []
    for group, known in groups.items():
        others = [name for name in cases.get(group, []) if name not in seconds]
        slowest = max(seconds[name] for name in known)
        ranked += [(rank, seconds.get(name, slowest), name) for rank, name in enumerate([*known, *others])]
    chosen, total = [], 0.0
    for _, cost, name in sorted(ranked):
        if len(chosen) < most_tests and (not chosen or total + cost <= most):
            chosen.append(name)
            total += cost
    return chosen


# --- judging --------------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], int], seconds: float) -> int:
    """How a forked process ends that does this, within so many seconds of processor time; -9 when it waits for ever."""
    if (child := os.fork()) == 0:
        code = 3
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 5))
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + 4 * 10**9
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            code = work()
        finally:
            os._exit(code)
    for _ in range(int(200 * seconds)):  # rounds, not seconds on the wall, which pass while this process is paused
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_place(tests: Tests, mutant: Mutant, tree: ast.Module, names: list[str]) -> int:
    """Run tests with the functions of one file changed: 0 when all pass."""
    path = CODE / mutant.file
    if not exchanged(path, tree, tests.functions[str(path)]):
        return ELSEWHERE

    def report(report: Any) -> None:
        if report.failed:
            os._exit(1)

    tests.report = report
    tests.run(names)
    return 0


def imported_anew(mutant: Mutant, tree: ast.Module, names: list[str]) -> int:
    """Run tests with one file changed before it is imported: 0 when all pass."""
    import pytest

    changed_file, source, read = str(CODE / mutant.file), ast.unparse(tree).encode(), importlib.machinery.SourceFileLoader.get_data

    def get_data(self: Any, path: str) -> bytes:
        if path == changed_file:
            return source
        if path.endswith(".pyc") and Path(path).name.startswith(f"{Path(changed_file).stem}."):
            raise OSError("the stored form is that of the file as it was")
        return read(self, path)

    importlib.machinery.SourceFileLoader.get_data = get_data
    sys.dont_write_bytecode = True
    return 0 if pytest.main(["-x", "-q", "-p", "no:cacheprovider", *names]) == 0 else 1


# --- the count ------------------------------------------------------------------------------------------------------------


class Count:
    """The mutants of a sample, what has become of them, and the file in which that is kept."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.end = options, time.monotonic() + 60 * options.minutes
        path = options.json
        self.kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else dict(sample=options.sample, seed=options.seed)
        self.rows = {(row["file"], row["kind"], row["was"], row["nth"]): row for row in self.kept.get("mutants", [])}
        every = all_mutants()
        self.rooms = options.only.split(",")
        if options.survivors:
            survived = {key for key, row in self.rows.items() if row["outcome"] != "noticed"}
            self.sample = [mutant for mutant in every if mutant.key in survived and room(mutant.file) in self.rooms]
        else:
            draws = random.Random(options.seed)
            parts = [
                draws.sample([mutant for mutant in every if room(mutant.file) == name], round(part * options.sample))
                for name, part in PARTS.items()
            ]
            self.sample = [mutant for part in parts for mutant in part if mutant.key not in self.rows and room(mutant.file) in self.rooms]
            draws.shuffle(self.sample)  # a count that is cut short is a sample, too
        self.elsewhere = list[tuple[Mutant, list[str]]]()

    def recorded(self, tests: Tests) -> dict[str, Any]:
        path = self.options.folder / "recorded.json"
        nothing, source = dict(reached={}, seconds={}, failed=[]), core_digest()
        known = json.loads(path.read_text()) if path.exists() else nothing
        if known.get("source") != source:  # its lines are those of another source
            known = dict(nothing, source=source)
        missing = [name for group in tests.cases().values() for name in group[:CASES] if name not in known["seconds"]]
        if missing:
            if (child := os.fork()) == 0:
                code = 3
                try:
                    record(tests, missing, path, known)
                    code = 0
                finally:
                    os._exit(code)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
                raise SystemExit("the tests could not be recorded")
        return json.loads(path.read_text())

    def chosen(self, mutant: Mutant, recorded: dict[str, Any], cases: dict[str, list[str]]) -> list[str]:
        return chosen_tests(mutant, recorded, cases, self.options.seconds, self.options.tests)

    def judge_in_place(self, tests: Tests) -> None:
        recorded, cases = self.recorded(tests), tests.cases()
        for mutant in self.sample:
            if time.monotonic() > self.end:
                return
            names = [name for name in self.chosen(mutant, recorded, cases) if name in tests.items]
            tree, now = changed(mutant)
            limit = 3 * sum(recorded["seconds"].get(name, self.options.seconds / 10) for name in names) + 5
            code = in_child(lambda: in_place(tests, mutant, tree, names), limit) if names else 0  # noqa: B023
            if code == ELSEWHERE:
                self.elsewhere.append((mutant, names))
            else:
                self.note(mutant, now, len(names), code)

    def judge_anew(self) -> None:
        for mutant, names in self.elsewhere:
            if time.monotonic() > self.end:
                return
            tree, now = changed(mutant)
            self.note(mutant, now, len(names), in_child(lambda: imported_anew(mutant, tree, names), 3 * self.options.seconds + 30))  # noqa: B023

    def note(self, mutant: Mutant, now: str, tests: int, code: int) -> None:
        outcome = "no test reaches it" if not tests else "survived" if code == 0 else "noticed"
        row = dict(file=mutant.file, line=mutant.line, kind=mutant.kind, was=mutant.was, now=now, nth=mutant.nth)
        earlier = self.rows.get(mutant.key, {})
        self.rows[mutant.key] = row | dict(tests=tests, at_first=outcome) | earlier | dict(outcome=outcome)
        if outcome != "noticed" or self.options.survivors:
            print(f"{outcome}  {mutant.file}:{mutant.line}: {mutant.was}  ->  {now}  ({tests} tests)", flush=True)
        if len(self.rows) % 10 == 0:
            print(summary(list(self.rows.values()), "outcome"), flush=True)
        self.write()

    def write(self) -> None:
        rows = list(self.rows.values())
        told = dict(sample=self.kept["sample"], seed=self.kept["seed"], at_first=summary(rows, "at_first"), now=summary(rows, "outcome"))
        lines = ",\n".join("  " + json.dumps(row) for row in rows)
        text = json.dumps(told, indent=1)[:-2] + f',\n "mutants": [\n{lines}\n ]\n}}\n'
        self.options.json.parent.mkdir(parents=True, exist_ok=True)
        self.options.json.write_text(text)


def room(file: str) -> str:
    """Of which part of the core a file is."""
    return file.partition("/")[0] if "/" in file and not file.startswith("train/") else "checkpointing"


def summary(rows: list[dict[str, Any]], which: str) -> dict[str, Any]:
    """Counts, of all and by room."""
    counts, rooms = Counter(row[which] for row in rows), dict[str, list[bool]]()
    for row in rows:
        rooms.setdefault(room(row["file"]), []).append(row[which] == "noticed")
    share = round(counts["noticed"] / max(1, len(rows)), 4)
    by_room = {name: f"{sum(seen)} of {len(seen)}" for name, seen in sorted(rooms.items())}
    return dict(judged=len(rows), **counts, share_noticed=share, noticed_by_room=by_room)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(PARTS), help="parts of the core, with commas between them")
    parser.add_argument("--without", nargs="*", default=[], help="files of tests that are left out, to count as if they were not there")
    parser.add_argument("--survivors", action="store_true", help="ask the survivors of an earlier count again; new tests are noted first")
    parser.add_argument("--seconds", type=float, default=8.0, help="of tests for one mutant, unchanged")
    parser.add_argument("--tests", type=int, default=60, help="at most so many for one mutant")
    parser.add_argument("--minutes", type=float, default=1e6, help="how long to go on; the same command takes it up again")
    parser.add_argument("--folder", type=Path, default=ROOT / ".tmp" / "mutants", help="where the lines of each test are kept")
    parser.add_argument("--json", type=Path, required=True, help="what is judged; mutants that are in it are not tried again")
    options = parser.parse_args()
    os.chdir(ROOT)
    os.environ.update(CI="true", OMP_NUM_THREADS="1")
    options.folder.mkdir(parents=True, exist_ok=True)

    import hypothesis  # noqa: F401 - imported once, for every child
    import pytest
    import scipy.integrate  # noqa: F401
    import torch
    import torchdiffeq  # noqa: F401

    torch.set_num_threads(1)
    reader, writer = os.pipe()
    if os.fork() == 0:  # Continua is imported in here; where it must be imported anew, it is not there yet
        count = Count(options)
        tests = dict.fromkeys(path for name in count.rooms for path in TESTS[name] if path not in options.without)
        words = ["-q", "-s", "-p", "no:cacheprovider", "--timeout=0", "-m", UNMARKED, *tests]
        code = int(pytest.main(words, plugins=[Tests(count.judge_in_place)]))
        with os.fdopen(writer, "w") as file:
            json.dump([(list(mutant), names) for mutant, names in count.elsewhere], file)
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as file:
        told = file.read()
    if os.waitstatus_to_exitcode(os.wait()[1]) not in (0, 5):
        raise SystemExit("the count was cut short")
    count = Count(options)
    count.elsewhere = [(Mutant(*mutant), names) for mutant, names in json.loads(told)]
    count.judge_anew()
    print(json.dumps(summary(list(count.rows.values()), "outcome")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
