"""Lines of metrics.jsonl, and the same numbers for TensorBoard where asked."""

from collections.abc import Mapping
from typing import Any

from continua.errors import ConfigError
from continua.train.run import Run


class Journal:
    """Writes on the first rank only."""

    def __init__(self, run: Run, writes: bool, tensorboard: bool = False) -> None:
        self.run, self.writes = run, writes
        self._board: Any = None
        if tensorboard and writes:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise ConfigError("--tensorboard needs the package tensorboard: pip install tensorboard") from None
            self._board = SummaryWriter(str(run.folder / "tensorboard"))

    def line(self, line: Mapping[str, Any]) -> None:
        """The numbers of an epoch."""
        if not self.writes:
            return
        self.run.append(line)
        if self._board is not None:
            for name, value in _scalars(line):
                self._board.add_scalar(name, value, line["epoch"])
            self._board.flush()

    def event(self, event: str, epoch: int, batch: int, **details: Any) -> None:
        """Something worth knowing between epochs."""
        if self.writes:
            self.run.append({"event": event, "epoch": epoch, "batch": batch, **details})
            self.run.log(f"{event}: epoch {epoch}, batch {batch}: {details.get('diagnosis', '')}")


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
