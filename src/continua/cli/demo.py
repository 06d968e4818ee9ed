"""`continua demo`."""

from pathlib import Path

from jsonargparse import Namespace

from continua.cli.commands import Command, Parser, Words


def add_demo_arguments(parser: Parser, words: Words) -> None:
    parser.option("out", Path, Path("runs/demo"), "folder for the runs and report.html")
    parser.option("epochs", int | None, None, "train for so many epochs (else as long as the recipe says)")
    parser.option("threads", int | None, None, "processor threads (else all cores; one if the machine is busy)")


def demo_command(options: Namespace) -> None:
    """Run `continua demo`."""
    from continua.demo import demo
    from continua.train import Interrupted, RunOptions

    changes = {} if options.epochs is None else {"epochs": options.epochs}
    try:
        demo(options.out, changes=changes, options=RunOptions(threads=options.threads))
    except Interrupted as stop:
        print(f"stopped and saved at {stop}; the same command goes on from there")
        raise SystemExit(128 + stop.signal if stop.signal else 1) from None


COMMAND = Command(
    "Train three small networks on the bundled digits, compare them and look inside, on one page (about five minutes).",
    demo_command,
    add_demo_arguments,
)
