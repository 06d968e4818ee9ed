"""Published training set-ups as YAML, one file each."""

__all__: list[str] = []
