"""Answers that are computed once, and beside the page: a quick one is there at once, a slow one leaves the page usable and can be stopped.

A question is computed in a thread of its own. Whoever asks waits for a moment; if the answer is not there by then, `Pending` is raised with
the job, and the page shows how long it has taken and a button that stops it. A job that nobody looks at any more stops by itself.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Event, Lock, Thread
from typing import Any, TypeVar

from torch.overrides import TorchFunctionMode

T = TypeVar("T")

PATIENCE = 0.4
"""Seconds that a page waits before it says that it is computing."""
ABANDONED = 20.0
"""Seconds without anybody looking at a job after which it stops."""


class Stopped(BaseException):
    """Raised inside a job that is to end. Not an `Exception`: what a computation catches, it must not catch."""


class Job:
    """One computation on its way."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self.begun = self.looked_at = time.monotonic()
        self.operations = 0
        self.stopped = self.abandoned = False
        self.answer: Any = None
        self.error: Exception | None = None
        self.ended = Event()
        Thread(target=self._run, daemon=True, name="explorer-answer").start()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def look(self) -> None:
        """Somebody still wants it."""
        self.looked_at = time.monotonic()

    def stop(self) -> None:
        """End it at the next operation."""
        self.stopped = True

    def check(self) -> None:
        """Called before every operation on tensors."""
        self.operations += 1
        self.abandoned = self.abandoned or time.monotonic() - self.looked_at > ABANDONED
        if self.stopped or self.abandoned:
            raise Stopped

    def _run(self) -> None:
        try:
            with _Checked(self):
                self.answer = self.make()
        except Stopped:
            pass
        except Exception as error:  # handed to whoever asked
            self.error = error
        finally:
            self.ended.set()


class _Checked(TorchFunctionMode):
    """Lets a job stop between any two operations of PyTorch in its thread."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        self.job.check()
        return func(*args, **(kwargs or {}))


class Pending(Exception):
    """The answer is not there yet, or its computation was stopped; `job` says which."""

    def __init__(self, job: Job, forget: Callable[[], None]) -> None:
        super().__init__("this is still being computed")
        self.job, self.forget = job, forget


class Answers:
    """Keeps the answers that were asked for last: at most so many, and so many bytes of arrays in them. Several pages may ask at once."""

    def __init__(self, most: int = 256, most_bytes: int = 512 << 20, patience: float | None = None) -> None:
        self.most, self.most_bytes, self.patience = most, most_bytes, patience
        self._known: OrderedDict[Hashable, Any] = OrderedDict()
        self._jobs: dict[Hashable, Job] = {}
        self._bytes = 0
        self._lock = Lock()

    def __call__(self, question: Hashable, make: Callable[[], T]) -> T:
        """The answer that is known, or what `make` gives; an error is not kept. `Pending` where it takes longer than a page may."""
        with self._lock:
            if question in self._known:
                self._known.move_to_end(question)
                return self._known[question]
            job = self._jobs.get(question)
            if job is None or job.abandoned:
                job = self._jobs[question] = Job(make)
        job.look()
        if job.stopped or not job.ended.wait(PATIENCE if self.patience is None else self.patience):
            raise Pending(job, lambda: self._forget(question))
        if job.stopped or job.abandoned:
            raise Pending(job, lambda: self._forget(question))
        self._forget(question)
        if job.error is not None:
            raise job.error
        self._keep(question, job.answer)
        return job.answer

    def _forget(self, question: Hashable) -> None:
        with self._lock:
            self._jobs.pop(question, None)

    def _keep(self, question: Hashable, answer: Any) -> None:
        with self._lock:
            self._bytes += size_of(answer) - size_of(self._known.get(question))
            self._known[question] = answer
            while len(self._known) > self.most or (self._bytes > self.most_bytes and len(self._known) > 1):
                self._bytes -= size_of(self._known.popitem(last=False)[1])


def size_of(answer: Any) -> int:
    """Bytes of the arrays that an answer holds."""
    return sum(getattr(value, "nbytes", 0) for value in getattr(answer, "__dict__", {}).values())
