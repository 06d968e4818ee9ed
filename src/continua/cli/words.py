"""How options are spelt: `--data-dir` and `--data_dir` are the same."""


def spellings(name: str) -> list[str]:
    """The spellings of an option, with underscores and with dashes."""
    dashed = name.replace("_", "-")
    return [f"--{name}"] if dashed == name else [f"--{name}", f"--{dashed}"]


def underscored(word: str) -> str:
    """A word of the command line with the dashes of an option's name as underscores."""
    name, equals, value = word.partition("=")
    return name[:2] + name[2:].replace("-", "_") + equals + value if word.startswith("--") else word
