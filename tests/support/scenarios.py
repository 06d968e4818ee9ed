"""What is tortured: five commands on small work. Each can be given again after any accident, and ends with the same files."""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from sweeping import write_sweep
from training import QUIET, begin_or_resume

from continua.cli import main
from continua.data.fetch import Patience, fetch_data, forget_fetched
from continua.data.sources import Remote
from continua.errors import ContinuaError
from continua.runs import Run
from continua.train import load_sweep, run_sweep, write_results
from continua.train.sweeps.jobs import CellJob, JobState

CHANGES: dict[str, Any] = dict(epochs=2, per_class=3, ema=0.9, test_every=0, model_options=dict(solver=dict(method="euler", steps=1)))
CLOCKS = ("seconds", "images_per_second")
OWN = {"log.txt", ".lock", "environment.json", "where.json", "cells.json"}  # of the machine and the moment, not of the work


@dataclass(frozen=True)
class Scenario:
    """A command in a folder of its own (`home`); what is the same for all trials lies in `base`."""

    base: Path

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def prepare(self) -> None:
        """Once, before all trials."""

    def lay_out(self, home: Path) -> None:
        """What is there before the command is given for the first time."""
        home.mkdir()

    def act(self, home: Path) -> int:
        """Give the command, for the first time or again; what it answers: 0, or 2 with one line."""
        raise NotImplementedError

    def digests(self, home: Path) -> dict[str, str]:
        """Every file that there must be at the end, without what the clock decides."""
        files = (path for path in sorted(home.rglob("*")) if path.is_file() and path.name not in OWN)
        return {path.relative_to(home).as_posix(): _digest(path, home) for path in files}


class Train(Scenario):
    """`train`, then `resume`."""

    def act(self, home: Path) -> int:
        run = Run(home / "run")
        if run.result is not None:
            return 0
        try:
            begin_or_resume(run.folder, CHANGES)
        except (ContinuaError, OSError) as error:  # what the command answers in one line
            print(f"continua: {error}")
            return 2
        return 0


class Sweep(Scenario):
    """`continua sweep`, whose jobs run one after the other in the process that is struck."""

    @property
    def file(self) -> Path:
        return self.base / "sweep" / "small.yaml"

    def prepare(self) -> None:
        self.file.parent.mkdir()
        write_sweep(self.file, epochs=1, models=["dcn_ode"], seeds=[0, 1])

    def act(self, home: Path) -> int:
        try:
            sweep = load_sweep(self.file, home / "runs", "cpu", None)
            outcome = run_sweep(sweep, Inline(), replace(QUIET), jobs=1)
            write_results(sweep, outcome.statuses)
        except (ContinuaError, OSError) as error:
            print(f"continua: {error}")
            return 2
        return 0 if outcome.count("done") == len(sweep) else 2


class Inline:
    """An executor whose jobs have ended when they are submitted."""

    name, pause, survives = "inline", 0.0, False

    def submit(self, job: CellJob, name: str) -> str:
        try:
            job()
        except (ContinuaError, OSError) as error:
            print(f"continua: {error}")
        return name

    def states(self, jobs: Iterable[str]) -> dict[str, JobState]:
        return dict.fromkeys(jobs, JobState("ended", "failed"))

    def stop(self, jobs: Iterable[str]) -> None:
        """Nothing runs."""


class Analyse(Scenario):
    """`continua analyse` with a question that keeps its pieces, of a run that lies elsewhere."""

    WORDS = ("--limit", "8", "--contrasts", "2", "--modes", '["naive"]')

    def prepare(self) -> None:
        begin_or_resume(self.base / "analysed", CHANGES)

    def act(self, home: Path) -> int:
        run = str(self.base / "analysed")
        return main(["analyse", "contrast", run, "--out", str(home / "answers"), "--device", "cpu", "--quiet", *self.WORDS])


class Reproduce(Scenario):
    """`continua reproduce` of a study that is cut to two runs of one epoch."""

    def prepare(self) -> None:
        from continua.studies import STUDIES, reproduction

        reproduction.KEPT = self.base / "kept"  # there are none: reading those of the project takes longer than this study
        study = STUDIES["dcn/table5"]
        smoke = replace(study.settings["smoke"], change={**study.settings["smoke"].change, "epochs": 1})
        STUDIES[study.id] = replace(study, settings={**study.settings, "smoke": smoke}, rows=lambda scale: study.rows(scale)[:2])

    def act(self, home: Path) -> int:
        return main(["reproduce", "dcn/table5", "--scale", "smoke", "--runs", str(home / "runs"), "--threads", "1", "--device", "cpu"])


class Fetch(Scenario):
    """`fetch_data` of an archive and of a single file, from a server of ours that can go on where a transfer ended."""

    @cached_property
    def archive(self) -> bytes:
        return (self.base / "served" / "pictures.tar.gz").read_bytes()

    def prepare(self) -> None:
        served = self.base / "served"
        served.mkdir()
        with tarfile.open(served / "pictures.tar.gz", "w:gz") as pack:
            for number in range(6):
                entry = tarfile.TarInfo(f"pictures/{number % 2}/{number}.bin")
                entry.size = 20_000
                pack.addfile(entry, io.BytesIO(_noise(number, entry.size)))
        (served / "labels.bin").write_bytes(_noise(99, 150_000))
        (self.base / "address").write_text(serve(served))

    def act(self, home: Path) -> int:
        root, address, served = home / "data", (self.base / "address").read_text(), self.base / "served"
        remotes = [
            Remote(file=name, folder=folder, size=len(content), md5=hashlib.md5(content).hexdigest(), addresses=(f"{address}/{name}",))
            for name, folder in (("labels.bin", ""), ("pictures.tar.gz", "pictures"))
            for content in [(served / name).read_bytes()]
        ]
        try:
            if (root / "pictures").is_dir():  # as the command does where everything is here
                forget_fetched(remotes, root)
            else:
                fetch_data(remotes, root, (), Patience(timeout=5.0, pause=0.05))
        except (ContinuaError, OSError) as error:
            print(f"continua: {error}")
            return 2
        return 0


SCENARIOS = {kind.__name__.lower(): kind for kind in (Train, Fetch, Analyse, Sweep, Reproduce)}


def serve(folder: Path) -> str:
    """The address of a server of this folder's files, in a process of its own that ends with this one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = (folder / self.path.lstrip("/")).read_bytes()
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            self.wfile.write(content[start:])

        def log_message(self, *_: object) -> None:
            """Nothing: it would be in the way."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    parent = os.getpid()
    if os.fork() == 0:
        try:
            server.timeout = 1.0
            while os.getppid() == parent:
                server.handle_request()
        finally:
            os._exit(0)
    server.server_close()
    return f"http://127.0.0.1:{server.server_port}"


def _noise(seed: int, length: int) -> bytes:
    return b"".join(hashlib.sha256(f"{seed} {block}".encode()).digest() for block in range(length // 32 + 1))[:length]


# --- what a file says, whenever it was written --------------------------------------------------------------------------


def _digest(path: Path, home: Path) -> str:
    content = path.read_bytes().replace(str(home).encode(), b"HOME")
    if path.suffix == ".pt":
        content = _state_bytes(path.read_bytes())
    elif path.suffix == ".sha256":  # of a checkpoint, which holds the clock; it is checked when that is read
        content = b""
    elif path.suffix in (".json", ".jsonl"):
        lines = content.decode().splitlines() if path.suffix == ".jsonl" else [content.decode()]
        content = json.dumps([_without_clocks(json.loads(line)) for line in lines]).encode()
    return hashlib.sha256(content).hexdigest()


def _without_clocks(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _without_clocks(value) for name, value in data.items() if name not in CLOCKS}
    return [_without_clocks(value) for value in data] if isinstance(data, list) else data


def _state_bytes(content: bytes) -> bytes:
    """Every number of a checkpoint but its clock, and the metrics of its own, which hold one."""
    import torch

    state = torch.load(io.BytesIO(content), weights_only=True)
    for name in ("seconds", "metrics", "metrics_length"):
        state.pop(name)
    return repr(_plain(state)).encode()


def _plain(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return (
            str(value.dtype),
            tuple(value.shape),
            hashlib.sha256(value.contiguous().view(torch.uint8).numpy().tobytes() if value.numel() else b"").hexdigest(),
        )
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in sorted(value.items(), key=lambda item: str(item[0]))}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
