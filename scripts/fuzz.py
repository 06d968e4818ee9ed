"""Hand many damaged and hostile inputs to every reader, and keep the counts.

    .venv/bin/python scripts/fuzz.py --inputs 10000 --seed 1 --json results/checks/fuzz.json
    .venv/bin/python scripts/fuzz.py --inputs 1000 --seed 1 --rounds 10 --json results/checks/fuzz.json    # kept after each thousand

Kinds: recipes, run folders, images, archives, arguments of solve. Whatever they hold, nothing but `ContinuaError` may come of it, within
10 s of processor time and 512 MB more than the process had ever held. What fails is printed as the smallest input that does.
"""

import argparse
import itertools
import json
import os
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = {
    "recipes": ["test_strangers_files.py", "recipe or network"],
    "run folders": ["test_strangers_files.py", "run_folder or weights or checkpoints"],
    "images": ["test_strangers_files.py", "images"],
    "archives": ["test_strangers_files.py", "archives"],
    "arguments of solve": ["test_solve_arguments.py", "solve"],
}


def fuzz(kind: str, options: argparse.Namespace) -> dict[str, object]:
    """Every test of a kind in a process of its own; what came of it."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reader)
        code = 3
        try:
            code = _in_child(kind, options, writer)
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as file:
        told = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {**(json.loads(told) if told else {"inputs": 0}), "failed": code != 0}


def _in_child(kind: str, options: argparse.Namespace, writer: int) -> int:
    import pytest

    file, chosen = KINDS[kind]
    words = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--timeout=0",
        f"--hypothesis-seed={options.seed}",
        str(ROOT / "tests" / "fuzz" / file),
        "-k",
        chosen,
    ]
    begun = time.process_time()
    code = int(pytest.main(words))
    import fuzzing

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    told = dict(
        inputs=fuzzing.GIVEN[kind],
        slowest_seconds=round(fuzzing.SLOWEST.get(kind, 0.0), 2),
        most_megabytes=most,
        processor_seconds=round(time.process_time() - begun),
    )
    os.write(writer, json.dumps(told).encode())
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000, help="of each kind")
    parser.add_argument("--seed", type=int, default=1, help="of all draws; each round has the next one")
    parser.add_argument(
        "--rounds", type=int, default=1, help="so often; counts of rounds that are kept are added, those of a seed that is there are not"
    )
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, with commas between them")
    parser.add_argument("--json", type=Path, default=None, help="a file to which the counts of these kinds are added")
    options = parser.parse_args()
    os.chdir(ROOT)
    os.environ.pop("CI", None)  # under which the seed would be left out of account
    os.environ |= {"FUZZ_EXAMPLES": str(options.inputs), "OMP_NUM_THREADS": "1"}
    kept = json.loads(options.json.read_text()) if options.json is not None and options.json.exists() else {}
    import torch  # noqa: F401 - imported once, for every child

    failed = False
    for kind, seed in itertools.product(options.only.split(","), range(options.seed, options.seed + options.rounds)):
        rounds = kept.setdefault(kind, {"inputs": 0, "rounds": []})["rounds"]
        if any(entry["seed"] == seed for entry in rounds):
            continue
        answer = fuzz(kind, argparse.Namespace(inputs=options.inputs, seed=seed))
        failed = failed or bool(answer["failed"])
        print(f"{kind}: {answer}", flush=True)
        command = f'python scripts/fuzz.py --inputs {options.inputs} --seed {seed} --only "{kind}"'
        rounds.append({"command": command, "seed": seed, **answer})
        kept[kind] = {
            "inputs": sum(entry["inputs"] for entry in rounds),
            "failed": any(entry["failed"] for entry in rounds),
            "rounds": rounds,
        }
        if options.json is not None:
            options.json.write_text(json.dumps(kept, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
