"""`continua explore`: look into networks in the browser."""

from pathlib import Path

from jsonargparse import Namespace

from continua.cli.commands import Command, Parser, Words
from continua.explore import HERE, PORT, serve


def add_explore_arguments(parser: Parser, words: Words) -> None:
    what = "folders of finished runs; without any, all those under --runs and the demo networks"
    parser.add_argument("run", metavar="RUN", type=Path, nargs="*", default=[], help=what)
    parser.common("runs", "data_dir")
    parser.option("host", str, HERE, "address to listen on; another than this machine's own opens it to others")
    parser.option("port", int | None, None, f"port to listen on (else {PORT}, or the next that is free)")
    parser.flag("no_browser", "do not open a browser")


def explore_command(options: Namespace) -> None:
    """Run `continua explore` until it is interrupted."""
    where = dict(runs=options.runs, data_dir=options.data_dir, host=options.host, port=options.port)
    serve(options.run, open_browser=not options.no_browser, **where)


COMMAND = Command(
    "A page in the browser for looking into a network: its depth, filters and weights, changed images, two side by side.",
    explore_command,
    add_explore_arguments,
)
