"""Ranks watch one another: one that gives no sign is named and ended, so that the others need not wait for it until their patience ends.

A rank that is killed closes its connections, and the others hear of it at once. One that is stopped (SIGSTOP, a hanging driver) keeps them
open, and a sum over ranks then waits for `rank_timeout`, as it must for a rank that is merely slow. So a thread of each rank counts up a
number in the store by which torchrun's ranks know one another, and looks at those of the others. A rank that computes goes on counting.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from continua.errors import ContinuaError

if TYPE_CHECKING:
    from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage] - public, as its documentation says

EVERY = 0.5  # seconds between two signs
SILENCE = 6.0  # seconds of our own looking without a sign: with torchrun's own clearing up the whole ends within 20
GONE = "gone"


class RankWatch:
    """Gives this rank's signs, and looks for those of the others, until it is closed."""

    def __init__(self, rank: int, ranks: int, store: "Store") -> None:
        self.rank, self.others, self.store = rank, [other for other in range(ranks) if other != rank], store
        self.looks_without_sign = dict.fromkeys(self.others, 0)
        self.last_sign: dict[int, str] = {}
        self.lost: str | None = None  # what is said about a rank that was lost
        self._count = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="rank watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """This rank leaves in order."""
        self._over.set()
        self._thread.join(2 * SILENCE)
        with suppress(Exception):  # the store may have gone with another rank
            self.store.set(_key(self.rank), GONE)

    def _go_on(self) -> None:
        # Counted in looks, not by the clock: where the whole machine was halted nobody has been silent.
        while not self._over.wait(EVERY):
            try:
                self.look()
            except Exception:  # the store has gone, and with it the rank or torchrun that held it: the sums will say so
                return

    def look(self) -> None:
        """Give a sign, and see who has given one since the last look."""
        self._count += 1
        self.store.set(_key(self.rank), f"{self._count} {os.getpid()} {socket.gethostname()}")
        for other in self.others:
            if not self.store.check([_key(other)]):
                continue  # not yet there: it imports PyTorch
            sign = self.store.get(_key(other)).decode()
            fresh = sign == GONE or sign != self.last_sign.get(other)
            self.looks_without_sign[other] = 0 if fresh else self.looks_without_sign[other] + 1
            self.last_sign[other] = sign
            if self.looks_without_sign[other] * EVERY > SILENCE and self.lost is None:
                self._give_up(other, *sign.split()[1:])

    def _give_up(self, other: int, process: str, host: str) -> None:
        self.lost = (
            f"rank {other} (process {process} on {host}) has given no sign for {SILENCE:g} s: it was stopped or hangs; "
            "what is saved stays, go on with --resume (the number of ranks may differ)"
        )
        if host == socket.gethostname():
            with suppress(OSError):
                os.kill(int(process), signal.SIGKILL)  # its connections close, and whoever waits for it hears so
        else:  # nobody here can end it, and the sum that waits for it cannot be called back
            print(f"continua: {self.lost}", file=sys.stderr, flush=True)
            os._exit(1)


def _key(rank: int) -> str:
    return f"continua/sign/{rank}"


@contextmanager
def watched_ranks(rank: int, ranks: int) -> Iterator[None]:
    """Around a training among several ranks. An error that a lost rank caused names it."""
    if ranks == 1:
        yield
        return
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    # A connection of its own: on the one of the process group other threads may be waiting.
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    watch = RankWatch(rank, ranks, TCPStore(address, port, is_master=False, timeout=timedelta(seconds=SILENCE)))
    watch.start()
    try:
        yield
    except RuntimeError as error:
        if watch.lost is None:
            raise
        raise ContinuaError(watch.lost) from error
    finally:
        watch.close()
