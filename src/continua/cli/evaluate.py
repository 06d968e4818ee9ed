"""`continua evaluate`: a finished run in, its accuracy, confusion, calibration and cost out."""

import json
from pathlib import Path

from jsonargparse import Namespace

from continua.cli.commands import Command, Parser, Words

FRACTIONS = ("top1", "top5", "calibration_error")  # shown in per cent


def add_evaluate_arguments(parser: Parser, words: Words) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a finished run")
    parser.option("data", str | None, None, "another data set (else the run's own)")
    parser.option("split", str | None, None, "which of its splits (else test, or val)")
    parser.option("tolerance", float | None, None, "solve adaptively at rtol = atol = this (else as the network was trained)")
    parser.option("batch_size", int | None, None, "images per batch (else the recipe's)")
    parser.common("data_dir", "device")
    parser.option("out", Path | None, None, "JSON file for the numbers (else in the run's folder)")


def evaluate_command(options: Namespace) -> None:
    """Run `continua evaluate`."""
    from continua.report import show_table, written_whole
    from continua.runs import evaluate_run

    asked = {name: getattr(options, name) for name in ("data", "split", "tolerance", "batch_size", "data_dir", "device")}
    numbers = evaluate_run(options.run, **asked)
    tolerance = f"-tolerance{options.tolerance:g}" if options.tolerance is not None else ""
    target = options.out or options.run / f"evaluation-{numbers['data']}-{numbers['split']}{tolerance}.json"
    with written_whole(target) as temporary:
        temporary.write_text(json.dumps(numbers, indent=2, ensure_ascii=False) + "\n", "utf-8")
    plain = {name: value for name, value in numbers.items() if value is not None and not isinstance(value, list | dict)}
    if len(numbers.get("per_class", ())) <= 5:  # top 5 of at most five says nothing
        plain.pop("top5", None)
    rows = [(name.replace("_", " "), f"{value:.2%}" if name in FRACTIONS else _cell(value)) for name, value in plain.items()]
    rows += [("NFE per block", " ".join(f"{value:.1f}" for value in numbers["nfe"]) or "no solver")]
    show_table(str(options.run), ("", ""), rows, text=(0, 1))
    if "per_class" in numbers:
        classes = [
            (name, of_class["images"], f"{of_class['accuracy']:.2%}", of_class["confused_with"] or "")
            for name, of_class in numbers["per_class"].items()
        ]
        show_table("per class", ("class", "images", "accuracy", "most often taken for"), classes, text=(0, 3))
    print(f"wrote {target}")


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


COMMAND = Command("Accuracy, confusion, calibration and cost of a finished run.", evaluate_command, add_evaluate_arguments)
