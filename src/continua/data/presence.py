"""Is a data set here, where, and how much room does it take?"""

import os
from dataclasses import dataclass
from pathlib import Path

from continua.data.catalogue import Known
from continua.data.sources import REMOTES


@dataclass(frozen=True)
class Presence:
    """`state` is "embedded", "yes", "no", or "lacks …" with what is not there; sizes are in bytes, None where not known."""

    state: str
    folder: Path | None
    size: int | None
    download: int | None

    def where(self, root: Path) -> str:
        """One phrase for a table: the folder as it reads below `root`, and what is wrong with it."""
        if self.folder is None or self.state == "embedded":
            return self.state
        below = self.folder.relative_to(root)
        return str(below) if self.state == "yes" else f"{below} ({self.state})"


def data_presence(known: Known, root: Path) -> Presence:
    """What of a set is below `root`, judged by names alone: `check` looks inside."""
    folder = known.locate(root)
    layouts = REMOTES.get(known.name)
    if layouts is None:
        return Presence("embedded", folder, sum(path.stat().st_size for path in known.official_files(folder)) if folder else None, None)
    sizes = [remote.size for remote in next(iter(layouts.values()))]
    download = None if None in sizes else sum(size for size in sizes if size is not None)
    if folder is None:
        return Presence("no", None, None, download)
    missing = known.missing(folder)
    return Presence(f"lacks {', '.join(missing)}" if missing else "yes", folder, _size(folder), download)


def _size(folder: Path) -> int:
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            total += _size(Path(entry.path)) if entry.is_dir(follow_symlinks=False) else entry.stat(follow_symlinks=False).st_size
    return total
