"""Does every kept run still evaluate to the accuracy it is stored with?

    python scripts/check_results.py --data-dir DATA                         # every run under results/; about an hour on one core
    python scripts/check_results.py --data-dir DATA results/dcn/dcn_*       # these only
    python scripts/check_results.py --data-dir DATA --out results/checks/kept-runs.json   # and keep the table

Loads each run's weights, evaluates them on the split that its accuracy is of, with the batches of its recipe, and compares how many
images are right. Exit code 1 where a run differs by more than --images: another processor, or another number of threads, adds in another
order, and an image whose two best classes are all but equal can then change sides. --progress FILE keeps a line for each run as it is
done; the same command with the same file goes on where it was stopped.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from continua.models import WEIGHTS_FILE
from continua.report import entry_environment, show_table, write_text
from continua.runs import RunView, describe_environment, evaluate, task_of

ROOT = Path(__file__).parents[1]


def check(folder: Path, data_dir: Path | None) -> dict[str, Any]:
    """The stored accuracy of one run and that of its weights today, as images that are right."""
    view = RunView(folder, device="cpu", data_dir=data_dir)
    line: dict[str, Any] = {"run": shown_name(folder)}
    if view.result is None or "test_accuracy" not in view.result:
        return line | {"verdict": "no accuracy stored"}
    stored = {"stored_correct": round(view.result["test_accuracy"] * view.result["test_images"]), "stored_loss": view.result["test_loss"]}
    line |= {"images": view.result["test_images"], **stored}
    if not (folder / "best" / WEIGHTS_FILE).is_file():
        return line | {"verdict": "no weights kept"}
    start, images = time.monotonic(), view.images(own=False)  # the whole split that results are reported on
    measured = evaluate(view.network, images.loader, task=task_of(view.recipe))
    if measured.images != view.result["test_images"]:
        return line | {"verdict": f"other images: {measured.images} in the split {images.name} of {images.data}"}
    line |= {"weights": view.weights[:16], "data": images.data, "split": images.name, "correct": measured.correct, "loss": measured.loss}
    return line | {"failed": measured.failed, "nfe": measured.nfe_per_solve, "seconds": round(time.monotonic() - start, 1)}


def shown_name(folder: Path) -> str:
    """The folder as seen from the repository, whatever it was called on the command line."""
    folder = folder.resolve()
    return folder.relative_to(ROOT.resolve()).as_posix() if folder.is_relative_to(ROOT.resolve()) else folder.name


def judged(line: dict[str, Any], tolerance: int) -> dict[str, Any]:
    """The line with its verdict; some have one already."""
    if "verdict" in line:
        return line
    off = abs(line["correct"] - line["stored_correct"])
    return line | {"verdict": "equal" if not off else "rounding" if off <= tolerance else "differs"}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="folders of runs (else every one under results/)")
    parser.add_argument("--data-dir", type=Path, help="folder of all data sets (else CONTINUA_DATA, else the user's cache)")
    parser.add_argument("--images", type=int, default=5, help="how many images may change sides by rounding (5)")
    parser.add_argument("--progress", type=Path, help="JSON lines, one for each run that is done; read first, then added to")
    parser.add_argument("--out", type=Path, help="JSON file for the table")
    options = parser.parse_args(words)
    folders = options.runs or sorted(path.parent for path in (ROOT / "results").rglob("config.yaml"))
    kept = options.progress.read_text("utf-8").splitlines() if options.progress and options.progress.exists() else []
    done = {line["run"]: line for line in map(json.loads, kept)}
    lines = []
    for number, folder in enumerate(folders, 1):
        line = done.get(shown_name(folder))
        if line is None:
            line = check(folder, options.data_dir)
            if options.progress:
                with options.progress.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
        lines.append(judged(line, options.images))
        print(f"{number}/{len(folders)} {lines[-1]['run']}: {lines[-1]['verdict']}", file=sys.stderr, flush=True)
    columns = ("run", "images", "stored_correct", "correct", "stored_loss", "loss", "verdict")
    rows = [[line.get(name, "") for name in columns] for line in lines]
    show_table("kept runs", columns, rows, text=(0, len(columns) - 1))
    verdicts = {verdict: sum(line["verdict"] == verdict for line in lines) for verdict in sorted({line["verdict"] for line in lines})}
    print(", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()))
    if options.out:
        environment = entry_environment(describe_environment(torch.device("cpu"), 1))
        table = {"command": "python scripts/check_results.py --data-dir DATA", "tolerance_images": options.images}
        write_text(options.out, json.dumps({**table, "verdicts": verdicts, "environment": environment, "runs": lines}, indent=1) + "\n")
        print(f"wrote {options.out}")
    return int(any(line["verdict"] not in {"equal", "rounding", "no weights kept", "no accuracy stored"} for line in lines))


if __name__ == "__main__":
    sys.exit(main())
