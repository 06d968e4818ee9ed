"""Strike commands again and again, have them go on, and compare what survives bit for bit: `make torture`.

    .venv/bin/python scripts/torture.py --minutes 10 --seed 1

Commands: train, sweep, analyse, reproduce and fetch. First every file operation of each, in turn, for each way to fail, with kills at
random moments in between; then, as long as time is left, trials of several strikes drawn at random. A strike falls on a process of its own,
made from one that has everything imported. The seed that is printed repeats the same draws.
"""

import argparse
import gc
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

os.environ["OMP_NUM_THREADS"] = "1"  # before PyTorch: a process with threads cannot be forked
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from failing_disk import WAYS, FailingDisk
from scenarios import SCENARIOS, Scenario

PATIENCE = 120.0  # seconds that a strike may take: longer is a hang
HANG = 1200  # and a whole trial, on a machine that may be halted meanwhile
MOMENTS = 2  # kills at random moments for each point
SILENT = "moment"  # the way of a kill at a random moment, wherever the process is


@dataclass(frozen=True)
class Trial:
    """A command, and what happens to it each time that it is given: a way to fail and where."""

    scenario: str
    strikes: tuple[tuple[str, float], ...]
    in_turn: bool = False  # one of every point in every way

    def __str__(self) -> str:
        return f"{self.scenario}: " + ", ".join(f"{way} at {at:g}" for way, at in self.strikes)


@dataclass
class Known:
    """What a command does when it is left alone."""

    scenario: Scenario
    digests: dict[str, str]
    points: int
    seconds: float


@dataclass
class Tally:
    """What has been done so far."""

    command: str
    seed: int
    strikes: dict[str, Counter[str]] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    whole: dict[str, int] = field(default_factory=dict)  # by command: the points of which each was struck in every way

    def plain(self, known: dict[str, Known]) -> dict[str, Any]:
        ways = Counter[str]()
        for each in self.strikes.values():
            ways += each
        return {
            "command": self.command,
            "seed": self.seed,
            "minutes": round((time.monotonic() - self.began) / 60, 1),
            "kills": ways[SILENT] + ways["kill"],
            "strikes": sum(ways.values()),
            "by_way": dict(sorted(ways.items())),
            "by_command": {name: dict(sorted(each.items())) for name, each in self.strikes.items()},
            "points": {name: each.points for name, each in known.items()},
            "every_point_in_every_way": self.whole,
            "lost": self.lost,
        }


# --- processes ----------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], int], output: Path) -> int:
    """Start `work` in a process made from this one; its number. It ends with what `work` answers, 1 after a traceback."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(pid: int, seconds: float) -> int | None:
    """The exit code of a child, negative for a signal; None where it is still running after so many seconds."""
    waited, before = 0.0, time.monotonic()
    while waited < seconds:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.003)
        now = time.monotonic()
        waited, before = waited + min(now - before, 0.5), now  # a machine that was halted meanwhile has not hung
    return None


def killed(pid: int) -> int:
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# --- a trial ------------------------------------------------------------------------------------------------------------


def struck(scenario: Scenario, home: Path, way: str, at: float, output: Path, seed: int) -> tuple[int | None, bool]:
    """Give the command on a disk that fails, or kill it after `at` seconds; its exit code, None for a hang; whether the strike fell."""
    mark = home.with_suffix(".fell")
    mark.unlink(missing_ok=True)

    def work() -> int:
        if way == SILENT:
            return scenario.act(home)
        disk = FailingDisk(home, way, int(at), seed)
        try:
            with disk.installed():
                return scenario.act(home)
        finally:
            if disk.points >= int(at):
                mark.touch()

    pid = in_child(work, output)
    code = ended(pid, at if way == SILENT else PATIENCE)
    if code is None:
        killed(pid)
        code = -signal.SIGKILL if way == SILENT else None
    return code, code == -signal.SIGKILL or mark.exists()


def problems(trial: Trial, known: Known, home: Path, seed: int, fell: list[str]) -> list[str]:
    """What went wrong; nothing, where the command ended as if it had been left alone. `fell`: the ways of the strikes that it saw."""
    scenario, output = known.scenario, home.with_suffix(".txt")
    scenario.lay_out(home)
    for number, (way, at) in enumerate(trial.strikes):
        code, hit = struck(scenario, home, way, at, output, seed + number)
        fell += [way] * hit
        if code not in (0, 2, -signal.SIGKILL):
            return [f"{'a hang' if code is None else f'exit code {code}'} when struck by {way}: {_last(output)}"]
    code = scenario.act(home)  # in this process, which is made for one trial
    if code != 0:
        return [f"exit code {code} when it went on"]
    mine = scenario.digests(home)
    missing, more = known.digests.keys() - mine.keys(), mine.keys() - known.digests.keys()
    other = [name for name in known.digests.keys() & mine.keys() if mine[name] != known.digests[name]]
    named = (("missing", missing), ("left over", more), ("different", other))
    return [f"{word}: {', '.join(sorted(names)[:4])}" for word, names in named if names]


def _last(output: Path) -> str:
    return " | ".join(output.read_text("utf-8", errors="replace").splitlines()[-3:])[-600:] if output.exists() else ""


def reference(scenario: Scenario, base: Path) -> Known:
    """Left alone, twice: once to warm this very process, once to count and to measure; both must come to the same."""
    scenario.prepare()
    first, second = base / f"{scenario.name}-first", base / f"{scenario.name}-counted"
    for home in (first, second):
        scenario.lay_out(home)
    if scenario.act(first):
        raise SystemExit(f"{scenario.name} did not end well when it was left alone")
    start = time.monotonic()
    counted = base / f"{scenario.name}-points"

    def count() -> int:
        with FailingDisk(second, "count", 0).installed() as disk:
            code = scenario.act(second)
        counted.write_text(str(disk.points))
        return code

    output = base / f"{scenario.name}.txt"
    if ended(in_child(count, output), PATIENCE) != 0:
        raise SystemExit(f"{scenario.name} did not end well on the disk that counts: {_last(output)}")
    seconds = time.monotonic() - start
    digests = scenario.digests(first)
    if digests != scenario.digests(second):
        raise SystemExit(f"{scenario.name} gives other files when it is given again: {_differing(digests, scenario.digests(second))}")
    return Known(scenario, digests, int(counted.read_text()), seconds)


def _differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


# --- all of them --------------------------------------------------------------------------------------------------------


def trials(known: dict[str, Known], draw: random.Random, sample: bool, ways: Sequence[str]) -> Iterator[Trial]:
    """Every point in every way, command by command, then draws without end of these `ways`; `sample`: draws alone."""
    for name, each in {} if sample else known.items():
        for at in range(1, each.points + 1):
            for way in WAYS:
                yield Trial(name, ((way, at),), in_turn=True)
            for _ in range(MOMENTS):
                yield Trial(name, ((SILENT, draw.uniform(0, each.seconds)),))
            if at % 4 == 0:
                yield drawn(known, draw, ways)
    while True:
        yield drawn(known, draw, ways)


def drawn(known: dict[str, Known], draw: random.Random, among: Sequence[str]) -> Trial:
    """Up to three strikes on one command, the later ones while it goes on."""
    name = draw.choice(list(known))
    ways, each = draw.choices(among, k=draw.randint(1, 3)), known[name]
    return Trial(name, tuple((way, draw.uniform(0, each.seconds) if way == SILENT else draw.randint(1, each.points)) for way in ways))


def carry_out(known: dict[str, Known], tally: Tally, options: argparse.Namespace, base: Path) -> None:
    """Trials until the time is over, `options.workers` at once, each in a process of its own."""
    waiting = trials(known, random.Random(tally.seed), options.sample, options.ways.split(","))
    end = tally.began + 60 * options.minutes
    running: dict[int, tuple[int, Trial]] = {}
    left = Counter({name: each.points * len(WAYS) for name, each in known.items()})
    number = 0
    while time.monotonic() < end or running:
        if len(running) < options.workers and time.monotonic() < end:
            number, trial = number + 1, next(waiting)
            home = base / f"trial{number}"
            work = partial(_report, trial, known[trial.scenario], home, tally.seed + number)
            running[in_child(work, home.with_suffix(".txt"))] = number, trial
            continue
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid not in running:
            time.sleep(0.005)
            continue
        done, trial = running.pop(pid)
        report = base / f"trial{done}.json"
        wrong, fell = json.loads(report.read_text()) if report.exists() else ([f"the trial itself ended with {status}"], [])
        tally.strikes.setdefault(trial.scenario, Counter()).update(fell)
        if trial.in_turn and fell:
            left[trial.scenario] -= 1
            if left[trial.scenario] == 0:
                tally.whole[trial.scenario] = known[trial.scenario].points
        if wrong:
            tally.lost.append(f"{trial}: {'; '.join(wrong)}")
            print(f"LOST  {tally.lost[-1]}", flush=True)
        if done % 50 == 0:
            _write(tally, known, options)
            print(f"{done} trials, {tally.plain(known)['by_way']}, lost {len(tally.lost)}", flush=True)


def _report(trial: Trial, known: Known, home: Path, seed: int) -> int:
    gc.disable()
    signal.alarm(HANG)
    fell: list[str] = []
    try:
        wrong = problems(trial, known, home, seed, fell)
    except Exception as error:  # a traceback when it went on, which is in the output too
        traceback.print_exc()
        wrong = [f"{type(error).__name__} when it went on: {error}"]
    home.with_suffix(".json").write_text(json.dumps((wrong, fell)))
    home.with_suffix(".fell").unlink(missing_ok=True)
    if not wrong:
        shutil.rmtree(home)
        home.with_suffix(".txt").unlink(missing_ok=True)
    return 0


def _make_light() -> None:
    """Leave out what takes longer than the work that is struck, and touches no file of it."""
    import sklearn.datasets
    import torch

    from continua.report import draw
    from continua.runs import environment

    torch.set_num_threads(1)
    environment._commit = lambda: None  # starts git
    sklearn.datasets.load_digits = cache(sklearn.datasets.load_digits)  # reads a table of scikit-learn's, number by number
    draw.matplotlib_figure = partial(DrawnOnce, draw.matplotlib_figure)  # pyright: ignore[reportPrivateImportUsage]


class DrawnOnce:
    """Stands in for a figure of matplotlib's: what has been drawn once is written again as bytes. Drawing takes longest."""

    pictures: ClassVar[dict[str, bytes]] = {}

    def __init__(self, draw: Callable[..., Any], figure: Any, *, on_page: bool = False) -> None:
        self.draw, self.on_page, self.figure = partial(draw, figure, on_page=on_page), on_page, figure

    def savefig(self, target: Path, **options: Any) -> None:
        from continua.report.plain import to_plain

        key = json.dumps([to_plain(self.figure), self.on_page, options["format"]], default=str)
        if key not in self.pictures:
            drawn = io.BytesIO()
            self.draw().savefig(drawn, **options)
            self.pictures[key] = drawn.getvalue()
        with open(target, "wb") as file:
            for start in range(0, len(self.pictures[key]), 8192):
                file.write(self.pictures[key][start : start + 8192])


def _write(tally: Tally, known: dict[str, Known], options: argparse.Namespace) -> None:
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"runs": [*options.before, tally.plain(known)]}, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to go on")
    parser.add_argument("--seed", type=int, default=None, help="of all draws")
    parser.add_argument("--only", default=",".join(SCENARIOS), help="commands, with commas between them")
    parser.add_argument("--workers", type=int, default=2, help="trials at a time")
    parser.add_argument("--nice", type=int, default=0, help="added to the niceness once everything is imported")
    parser.add_argument("--sample", action="store_true", help="draw trials at random in place of every point in turn")
    parser.add_argument("--ways", default=",".join((SILENT, *WAYS)), help="of trials that are drawn, with commas between them")
    parser.add_argument("--json", type=Path, default=None, help="a file to which the counts are added")
    parser.add_argument("--keep", type=Path, default=None, help="a folder in which trials that were lost stay to be looked at")
    options = parser.parse_args()
    options.before = json.loads(options.json.read_text())["runs"] if options.json is not None and options.json.exists() else []
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}, {options.minutes:g} minutes", flush=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _make_light()
    words = [f"--minutes {options.minutes:g}", f"--seed {seed}", f"--only {options.only}"] + ["--sample"] * options.sample
    words += [] if options.ways == parser.get_default("ways") else [f"--ways {options.ways}"]
    tally = Tally(f"python scripts/torture.py {' '.join(words)}", seed)
    memory = Path("/dev/shm")  # a process is killed in the same way on any disk, and this one is quick
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        base = options.keep or Path(name)
        base.mkdir(exist_ok=True, parents=True)
        known: dict[str, Known] = {}
        for each in options.only.split(","):
            known[each] = reference(SCENARIOS[each](base), base)
            print(f"{each}: {known[each].points} file operations, {known[each].seconds:.2f} s", flush=True)
        os.nice(options.nice)
        gc.freeze()  # children share what is there, which a collection in each of them would copy
        tally.began = time.monotonic()
        carry_out(known, tally, options, base)
        _write(tally, known, options)
    print(json.dumps(tally.plain(known), indent=1))
    return 1 if tally.lost else 0


if __name__ == "__main__":
    sys.exit(main())
