"""`continua explore`: look into networks in the browser."""

from pathlib import Path

from jsonargparse import Namespace

from continua.cli.parsing import Command, Parser, Words
from continua.explore import HERE, PORT, serve


def add_explore_arguments(parser: Parser, words: Words) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, nargs="*", help="folders of finished runs (else those under --runs, and a demo)")
    parser.add_argument("--runs", type=Path | None, default=None, help="folder of all runs (else CONTINUA_RUNS, else ./runs)")
    parser.add_argument("--data_dir", "--data-dir", type=Path | None, default=None, help="folder of all data sets")
    parser.add_argument("--host", type=str, default=HERE, help="address to listen on; another than this machine's own opens it to others")
    parser.add_argument("--port", type=int | None, default=None, help=f"port to listen on (else {PORT}, or the next that is free)")
    parser.add_argument("--no_browser", "--no-browser", action="store_true", help="do not open a browser")


def explore_command(options: Namespace) -> None:
    """Run `continua explore` until it is interrupted."""
    where = dict(runs=options.runs, data_dir=options.data_dir, host=options.host, port=options.port)
    serve(options.run, open_browser=not options.no_browser, **where)


COMMAND = Command(
    "A page in the browser for looking into a network: its depth, filters and weights, changed images, two side by side.",
    explore_command,
    add_explore_arguments,
)
