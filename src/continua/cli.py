"""One command, `continua`. Rooms are imported only when their subcommand runs, so that help answers at once."""

import os
import re
import sys
import warnings
from argparse import ArgumentError
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from continua.errors import ConfigError, ContinuaError, ContinuaWarning, DataError
from continua.memory import keep_freed_memory

Action = Callable[[Namespace], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 2 with one line on stderr on an error a person can act on."""
    keep_freed_memory()
    warnings.showwarning = _warned
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        parser, actions = _parser(words)
        if not words:
            parser.print_help()
            return 0
        _check_command(words, actions)
        action, arguments = _chosen(parser.parse_args(_checked(words)), actions)
        action(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ContinuaError, ArgumentError, OSError) as error:
        if "--debug" in words:
            raise
        print(f"continua: {_said(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("continua: interrupted", file=sys.stderr)
        return 130
    return 0


def _said(error: Exception) -> str:
    """One line, without the parser's own words for types and keys."""
    text = " ".join(str(error).split())
    return re.sub(r"<class '(\w+)'>", r"\1", text.replace("Parser key ", "")) if isinstance(error, ArgumentError) else text


def _warned(message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    """Our own warnings are for people; those of others keep the place they come from."""
    if issubclass(category, ContinuaWarning):
        print(f"continua: warning: {message}", file=sys.stderr)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def _command(description: str) -> ArgumentParser:
    parser = ArgumentParser(prog="continua", description=description, exit_on_error=False, print_config=None)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def _parser(words: list[str]) -> tuple[ArgumentParser, dict[str, Action]]:
    parser = _command("Neural networks that are continuous in space, depth and weight.")
    parser.add_argument("--version", action="version", version=f"continua {_version()}", help="print the version and exit")
    from continua.analysis.command import add_analyse_arguments
    from continua.demo.command import add_demo_arguments
    from continua.explore.command import add_explore_arguments
    from continua.studies.command import add_reproduce_arguments
    from continua.studies.report_command import add_report_arguments
    from continua.train.commands import add_evaluate_arguments, add_train_arguments
    from continua.train.sweeps.command import add_sweep_arguments

    commands = parser.add_subcommands(dest="command", metavar="COMMAND")
    actions: dict[str, Action] = {}

    demo = _command("Train three small networks on the embedded digits, compare them and look inside, on one page (about five minutes).")
    add_demo_arguments(demo)
    commands.add_subcommand("demo", demo, help="train and compare three networks on the embedded digits")
    actions["demo"] = _demo

    train = _command("Train a network by a recipe, or go on with a training that was stopped.")
    evaluate = _command("Accuracy, confusion, calibration and cost of a finished run.")
    add_train_arguments(train)
    add_evaluate_arguments(evaluate)
    commands.add_subcommand("train", train, help="train a network by a recipe, or resume a run")
    commands.add_subcommand("evaluate", evaluate, help="look closely at a finished run")
    actions |= {"train": _train, "evaluate": _evaluate}

    sweep = _command("A grid of trainings from one YAML file, here or on a Slurm cluster; does only what is missing.")
    add_sweep_arguments(sweep)
    commands.add_subcommand("sweep", sweep, help="carry out a grid of trainings, here or on a Slurm cluster")
    actions["sweep"] = _sweep

    analyse = _command("Ask a question of trained networks.")
    add_analyse_arguments(analyse, _after("analyse", words))
    commands.add_subcommand("analyse", analyse, help="ask a question of trained networks")
    report = _command(
        "One self-contained HTML page about runs and studies: ours beside the printed values, curves, cost, what was analysed."
    )
    add_report_arguments(report)
    commands.add_subcommand("report", report, help="an HTML page about runs and studies")
    actions |= {"analyse": _analyse, "report": _report}

    explore = _command(
        "A page in the browser for looking into a network: its depth, filters and weights, changed images, two side by side."
    )
    add_explore_arguments(explore)
    commands.add_subcommand("explore", explore, help="look into a network in the browser")
    actions["explore"] = _explore

    reproduce = _command("Every table and figure of the papers: train what is missing, ask, and compare with the printed values.")
    add_reproduce_arguments(reproduce)
    commands.add_subcommand("reproduce", reproduce, help="a table or figure of a paper, ours beside the printed values")
    actions["reproduce"] = _reproduce

    data = _command("Data sets: what is known, what is here, whether it is right.")
    commands.add_subcommand("data", data, help="list, fetch and check data sets")
    actions |= _add_data_commands(data)

    models = _command("The zoo: every model, the table row it reproduces, its parameters and its arithmetic.")
    models.add_argument("pattern", metavar="PATTERN", type=str, nargs="?", default="*", help="only names like this, e.g. 'dcn*'")
    models.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    models.add_argument("--draw", metavar="NAME", type=str | None, default=None, help="write a diagram of this model")
    models.add_argument("--out", type=Path | None, default=None, help="file of the diagram: .svg, .png or .pdf (default: NAME.svg)")
    commands.add_subcommand("models", models, help="list models, draw one")
    actions["models"] = _models
    return parser, actions


def _add_data_commands(data: ArgumentParser) -> dict[str, Action]:
    commands = data.add_subcommands(dest="command", metavar="COMMAND")

    listing = _command("Every known data set: whether it is here, where, and its size.")
    fetching = _command("Download a data set, resuming where an earlier attempt stopped, and verify it.")
    checking = _command("Compare a data set on disk with the official one: checksums, shapes, images per class.")
    for parser in (fetching, checking):
        parser.add_argument("name", metavar="NAME", type=str, help="a name from `continua data list`")
    for parser in (listing, fetching, checking):
        parser.add_argument(
            "--data-dir", type=Path | None, default=None, help="folder of all data sets (else CONTINUA_DATA, else the user's cache)"
        )
    fetching.add_argument("--layout", type=str | None, default=None, help="which official layout (cifar10, cifar100: python or binary)")
    fetching.add_argument("--mirror", type=str | None, default=None, help="address of a folder to try before the official ones")
    fetching.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for a silent server")

    commands.add_subcommand("list", listing, help="what is known, what is here, where, its size")
    commands.add_subcommand("fetch", fetching, help="download and verify a data set")
    commands.add_subcommand("check", checking, help="compare a data set on disk with the official one")
    return {"data list": _data_list, "data fetch": _data_fetch, "data check": _data_check}


def _check_command(words: list[str], actions: dict[str, Action]) -> None:
    """A misspelt command is refused with the nearest one."""
    given = [word for word in words if word != "--debug"][:2]
    for depth, word in enumerate(given):
        before = given[:depth]
        known = dict.fromkeys(name.split()[depth] for name in actions if name.split()[:depth] == before and len(name.split()) > depth)
        if word.startswith("-") or not known:
            return
        if word not in known:
            near = get_close_matches(word, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise ConfigError(f"{' '.join(['continua', *before])} has no command {word!r}; {hint}")


def _checked(words: list[str]) -> list[str]:
    """Options of `continua train` are the fields of a recipe: misspelt ones are refused with the nearest field."""
    from continua.train.commands import checked_words

    if not _after("train", words):
        return words
    start = words.index("train") + 1
    return words[:start] + checked_words(words[start:])


def _after(command: str, words: list[str]) -> list[str]:
    """What follows the command, if it is this one."""
    given = words[words.index(command) + 1 :] if command in words else []
    return given if words[: len(words) - len(given)] in ([command], ["--debug", command]) else []


def _chosen(options: Namespace, actions: dict[str, Action]) -> tuple[Action, Namespace]:
    """The action of the innermost subcommand and its own options."""
    name, arguments = options.command, options[options.command]
    while "command" in arguments:
        name, arguments = f"{name} {arguments.command}", arguments[arguments.command]
    return actions[name], arguments


def _version() -> str:
    from importlib.metadata import version

    return version("continua")


def _data_list(options: Namespace) -> None:
    from continua.data.catalogue import CATALOGUE
    from continua.data.folder import data_folder
    from continua.data.presence import presence
    from continua.report import show_table, size_text

    root = data_folder(options.data_dir)
    rows = []
    for known in CATALOGUE.values():
        found = presence(known, root)
        size = size_text(found.size) if found.size else f"({size_text(found.download)} to fetch)" if found.download else ""
        images = " + ".join(f"{sum(counts):,}" for counts in known.counts.values())
        shape = "×".join(map(str, known.shape))
        rows.append((known.name, images, len(known.counts["train"]), shape, size, found.where(root)))
    show_table(f"data sets in {root}", ("name", "images", "classes", "shape", "size", "here"), rows, text=(0, 5))


def _data_fetch(options: Namespace) -> None:
    from continua.data.catalogue import find
    from continua.data.fetch import Patience, fetch
    from continua.data.folder import data_folder
    from continua.data.presence import presence
    from continua.data.sources import REMOTES

    known, root = find(options.name), data_folder(options.data_dir)
    layouts = REMOTES.get(known.name, {})
    if options.layout is not None and options.layout not in layouts:
        raise ConfigError(f"{known.name} has no layout {options.layout!r}; it has {', '.join(layouts) or 'none: it is embedded'}")
    found = presence(known, root)
    if not layouts or (found.state == "yes" and options.layout is None):
        print(f"{known.name} is here already: {found.folder}" + (" (move that folder away to fetch it anew)" if layouts else ""))
        return
    remotes = layouts[options.layout or next(iter(layouts))]
    mirrors = (options.mirror,) if options.mirror else ()
    for path in fetch(remotes, root, mirrors, Patience(timeout=options.timeout)):
        print(f"fetched {path}")
    print(f"`continua data check {known.name}` looks inside.")


def _data_check(options: Namespace) -> None:
    from continua.data.catalogue import find
    from continua.data.check import check
    from continua.data.folder import data_folder
    from continua.report import show_table, size_text

    known = find(options.name)
    found = check(known, data_folder(options.data_dir))
    verdict = {True: "official", False: "WRONG", None: "none published"}
    if found.files:
        rows = [(file.path.name, size_text(file.size), verdict[file.official]) for file in found.files]
        show_table(f"{found.name}: files in {found.folder}", ("file", "size", "checksum"), rows)
    if found.splits:
        rows = []
        for split in found.splits:
            least, most = min(split.counts), max(split.counts)
            each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            means = ", ".join(f"{mean:.4f}" for mean in split.means)
            rows.append((split.split, sum(split.counts), len(split.counts), each, "×".join(map(str, split.shape)), means))
        show_table(f"{found.name}: images", ("split", "images", "classes", "per class", "shape", "channel means"), rows)
    for split in found.absent:
        print(f"this copy has no {split} split")
    if found.problems:
        more = f" (and {len(found.problems) - 1} more)" if len(found.problems) > 1 else ""
        raise DataError(found.problems[0] + more)
    print(f"{found.name}: all right")


def _models(options: Namespace) -> None:
    import json

    from continua.models import list_models, model_entry
    from continua.models.describe import describe_model
    from continua.report import show_table

    if options.draw is not None:
        return _draw_model(options.draw, options.out)
    if options.out is not None:
        raise ConfigError("--out is the file of a diagram; say which model with --draw NAME")
    names = list_models(options.pattern)
    if not names:
        raise ConfigError(f"no model is named like {options.pattern!r}; `continua models` lists all, patterns look like 'dcn*'")
    rows = [(model_entry(name), describe_model(name)) for name in names]
    if options.json:
        keys = ("name", "paper", "row", "parameters", "printed", "image_size")
        listed = [{key: getattr(entry, key) for key in keys} | {"flops": described.flops} for entry, described in rows]
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


def _draw_model(name: str, out: Path | None) -> None:
    from continua.models import model_entry
    from continua.models.describe import describe_model
    from continua.models.draw import draw

    entry, described = model_entry(name), describe_model(name)
    jets = any("N-jet" in layer for part in described.parts for layer in part.layers)
    row = f", {entry.row}" if name == entry.name else ""  # a name spelled by rule is no row of the paper
    subtitle = f"{entry.paper}{row}" + (" · kernel sizes at σ = 1" if jets else "")
    print(f"made {draw(described, out or Path(f'{name}.svg'), title=name, subtitle=subtitle)}")


def _train(options: Namespace) -> None:
    from continua.train.commands import train_command

    train_command(options)


def _evaluate(options: Namespace) -> None:
    from continua.train.commands import evaluate_command

    evaluate_command(options)


def _sweep(options: Namespace) -> None:
    from continua.train.sweeps.command import sweep_command

    sweep_command(options)


def _analyse(options: Namespace) -> None:
    from continua.analysis.command import analyse_command
    from continua.train.subject import subject_of

    analyse_command(options.as_dict(), subject_of)


def _reproduce(options: Namespace) -> None:
    from continua.studies.command import reproduce_command

    reproduce_command(options)


def _explore(options: Namespace) -> None:
    from continua.explore.command import explore_command

    explore_command(options)


def _report(options: Namespace) -> None:
    from continua.studies.report_command import report_command

    report_command(options)


def _demo(options: Namespace) -> None:
    from continua.demo.command import demo_command

    demo_command(options)
