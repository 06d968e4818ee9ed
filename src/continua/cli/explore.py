"""`continua explore`: look into networks in the browser."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

HERE, PORT = "127.0.0.1", 8501


def add_explore_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, nargs="*", help="folders of finished runs (else those under --runs, and a demo)")
    parser.add_argument("--runs", type=Path | None, default=None, help="folder of all runs (else CONTINUA_RUNS, else ./runs)")
    parser.add_argument("--data_dir", "--data-dir", type=Path | None, default=None, help="folder of all data sets")
    parser.add_argument("--host", type=str, default=HERE, help="address to listen on; another than this machine's own opens it to others")
    parser.add_argument("--port", type=int | None, default=None, help=f"port to listen on (else {PORT}, or the next that is free)")
    parser.add_argument("--no_browser", "--no-browser", action="store_true", help="do not open a browser")


def explore_command(options: Namespace) -> None:
    """Run `continua explore` until it is interrupted."""
    from continua.explore import serve

    where = dict(runs=options.runs, data_dir=options.data_dir, host=options.host, port=options.port)
    serve(options.run, open_browser=not options.no_browser, **where)
