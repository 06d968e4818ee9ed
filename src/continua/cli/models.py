"""`continua models`: list the zoo, show the options of one of it, draw one of it."""

import json
from dataclasses import asdict
from pathlib import Path
from textwrap import fill

from jsonargparse import Namespace

from continua.cli.commands import Command, Parser, Words
from continua.errors import ConfigError


def add_models_arguments(parser: Parser, words: Words) -> None:
    parser.add_argument("pattern", metavar="PATTERN", type=str, nargs="?", default="*", help="only names like this, e.g. 'dcn*'")
    parser.flag("json", "print a JSON list instead of a table")
    parser.add_argument("--options", metavar="NAME", type=str | None, default=None, help="show the options of this model and what they do")
    parser.add_argument("--draw", metavar="NAME", type=str | None, default=None, help="write a diagram of this model")
    parser.option("out", Path | None, None, "file of the diagram: .svg, .png or .pdf (default: NAME.svg)")


def models_command(options: Namespace) -> None:
    from continua.models import list_models, model_counts, model_entry
    from continua.report import show_table

    if options.options is not None:
        return _show_options(options.options, options.json)
    if options.draw is not None:
        return _draw(options.draw, options.out)
    if options.out is not None:
        raise ConfigError("--out is the file of a diagram; say which model with --draw NAME")
    names = list_models(options.pattern)
    if not names:
        raise ConfigError(f"no model is named like {options.pattern!r}; `continua models` lists all, patterns look like 'dcn*'")
    rows = [(model_entry(name), model_counts(name)) for name in names]
    if options.json:
        keys = ("name", "paper", "row", "parameters", "printed", "image_size")
        listed = [{key: getattr(entry, key) for key in keys} | {"flops": counts.flops} for entry, counts in rows]
        print(json.dumps(listed, indent=2, ensure_ascii=False))
        return None
    show_table(
        "models",
        ("name", "paper", "row", "parameters", "printed", "GFLOPs", "image"),
        [(e.name, e.paper, e.row, d.parameters, e.printed, f"{d.flops / 1e9:.3f}", f"{e.image_size}×{e.image_size}") for e, d in rows],
        text=(0, 1, 2),
    )
    print("GFLOPs: one image, one evaluation of each ODE block's field, 2 per multiply–add; N-jets as dense kernels at σ = 1.")
    return None


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


COMMAND = Command(
    "The zoo: every model, the table row it reproduces, its parameters and its arithmetic.", models_command, add_models_arguments
)
