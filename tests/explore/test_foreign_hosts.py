"""A browser led to the explorer by another site's name (DNS rebinding) gets no connection: asked of a server that runs."""

import base64
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from explorers import start_explorer

from continua.explore.server import HERE, free_port


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_port(HERE, None)
    process = start_explorer(port, "--runs", str(tmp_path_factory.mktemp("runs")))
    yield port
    process.terminate()
    process.wait(timeout=60)


def handshake(port: int, host: str, origin: str | None) -> int:
    """The server's answer to the opening of a WebSocket: 101 when it takes part."""
    lines = ["GET /_stcore/stream HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    lines += [f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}", *([f"Origin: {origin}"] if origin else [])]
    with socket.create_connection((HERE, port), timeout=60) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(connection.recv(4096).split()[1])


def test_own_names_are_welcome_and_foreign_ones_are_refused(port: int, tmp_path: Path) -> None:
    for name in (f"{HERE}:{port}", f"localhost:{port}"):
        assert handshake(port, name, f"http://{name}") == 101
    assert handshake(port, f"evil.example:{port}", f"http://evil.example:{port}") == 403, "a foreign name that resolves to this machine"
    assert handshake(port, f"{HERE}:{port}", "http://evil.example") == 403, "a page of another site"
