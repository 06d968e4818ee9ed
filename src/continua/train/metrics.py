"""What is written and shown about a training: sums of an epoch, lines of metrics.jsonl (and of trackers), a bar or lines for people."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import nn

from continua.errors import ConfigError
from continua.files import Json
from continua.runs import Run
from continua.train.step import StepResult
from continua.train.trackers import Tracker, Tracking, trackers_of

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


@dataclass
class EpochSums:
    """What has been seen of the epoch so far, over all ranks; in every checkpoint, so that a resumed epoch reports the same numbers."""

    images: int = 0
    loss: float = 0.0
    correct: float = 0.0
    penalty: float = 0.0
    batches: int = 0
    skipped: int = 0
    gradient_norm: float = 0.0
    nfe: list[float] = field(default_factory=list)
    nfe_backward: list[float] = field(default_factory=list)
    rejected: list[float] = field(default_factory=list)

    def add(self, result: StepResult) -> None:
        """A batch that went well."""
        self.images, self.batches = self.images + result.images, self.batches + 1
        self.loss, self.correct, self.penalty = self.loss + result.total, self.correct + result.correct, self.penalty + result.penalty
        self.gradient_norm += result.gradient_norm
        self.nfe_backward = _added(self.nfe_backward, result.nfe_backward)
        self.nfe, self.rejected = _added(self.nfe, result.nfe), _added(self.rejected, result.rejected)

    def mean(self, total: float) -> float | None:
        """Over images."""
        return total / self.images if self.images else None

    def per_batch(self, totals: Sequence[float]) -> list[float]:
        """Costs as they are shown: the mean over batches that went well."""
        return [round(total / max(1, self.batches), 3) for total in totals]


def _added(totals: Sequence[float], costs: Sequence[float]) -> list[float]:
    return [total + cost for total, cost in zip(totals or [0.0] * len(costs), costs, strict=True)]


class Journal:
    """Lines of metrics.jsonl, and the same numbers for trackers where asked. Writes on the first rank only."""

    def __init__(self, run: Run, writes: bool, track: "str | Sequence[str | Tracker]" = ()) -> None:
        self.run, self.writes = run, writes
        self._tracking = Tracking(run, trackers_of(track) if writes else [])

    def line(self, line: Json) -> None:
        """The numbers of an epoch."""
        if self.writes:
            self.run.append(line)
            self._tracking.log(line)

    def event(self, event: str, epoch: int, batch: int, **details: object) -> None:
        """Something worth knowing between epochs."""
        if self.writes:
            self.run.append({"event": event, "epoch": epoch, "batch": batch, **details})
            self.run.log(f"{event}: epoch {epoch}, batch {batch}: {details.get('diagnosis', '')}")

    def close(self, result: Json | None) -> None:
        """The training has ended, with this result or before it had one."""
        self._tracking.finish(result)


BEAT = 4.0  # seconds after which lines say how far a training is, also within an epoch
SPARSER = 0.02  # or this share of the time it has taken: the log of a long training stays short


def remarks(net: nn.Module) -> list[str]:
    """What a person should know of a network before it trains: a norm of single channels takes from the head what it reads.

    The head takes the mean of each channel over its map, and such a norm has made them all alike. Who asked for "channels" knows.
    """
    norm = getattr(getattr(net, "head", None), "norm", None)
    wanted = getattr(getattr(net, "options", None), "norm_groups", None) == "channels"
    if wanted or not isinstance(norm, nn.GroupNorm) or norm.num_groups < max(2, norm.num_channels):
        return []
    return [
        f"the norm before the classifier has {norm.num_groups} groups of one channel each, so the mean over a map tells little: "
        f"such a network hardly learns. Fewer groups help: --model-options.norm_groups {max(1, norm.num_groups // 4)}"
    ]


class Progress:
    """What a person sees while a network trains. `kind`: auto (a bar where stderr is a terminal, else lines), bar, lines or off."""

    def __init__(self, kind: str, epochs: int, batches: int, done: int = 0, remarks: Sequence[str] = ()) -> None:
        if kind not in ("auto", "bar", "lines", "off"):
            raise ConfigError(f"progress is {kind!r}; expected auto, bar, lines or off")
        self.kind = ("bar" if sys.stderr.isatty() else "lines") if kind == "auto" else kind
        self.epochs, self.batches, self.remarks = epochs, batches, remarks
        self.started, self.before, self.done = time.monotonic(), done, done
        self.said = self.started
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> "Progress":
        for remark in self.remarks if self.kind != "off" else ():
            print(f"note: {remark}", file=sys.stderr, flush=True)
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
        if self.kind == "lines":  # what comes before, imports and the like, takes seconds
            print(f"training begins: {self.batches} batches in each epoch", file=sys.stderr, flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, epoch: int, loss: float, accuracy: float | None, nfe: list[float]) -> None:
        """After every batch."""
        self.done += 1
        if self._bar is not None and self._task is not None:
            parts = [f"loss {loss:.4g}", *([f"train {accuracy:.1%}"] if accuracy is not None else [])]
            parts += [f"NFE {'/'.join(f'{n:.0f}' for n in nfe)}"] if any(nfe) else []
            self._bar.update(self._task, completed=self.done, description=f"epoch {epoch + 1}/{self.epochs}", now="  ".join(parts))

        now = time.monotonic()
        if self.kind == "lines" and now - self.said > max(BEAT, SPARSER * (now - self.started)):
            self.said = now
            share = (self.done - 1) % self.batches + 1
            print(f"epoch {epoch + 1}/{self.epochs}  batch {share}/{self.batches}  loss {loss:.4g}", file=sys.stderr, flush=True)

    def epoch(self, line: Json) -> None:
        """After every epoch."""
        self.said = time.monotonic()
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
