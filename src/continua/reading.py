"""JSON, lines of JSON and YAML from anyone: one reader for all of them, with bounds, and one error for whatever is wrong with a file.

A file may be torn by a power cut, zeroed, of another kind than its name says, or made to hurt: nested a thousand deep, a number of a
million digits, a few YAML aliases that stand for a billion values. Each of these is an `UnreadableFile` that names the file.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any

from continua.errors import ConfigError
from continua.files import ForeignFile, Json, read_below
from continua.limits import JSON_BYTES, YAML_BYTES, Limit

DEPTH = 50  # mappings and lists within each other; ours have fewer than ten
VALUES = 20_000  # of a YAML file, aliases counted as what they stand for
ALIASES = 200
DIGITS = 300  # of a whole number: more than a float can hold
LEAVES = frozenset((str, int, float, bool, NoneType))  # what holds nothing else: nearly all of a file


class UnreadableFile(ConfigError):
    """A file that is not what its name says, is damaged, or asks for too much; the message names it and says what to do."""


def read_json(path: Path, root: Path | None = None, advice: str = "") -> Any:
    """What a JSON file holds. `root`: the folder below which no link is followed; `advice`: what to do where it cannot be read."""
    return parse_json(read_utf8(path, JSON_BYTES, root, advice), path, advice)


def read_json_object(path: Path, root: Path | None = None, advice: str = "") -> Json:
    """What a JSON file holds, which must be an object."""
    data = read_json(path, root, advice)
    if not isinstance(data, dict):
        raise unreadable(path, f"it holds {_kind(data)}, expected an object ({{…}})", advice)
    return data


def read_json_lines(path: Path, root: Path | None = None, advice: str = "") -> list[Json]:
    """The objects in a file, one on each line. A last line without its end is left out: it is being written, or its writer was killed."""
    lines = read_utf8(path, JSON_BYTES, root, advice, cut=True).split("\n")
    parsed = []
    for number, line in enumerate(lines[:-1], 1):
        where = f"{path}, line {number}"
        data = parse_json(line, where, advice)
        if not isinstance(data, dict):
            raise unreadable(where, f"it holds {_kind(data)}, expected an object ({{…}})", advice)
        parsed.append(data)
    return parsed


def parse_json(text: "str | bytes", where: object, advice: str = "") -> Any:
    """The data in a text of JSON."""
    try:
        data = json.loads(text, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise unreadable(where, f"it is not JSON ({_short(error)})", advice) from None
    return _bounded(data, where, advice)


def parse_yaml(text: str, where: object = "the text", advice: str = "") -> Any:
    """The data in a text of YAML: no objects, 1e-4 a number (YAML 1.1 reads it as text)."""
    import yaml

    try:
        data = yaml.load(text, _loader())
    except UnreadableFile:
        raise
    except yaml.YAMLError as error:
        raise unreadable(where, f"it is not YAML: {_short(error)}", advice) from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        # What PyYAML raises for a date that is none, `!!int ""`, `!!bool 1`, nesting that exhausts Python's stack, ...
        raise unreadable(where, f"it is not YAML that can be read ({type(error).__name__}: {_short(error)})", advice) from None
    return _bounded(data, where, advice, VALUES)


def read_yaml_file(path: Path, root: Path | None = None, advice: str = "") -> Any:
    """What a YAML file holds."""
    return parse_yaml(read_utf8(path, YAML_BYTES, root, advice), path, advice)


def read_utf8(path: Path, limit: Limit, root: Path | None = None, advice: str = "", *, cut: bool = False) -> str:
    """The text of a file of at most `limit` bytes; of one that may be `cut` off, what is before its last unfinished line."""
    try:
        data = read_below(path, root, limit.value + 1)
    except OSError as error:
        raise unreadable(path, f"{error.strerror or error}", advice) from None
    except ForeignFile as error:
        raise UnreadableFile(str(error)) from None
    if limit.exceeded(len(data)):
        raise unreadable(path, f"it has more than {limit.value:,} bytes; {limit.advice()}", advice)
    if cut:
        data = data[: data.rfind(b"\n") + 1]
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        other = "UTF-16; save it as UTF-8" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "another encoding or no text at all"
        raise unreadable(path, f"it is not UTF-8 (byte {error.start} is {data[error.start]:#04x}): {other}", advice) from None


def unreadable(where: object, why: str, advice: str = "") -> UnreadableFile:
    """The error for a file: what is wrong with it, and what to do."""
    return UnreadableFile(f"{where} cannot be read: {why}" + (f"; {advice}" if advice else ""))


def _bounded(data: Any, where: object, advice: str, values: int | None = None) -> Any:
    """Refuse what is nested too deep, or too much; without calling itself, as the data decide how deep that would go."""
    waiting, seen = [(data, 0)], 1
    while waiting:
        value, depth = waiting.pop()
        if depth > DEPTH:
            raise unreadable(where, f"its lists and mappings are nested more than {DEPTH} deep, or hold themselves", advice)
        if isinstance(value, Mapping):
            inside = [*value.keys(), *value.values()]
        else:
            inside = list(value) if isinstance(value, list | tuple | set) else []
        seen += len(inside)
        if values is not None and seen > values:
            raise unreadable(where, f"it holds more than {values:,} values, aliases counted as what they stand for", advice)
        waiting += [(item, depth + 1) for item in inside if type(item) not in LEAVES]
    return data


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"a whole number of {len(digits):,} digits")
    return int(digits)


@cache
def _loader() -> type:
    """YAML without objects, with bounds where the data could make the loader itself work without end."""
    import yaml
    from yaml.constructor import ConstructorError

    class Loader(yaml.SafeLoader):
        aliases = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                self.aliases += 1
                if self.aliases > ALIASES:
                    raise ConstructorError(None, None, f"more than {ALIASES} aliases", self.peek_event().start_mark)
            return super().compose_node(parent, index)

        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            if len(node.value) > VALUES:  # `<<: [*a, *a]`, of mappings that do the same
                raise ConstructorError(None, None, "merged mappings that are too long", node.start_mark)

        def construct_yaml_int(self, node: Any) -> int:
            if len(node.value) > DIGITS:  # also 0x… and 1:2:3…, which Python does not bound
                raise ConstructorError(None, None, f"a whole number of {len(node.value):,} digits", node.start_mark)
            return super().construct_yaml_int(node)

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+0123456789."))
    return Loader


def _kind(value: object) -> str:
    names = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number", type(None): "nothing"}
    return names.get(type(value), type(value).__name__)


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:300] + " …"
