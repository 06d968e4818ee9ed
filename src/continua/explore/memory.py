"""The last answers, by their question: what a page asks again after every click is computed once."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class Answers:
    """Keeps the `most` answers that were asked for last. Several pages may ask at once; the same question is then answered by each."""

    def __init__(self, most: int = 256) -> None:
        self.most = most
        self._known: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = Lock()

    def __call__(self, question: Hashable, make: Callable[[], T]) -> T:
        """The answer that is known, or what `make` gives; an error is not kept."""
        with self._lock:
            if question in self._known:
                self._known.move_to_end(question)
                return self._known[question]
        found = make()
        with self._lock:
            self._known[question] = found
            while len(self._known) > self.most:
                self._known.popitem(last=False)
        return found
