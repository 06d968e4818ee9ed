"""`continua models`: list the models, show the options of one, draw one.

The list is answered from what is kept in models.json: without PyTorch, at once.
"""

import json
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import fill

from jsonargparse import Namespace

from continua.cli.commands import Command, Parser, Words
from continua.errors import ConfigError
from continua.files import Json
from continua.showing import show_table

# One row per registered model; tests/models/test_describe.py compares them with the models and writes them anew.
ROWS_FILE = Path(__file__).with_name("models.json")


def add_models_arguments(parser: Parser, words: Words) -> None:
    parser.add_argument("pattern", metavar="PATTERN", type=str, nargs="?", default="*", help="only names like this, e.g. 'dcn*'")
    parser.flag("json", "print a JSON list instead of a table")
    parser.add_argument("--options", metavar="NAME", type=str | None, default=None, help="show the options of this model and what they do")
    parser.add_argument("--draw", metavar="NAME", type=str | None, default=None, help="write a diagram of this model")
    parser.option("out", Path | None, None, "file of the diagram: .svg, .png or .pdf (default: NAME.svg)")


def models_command(options: Namespace) -> None:
    if options.options is not None:
        return _show_options(options.options, options.json)
    if options.draw is not None:
        return _draw(options.draw, options.out)
    if options.out is not None:
        raise ConfigError("--out is the file of a diagram; say which model with --draw NAME")
    rows = [row for row in json.loads(ROWS_FILE.read_text("utf-8")) if fnmatchcase(row["name"], options.pattern)]
    if not rows:
        raise ConfigError(f"no model is named like {options.pattern!r}; `continua models` lists all, patterns look like 'dcn*'")
    if options.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return None
    show_table(
        "models",
        ("name", "paper", "row", "parameters", "printed", "GFLOPs", "image"),
        [(*(row[key] for key in ("name", "paper", "row", "parameters", "printed")), *_sizes(row)) for row in rows],
        text=(0, 1, 2),
    )
    print("GFLOPs: one image, one evaluation of each ODE block's field, 2 per multiply–add; N-jets as dense kernels at σ = 1.")
    return None


def _sizes(row: Json) -> tuple[str, str]:
    return f"{row['flops'] / 1e9:.3f}", f"{row['image_size']}×{row['image_size']}"


def _show_options(name: str, as_json: bool) -> None:
    from continua.models import model_entry, model_options

    known = model_options(name)
    if as_json:
        print(json.dumps([asdict(item) for item in known], indent=2, ensure_ascii=False))
        return
    print(f"{model_entry(name).name}: create_model({name!r}, ...), or --model_options.NAME VALUE of `continua train`")
    for item in known:
        print(f"\n  {item.name} = {json.dumps(item.default, ensure_ascii=False)}    ({item.type})")
        print(fill(item.help, 110, initial_indent="      ", subsequent_indent="      "))


def _draw(name: str, out: Path | None) -> None:
    from continua.models import describe_model, draw_model, model_entry

    entry, described = model_entry(name), describe_model(name)
    jets = any("N-jet" in layer for part in described.parts for layer in part.layers)
    row = f", {entry.row}" if name == entry.name else ""  # a name spelled by rule is no row of the paper
    subtitle = f"{entry.paper}{row}" + (" · kernel sizes at σ = 1" if jets else "")
    print(f"made {draw_model(described, out or Path(f'{name}.svg'), title=name, subtitle=subtitle)}")


COMMAND = Command("Every model: the table row it reproduces, its parameters and its arithmetic.", models_command, add_models_arguments)
