"""The page's server: its command line, its port, its start and its end."""

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

from continua.errors import ConfigError, ContinuaError

HERE = "127.0.0.1"
"""This machine alone: the address that the page listens on unless told otherwise."""
PORT = 8501
"""The first port that is tried."""
MISSING = "the explorer needs streamlit: pip install streamlit (in a clone: make explore)"


def serve(
    folders: Sequence[Path] = (),
    *,
    runs: Path | None = None,
    data_dir: Path | None = None,
    host: str = HERE,
    port: int | None = None,
    open_browser: bool = True,
) -> None:
    """Serve the page until it is interrupted: of the runs in `folders`, else of those under `runs` and of a demo.

    Args:
        folders: of runs to offer first.
        runs: folder of all runs.
        data_dir: folder of all data sets.
        host: address to listen on.
        port: port to listen on; None: the first that is free.
        open_browser: open the page in the browser.

    Raises:
        ConfigError: streamlit is missing, the port is taken, or a folder is not a run.

    Examples:
        >>> from continua.explore import serve
        >>> serve(open_browser=False)  # doctest: +SKIP
    """
    from importlib.util import find_spec

    from continua.explore.network import open_run

    if find_spec("streamlit") is None:
        raise ConfigError(MISSING)
    port = free_port(host, port)
    if host != HERE:
        print(f"continua: listening on {host}: whoever can reach this machine there can use the explorer", file=sys.stderr)
    server = subprocess.Popen(server_words(host, port, page_words(folders, runs=runs, data_dir=data_dir)))
    before = signal.signal(signal.SIGTERM, _interrupted)  # else the server would outlive this process
    try:
        for folder in folders:
            open_run(folder, data_dir)  # while the server starts: a wrong folder is said before a browser opens
        shown = HERE if host in ("0.0.0.0", "::") else host
        address = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"
        _wait_until_up(server, address)
        print(f"the explorer is at {address} (Ctrl-C ends it)", flush=True)
        if open_browser:
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


def page_words(folders: Sequence[Path], **options: Path | None) -> list[str]:
    """What the page is told, as its own command line."""
    words = [str(folder.resolve()) for folder in folders]
    return words + [f"--{name}={value.resolve()}" for name, value in options.items() if value is not None]


def server_words(host: str, port: int, page: Sequence[str]) -> list[str]:
    """The command that serves the page. Streamlit's own configuration files may say otherwise; these words win."""
    from continua.explore.image import MAX_MEGABYTES
    from continua.report import PALETTE

    settings = {
        "server.address": host,
        "server.port": port,
        "server.headless": "true",  # no prompt for an e-mail address; the browser is opened here
        "server.maxUploadSize": MAX_MEGABYTES,
        "server.fileWatcherType": "none",
        "server.enableAgentApi": "false",
        "server.enableCORS": "true",  # a page from elsewhere may not talk to this server
        "server.enableXsrfProtection": "true",
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
    flags += [f"--server.allowedHosts={name}" for name in host_names(host)]
    return [sys.executable, "-m", "streamlit", "run", str(script), *flags, "--", *page]


def host_names(host: str) -> list[str]:
    """The names under which a browser may ask for the page; empty: any.

    A page elsewhere can have its own name resolved to this machine's address (DNS rebinding), and would then count as this server's own:
    such a name is refused. Where all addresses are listened on, the names under which the machine is known are not ours to say.
    """
    return [] if host in ("0.0.0.0", "::", "") else list(dict.fromkeys(["localhost", HERE, "::1", host]))


def free_port(host: str, asked: int | None) -> int:
    """The port asked for, if it is free; else the first free one from the usual on."""
    if asked is not None:
        if not 1 <= asked <= 65535:
            raise ConfigError(f"port {asked}; expected 1 … 65535")
        if not _is_free(host, asked):
            raise ConfigError(f"port {asked} of {host} cannot be listened on; is an explorer open already? Choose another --port")
        return asked
    free = next((port for port in range(PORT, PORT + 100) if _is_free(host, port)), None)
    if free is None:
        raise ConfigError(f"no port from {PORT} to {PORT + 99} of {host} can be listened on; is that this machine's address?")
    return free


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
