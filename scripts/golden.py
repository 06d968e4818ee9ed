"""Golden outputs: what the library computes, written down before a change that should not change numbers and compared after it.

    python scripts/golden.py write BEFORE                   # on the untouched tree; then, after the change:
    python scripts/golden.py write AFTER
    python scripts/golden.py compare BEFORE AFTER           # exit code 1 where more than rounding differs or something is missing

Parts, each of which can be written and compared alone (`--only models,solve`):

    models     every registered model and some variants: initial weights, logits, gradients, counts, costs; the reconstruction network
    solve      methods, step control, saved states and gradients of `continua.solve`: states, statistics, gradients
    training   a training on the embedded digits, stopped by SIGTERM and resumed, and a decoder trained on its features
    studies    every study at the scale `smoke`: its numbers, and metrics and weights of its runs
    runs       every run under results/: its identity and logits, and how many of its own each study recognises
    texts      `continua models`, and `continua train --print-config` for each recipe

Everything runs on one thread of the CPU with fixed seeds, so two writes on one machine are equal bit for bit. Of a tensor, the SHA-256 of
all its bytes, their root mean square and a sample are kept. Only public names are used; those whose spelling may change are called in
`golden_parts/spellings.py` alone. What changed on purpose is left out with --ignore, for example --ignore 'models/*/config/*'.
"""

import argparse
import json
import platform
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import Tensor

import continua
from golden_parts.book import Book
from golden_parts.commands import ROOT, write_runs, write_studies, write_texts, write_training
from golden_parts.networks import write_models
from golden_parts.solves import write_solve

WRITERS: dict[str, Callable[[Book], None]] = {
    "models": write_models,
    "solve": write_solve,
    "training": write_training,
    "studies": write_studies,
    "runs": write_runs,
    "texts": write_texts,
}


def processor() -> str:
    """The processor's name: the standard library knows it on some systems only."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text("utf-8").splitlines() if known.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def write(out: Path, parts: list[str]) -> int:
    """All parts into a folder; 1 if something raised an error."""
    if not Path(continua.__file__).resolve().is_relative_to(ROOT):
        raise SystemExit(f"continua is imported from {continua.__file__}, not from this tree; set PYTHONPATH={ROOT / 'src'}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", continua.ContinuaWarning)
    out.mkdir(parents=True, exist_ok=True)
    machine = {"torch": torch.__version__, "processor": processor(), "vectors": torch.backends.cpu.get_cpu_capability()}
    (out / "machine.json").write_text(json.dumps(machine, indent=2) + "\n", "utf-8")
    errors = 0
    for part in parts:
        start, book = time.monotonic(), Book()
        WRITERS[part](book)
        book.save(out, part)
        errors += book.errors
        print(f"{part}: {len(book.leaves)} values, {book.errors} errors, {time.monotonic() - start:.0f} s", flush=True)
    return min(errors, 1)


EQUAL, ROUNDING, DIFFERENT, MISSING, NEW = "equal", "rounding", "different", "missing", "new"
TOLERANCES = {"float64": (1e-9, 1e-12)}  # relative to the largest value of a tensor, absolute
TOLERANCE = (1e-4, 1e-6)  # float32, and numbers that come of it


def judge(name: str, before: Book, after: Book) -> tuple[str, str]:
    """How a value changed, and in numbers."""
    if name not in after.leaves:
        return MISSING, ""
    if name not in before.leaves:
        return NEW, ""
    old, new = before.leaves[name], after.leaves[name]
    if old == new or (old != old and new != new):  # not a number, both times
        return EQUAL, ""
    if isinstance(old, dict) and isinstance(new, dict) and (old["shape"], old["kind"]) == (new["shape"], new["kind"]):
        return _near(before.numbers(name), after.numbers(name), old["kind"])
    if type(old) is float and type(new) is float:
        return _near(torch.tensor([old], dtype=torch.float64), torch.tensor([new], dtype=torch.float64), "")
    shown = [f"{leaf['kind']} {leaf['shape']}" if isinstance(leaf, dict) else str(leaf)[:100] for leaf in (old, new)]
    return DIFFERENT, f"{shown[0]} → {shown[1]}"


def _near(old: Tensor, new: Tensor, kind: str) -> tuple[str, str]:
    relative, absolute = TOLERANCES.get(kind, TOLERANCE)
    difference, largest = float((old - new).abs().max()), float(old.abs().max())
    exact = kind.startswith(("int", "uint", "bool"))
    near = not exact and difference <= absolute + relative * largest
    return (ROUNDING if near else DIFFERENT), f"largest difference {difference:.2e}, relative {difference / max(largest, 1e-300):.2e}"


def compare(before: Path, after: Path, parts: list[str], ignored: list[str], show_all: bool) -> int:
    """A line for each item and each value that changed; 1 if anything is different or missing."""
    for folder in (before, after):
        if not (folder / "machine.json").is_file():
            raise SystemExit(f"{folder} holds no golden outputs; make them with: golden.py write {folder}")
    machines = [json.loads((folder / "machine.json").read_text("utf-8")) for folder in (before, after)]
    if machines[0] != machines[1]:
        print(f"written on different machines, so only equal up to rounding: {machines[0]}, {machines[1]}")
    total: Counter[str] = Counter()
    for part in parts:
        books = [Book.load(folder, part) for folder in (before, after)]
        items: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
        for name in dict.fromkeys([*books[0].leaves, *books[1].leaves]):
            full = f"{part}/{name}"
            verdict, text = ("ignored", "") if any(fnmatchcase(full, pattern) for pattern in ignored) else judge(name, *books)
            items["/".join(full.split("/")[:2])].append((verdict, full, text))
        for item, verdicts in items.items():
            counts = Counter(verdict for verdict, _, _ in verdicts)
            total += counts
            if show_all or counts.keys() - {EQUAL}:
                print(f"{item}: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}")
            changed = [entry for entry in verdicts if entry[0] not in (EQUAL, "ignored")]
            for verdict, full, text in changed if show_all else changed[:8]:
                print(f"    {verdict:9}  {full}  {text}")
            if len(changed) > 8 and not show_all:
                print(f"    … and {len(changed) - 8} more (--all)")
        print(f"{part}: {len(items)} items" if books[0].leaves else f"{part}: nothing in {before}")
    print("in all: " + ", ".join(f"{count} {verdict}" for verdict, count in total.items()))
    return int(bool(total[DIFFERENT] or total[MISSING] or not total))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writer = commands.add_parser("write", help="compute everything and write it to a folder")
    writer.add_argument("out", type=Path)
    comparer = commands.add_parser("compare", help="compare two folders")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    comparer.add_argument("--ignore", metavar="PATTERN", action="append", default=[], help="values that changed on purpose")
    comparer.add_argument("--all", action="store_true", help="name every item and every changed value")
    for subcommand in (writer, comparer):
        subcommand.add_argument("--only", default=",".join(WRITERS), help="parts, joined by commas")
    options = parser.parse_args()
    parts = options.only.split(",")
    if unknown := [part for part in parts if part not in WRITERS]:
        parser.error(f"unknown part {unknown[0]!r}; known: {', '.join(WRITERS)}")
    if options.command == "write":
        return write(options.out, parts)
    return compare(options.before, options.after, parts, options.ignore, options.all)


if __name__ == "__main__":
    sys.exit(main())
