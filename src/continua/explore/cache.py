"""The last answers, by their question: what a page asks again after every click is computed once."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class Answers:
    """Keeps the answers that were asked for last: at most so many, and so many bytes of arrays in them.

    Several pages may ask at once; the same question is then answered by each.
    """

    def __init__(self, most: int = 256, most_bytes: int = 512 << 20) -> None:
        self.most, self.most_bytes = most, most_bytes
        self._known: OrderedDict[Hashable, Any] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def __call__(self, question: Hashable, make: Callable[[], T]) -> T:
        """The answer that is known, or what `make` gives; an error is not kept."""
        with self._lock:
            if question in self._known:
                self._known.move_to_end(question)
                return self._known[question]
        answer = make()
        with self._lock:
            self._bytes += size_of(answer) - size_of(self._known.get(question))
            self._known[question] = answer
            while len(self._known) > self.most or (self._bytes > self.most_bytes and len(self._known) > 1):
                self._bytes -= size_of(self._known.popitem(last=False)[1])
        return answer


def size_of(answer: Any) -> int:
    """Bytes of the arrays that an answer holds."""
    return sum(getattr(value, "nbytes", 0) for value in getattr(answer, "__dict__", {}).values())
