"""Where data sets live: the folder asked for, else `CONTINUA_DATA`, else the user's cache folder."""

import os
from pathlib import Path


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder that holds all data sets, each in its official sub-folder. It need not exist yet."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if configured := os.environ.get("CONTINUA_DATA"):
        return Path(configured).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("continua", appauthor=False) / "data"
