"""Which analyses there are. Their names and summaries are read from the files, so that help answers without importing any of them."""

import ast
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from continua.analysis.question import Question
from continua.errors import ConfigError


def known_questions() -> dict[str, str]:
    """Name and one line of every analysis: the files of this room that set QUESTION, and the first line of their docstrings."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_text("utf-8")
        if "\nQUESTION = " in text:
            found[path.stem] = (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]
    return found


def find_question(name: str) -> Question:
    """The analysis of this name, or an error that suggests the nearest."""
    names = list(known_questions())
    if name not in names:
        near = get_close_matches(name.lower().replace("-", "_"), names, n=1, cutoff=0.5)
        raise ConfigError(f"there is no analysis {name!r}; {f'did you mean {near[0]}?' if near else 'known: ' + ', '.join(names)}")
    return import_module(f"continua.analysis.{name}").QUESTION
