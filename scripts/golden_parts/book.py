"""A book of named values: plain ones as they are, tensors as checksum, root mean square and sample."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import continua

SAMPLE = 2048  # values of a tensor that are kept to measure a difference; its checksum covers all
VOLATILE = ("seconds", "images_per_second", "environment")  # what clock and machine decide


class Book:
    """Named leaves of one part: plain values, and tensors as checksum, root mean square and sample."""

    def __init__(self) -> None:
        self.leaves: dict[str, Any] = {}
        self.samples: dict[str, Tensor] = {}
        self.errors = 0

    def add(self, name: str, value: Any) -> None:
        """A tensor, a plain value, or any nesting of lists and dictionaries of them."""
        if isinstance(value, Tensor):
            self._add_tensor(name, value.detach(), str(value.dtype).removeprefix("torch."))
        elif isinstance(value, Mapping) and value:
            for key, item in value.items():
                if key not in VOLATILE:
                    self.add(f"{name}/{key}", item)
        elif isinstance(value, list | tuple) and value:
            if all(type(item) in (int, float) for item in value):
                self._add_tensor(name, torch.tensor(value, dtype=torch.float64), "numbers")
            else:
                for place, item in enumerate(value):
                    self.add(f"{name}/{place}", item)
        else:
            self.leaves[name] = value if isinstance(value, bool | int | float | None) else str(value)

    def _add_tensor(self, name: str, value: Tensor, kind: str) -> None:
        value = value.cpu().contiguous()
        checksum = hashlib.sha256(value.numpy().tobytes()).hexdigest()
        flat = value.reshape(-1)
        rms = float(flat.double().square().mean().sqrt()) if flat.numel() else 0.0
        self.leaves[name] = {"sha256": checksum, "shape": list(value.shape), "kind": kind, "rms": rms}
        self.samples[name] = flat[:: max(1, -(-flat.numel() // SAMPLE))].clone()

    def numbers(self, name: str) -> Tensor:
        """What is kept of a tensor's values: the sample and the root mean square of all."""
        return torch.cat([self.samples[name].double(), torch.tensor([self.leaves[name]["rms"]], dtype=torch.float64)])

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """What fails is written down as an error, and the rest goes on."""
        try:
            yield
        except Exception as error:
            self.errors += 1
            self.leaves[f"{name}/error"] = f"{type(error).__name__}: {error}"
            print(f"  {name}: {type(error).__name__}: {error}", file=sys.stderr)

    def refusable(self, name: str, compute: Callable[[], Any]) -> None:
        """What a network may refuse to do: its answer, or that it refuses."""
        try:
            self.add(name, compute())
        except continua.ContinuaError:
            self.leaves[name] = "refused"

    def save(self, folder: Path, part: str) -> None:
        (folder / f"{part}.json").write_text(json.dumps(self.leaves, indent=0, ensure_ascii=False) + "\n", "utf-8")
        save_file(self.samples, folder / f"{part}.safetensors")

    @classmethod
    def load(cls, folder: Path, part: str) -> "Book":
        book, path = cls(), folder / f"{part}.json"
        if path.is_file():
            book.leaves = json.loads(path.read_text("utf-8"))
            book.samples = load_file(folder / f"{part}.safetensors")
        return book


def costs(stats: Any) -> dict[str, Any]:
    """The numbers of a `Stats`, and its log of steps where there is one."""
    numbers = ("nfe", "nfe_backward", "accepted", "rejected", "first_step", "last_step", "routes")
    found = {name: getattr(stats, name) for name in numbers}
    if stats.steps is not None:
        found["steps"] = {name: getattr(stats.steps, name) for name in ("t", "h", "error", "accepted")}
    return found
