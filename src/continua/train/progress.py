"""What a person sees while a network trains: a bar on a terminal, one line per epoch elsewhere."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from continua.errors import ConfigError


class Progress:
    """`kind`: auto (a bar where stderr is a terminal, else lines), bar, lines or off."""

    def __init__(self, kind: str, epochs: int, batches: int, done: int = 0) -> None:
        if kind not in ("auto", "bar", "lines", "off"):
            raise ConfigError(f"progress is {kind!r}; expected auto, bar, lines or off")
        self.kind = ("bar" if sys.stderr.isatty() else "lines") if kind == "auto" else kind
        self.epochs, self.batches = epochs, batches
        self.started, self.before, self.done = time.monotonic(), done, done
        self._bar: Any = None

    def __enter__(self) -> "Progress":
        if self.kind == "bar":
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[now]}"),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), refresh_per_second=4)
            self._bar.start()
            self._task = self._bar.add_task("training", total=self.epochs * self.batches, completed=self.done, now="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, epoch: int, loss: float, accuracy: float | None, nfe: list[float]) -> None:
        """After every batch."""
        self.done += 1
        if self._bar is not None:
            parts = [f"loss {loss:.4g}", *([f"train {accuracy:.1%}"] if accuracy is not None else [])]
            parts += [f"NFE {'/'.join(f'{n:.0f}' for n in nfe)}"] if any(nfe) else []
            self._bar.update(self._task, completed=self.done, description=f"epoch {epoch + 1}/{self.epochs}", now="  ".join(parts))

    def epoch(self, line: Mapping[str, Any]) -> None:
        """After every epoch."""
        if self.kind == "off":
            return
        shares = [(name, line.get(f"{name}_accuracy")) for name in ("train", "holdout", "test")]
        parts = [f"epoch {line['epoch']}/{self.epochs}", f"loss {line['loss']:.4g}" if line["loss"] is not None else "no loss"]
        parts += [f"{name} {share:.2%}" for name, share in shares if share is not None]
        parts += [f"NFE {'/'.join(f'{n:.0f}' for n in line['nfe'])}"] if any(line["nfe"]) else []
        parts += [f"{line['skipped']} skipped"] if line["skipped"] else []
        parts += [f"{line['images_per_second']:.0f} images/s", f"{self._left()} left"]
        text = "  ".join(parts)
        if self._bar is not None:
            self._bar.console.print(text, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def _left(self) -> str:
        share = (self.done - self.before) / max(1, self.epochs * self.batches - self.before)
        seconds = (time.monotonic() - self.started) * (1 - share) / share if share else 0.0
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
