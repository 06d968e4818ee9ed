"""`continua explore` as a process of its own."""

import socket
import subprocess
import sys


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return trial.getsockname()[1]


def start_explorer(port: int, *words: str) -> "subprocess.Popen[str]":
    """`continua explore`, up when this returns."""
    command = [sys.executable, "-m", "continua", "explore", *words, "--port", str(port), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    told = []
    for line in process.stdout or []:
        told.append(line)
        if "the explorer is at" in line:
            return process
    raise AssertionError(f"the explorer did not start: {''.join(told)}")
