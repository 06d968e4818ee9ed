"""Lines of metrics.jsonl, and the same numbers for TensorBoard where asked."""

from collections.abc import Mapping
from typing import Any

from continua.errors import ConfigError
from continua.train.run import Run


class Journal:
    """Writes on the first rank only."""

    def __init__(self, run: Run, writes: bool, tensorboard: bool = False) -> None:
        self.run, self.writes = run, writes
        self._open_board: Any = _board_opener() if tensorboard and writes else None
        self._board: Any = None

    def line(self, line: Mapping[str, Any]) -> None:
        """The numbers of an epoch."""
        if not self.writes:
            return
        self.run.append(line)
        if self._open_board is not None:
            # Opened with the first line: what an interrupted training wrote from this epoch on is then hidden, not shown twice.
            self._board = self._board or self._open_board(str(self.run.folder / "tensorboard"), purge_step=line["epoch"])
            for name, value in _scalars(line):
                self._board.add_scalar(name, value, line["epoch"])
            self._board.flush()

    def event(self, event: str, epoch: int, batch: int, **details: Any) -> None:
        """Something worth knowing between epochs."""
        if self.writes:
            self.run.append({"event": event, "epoch": epoch, "batch": batch, **details})
            self.run.log(f"{event}: epoch {epoch}, batch {batch}: {details.get('diagnosis', '')}")


def _board_opener() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError("--tensorboard needs the package tensorboard: pip install 'continua[tensorboard]'") from None
    return SummaryWriter


def _scalars(line: Mapping[str, Any], prefix: str = "") -> "list[tuple[str, float]]":
    found: list[tuple[str, float]] = []
    for name, value in line.items():
        if isinstance(value, bool | str) or value is None:
            continue
        if isinstance(value, int | float):
            found.append((f"{prefix}{name}", value))
        else:
            items = value if isinstance(value, Mapping) else dict(enumerate(value))
            found += _scalars({str(key): item for key, item in items.items()}, f"{prefix}{name}/")
    return found
