"""Train on a disk that fails, again and again, and compare what survives bit for bit: `make torture`.

    .venv/bin/python scripts/torture.py --minutes 10 --seed 1

First every file operation of one training, in turn, for each way to fail; then points drawn at random, struck several times in one run, and
kills at random moments. Ends after the time given with the counts; the seed that is printed repeats the same draws.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from failing_disk import CHANGES, WAYS, differences, end_well, tortured
from training import QUIET, finish, start, tiny_recipe

from continua.train import Run, train


def trials(points: int, draw: random.Random) -> Iterator[tuple[str, list[int]]]:
    """The way to fail, and the points at which one run is struck, one after the other."""
    for at in range(1, points + 1):
        for way in WAYS:
            yield way, [at]
    while True:
        yield draw.choice(WAYS), [draw.randint(1, points) for _ in range(draw.randint(1, 4))]


def tried(folder: Path, way: str, strikes: list[int], reference: Run) -> list[str]:
    """What went wrong; nothing, where the run ended as if it had been left alone."""
    for at in strikes:
        if Run(folder).result is None and finish(start(tortured, folder, way, at)) not in (0, -9):
            return [f"a traceback at point {at}"]
    if Run(folder).result is None and finish(start(end_well, folder)) != 0:
        return ["it could not go on"]
    return differences(Run(folder), reference)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}, {options.minutes:g} minutes", flush=True)
    end, counts, lost = time.monotonic() + 60 * options.minutes, Counter[str](), []
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        reference = train(tiny_recipe(**CHANGES), base / "reference", QUIET)
        if finish(start(tortured, base / "counted", "count", 0, base / "points")):
            raise SystemExit("a training on the stand-in disk did not end well")
        points = int((base / "points").read_text())
        print(f"a training has {points} file operations", flush=True)
        for number, (way, strikes) in enumerate(trials(points, random.Random(seed))):
            if time.monotonic() > end:
                break
            problems = tried(base / f"run{number}", way, strikes, reference)
            counts[way] += len(strikes)
            if problems:
                lost.append(f"{way} at {strikes}: {'; '.join(problems)}")
                print(f"LOST  {lost[-1]}", flush=True)
            if number % 50 == 49:
                print(f"{number + 1} runs, {dict(counts)}", flush=True)
    print(f"strikes: {dict(counts)}; lost: {len(lost)}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
