"""`continua explore`: start the page's server on this machine and open the browser."""

import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from continua.errors import ConfigError, ContinuaError

HERE, PORT = "127.0.0.1", 8501
MISSING = "the explorer needs streamlit: pip install 'continua[explore]' (in a clone: make explore)"


def add_explore_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, nargs="*", help="folders of finished runs (else those under --runs, and a demo)")
    parser.add_argument("--runs", type=Path | None, default=None, help="folder of all runs (else CONTINUA_RUNS, else ./runs)")
    parser.add_argument("--data_dir", "--data-dir", type=Path | None, default=None, help="folder of all data sets")
    parser.add_argument("--host", type=str, default=HERE, help="address to listen on; another than this machine's own opens it to others")
    parser.add_argument("--port", type=int | None, default=None, help=f"port to listen on (else {PORT}, or the next that is free)")
    parser.add_argument("--no_browser", "--no-browser", action="store_true", help="do not open a browser")


def explore_command(options: Namespace) -> None:
    """Run `continua explore` until it is interrupted."""
    from importlib.util import find_spec

    from continua.explore.network import open_run

    if find_spec("streamlit") is None:
        raise ConfigError(MISSING)
    port = free_port(options.host, options.port)
    if options.host != HERE:
        print(f"continua: listening on {options.host}: whoever can reach this machine there can use the explorer", file=sys.stderr)
    server = subprocess.Popen(server_words(options.host, port, page_words(options)))
    before = signal.signal(signal.SIGTERM, _interrupted)  # else the server would outlive this process
    try:
        for folder in options.run:
            open_run(folder, options.data_dir)  # while the server starts: a wrong folder is said before a browser opens
        shown = HERE if options.host in ("0.0.0.0", "::") else options.host
        address = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"
        _wait_until_up(server, address)
        print(f"the explorer is at {address} (Ctrl-C ends it)", flush=True)
        if not options.no_browser:
            webbrowser.open(address)
        server.wait()
    except KeyboardInterrupt:
        print()
        return
    finally:
        _end(server)
        signal.signal(signal.SIGTERM, before)
    if server.returncode:
        raise ContinuaError(f"the page's server ended with code {server.returncode}; what it said is above")


def _interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def page_words(options: Namespace) -> list[str]:
    """What the page is told, as its own command line."""
    words = [str(folder.resolve()) for folder in options.run]
    for name in ("runs", "data_dir"):
        value = getattr(options, name)
        words += [f"--{name}={value.resolve()}"] if value is not None else []
    return words


def server_words(host: str, port: int, page: Sequence[str]) -> list[str]:
    """The command that serves the page. Streamlit's own configuration files may say otherwise; these words win."""
    from continua.explore.image import MAX_MEGABYTES
    from continua.report.palette import PALETTE

    settings = {
        "server.address": host,
        "server.port": port,
        "server.headless": "true",  # no prompt for an e-mail address; the browser is opened here
        "server.maxUploadSize": MAX_MEGABYTES,
        "server.fileWatcherType": "none",
        "server.enableAgentApi": "false",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "viewer",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": "false",
        "runner.magicEnabled": "false",
        "theme.light.primaryColor": PALETTE[0],
        "theme.dark.primaryColor": PALETTE[5],
        "logger.hideWelcomeMessage": "true",  # it would ask a server elsewhere for this machine's address
        "logger.level": "warning",
        "logger.enableRich": "false",
    }
    script = Path(__file__).with_name("page.py")
    flags = [f"--{name}={value}" for name, value in settings.items()]
    return [sys.executable, "-m", "streamlit", "run", str(script), *flags, "--", *page]


def free_port(host: str, asked: int | None) -> int:
    """The port asked for, if it is free; else the first free one from the usual on."""
    if asked is not None:
        if not 1 <= asked <= 65535:
            raise ConfigError(f"port {asked}; expected 1 … 65535")
        if not _is_free(host, asked):
            raise ConfigError(f"port {asked} of {host} cannot be listened on; is an explorer open already? Choose another --port")
        return asked
    found = next((port for port in range(PORT, PORT + 100) if _is_free(host, port)), None)
    if found is None:
        raise ConfigError(f"no port from {PORT} to {PORT + 99} of {host} can be listened on; is that this machine's address?")
    return found


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except (OSError, OverflowError):
            return False
    return True


def _wait_until_up(server: "subprocess.Popen[bytes]", address: str, seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < end and server.poll() is None:
        try:
            with direct.open(f"{address}/_stcore/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    if server.poll() is None:
        raise ContinuaError(f"the page's server did not answer within {seconds:.0f} s")


def _end(server: "subprocess.Popen[bytes]") -> None:
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
