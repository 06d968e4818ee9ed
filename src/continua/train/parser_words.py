"""What the parser of options and recipes says about a wrong value, in words of people."""

import re

TYPES = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "tuple": "a list, such as [1, 2]"}
TYPES |= {"dict": "options by name, such as {a: 1}", "list": TYPES["tuple"]}
KEY = r'"(?:recipe\.)?(?P<key>[^"]+)": '
ONE = re.compile(KEY + r"(?P<errors>Expected an? .*)\. Got value: (?P<value>.*)")
SEVERAL = re.compile(KEY + r"Does not validate against any of .* Errors: (?P<errors>.*) Given value type: .* Given value: (?P<value>.*)")
KIND = re.compile(r"Expected an? (?:typing\.Literal\[(?P<choices>[^]]*)\]|(?:<class ')?(?P<type>[\w.]+))")
REQUIRED = re.compile(r"the following arguments are required: (?P<command>[\w.]+)\.(?P<name>\w+)")
COMMAND = re.compile(r'expected "(?P<command>[\w.]+)\.command" to be one of \{(?P<choices>[^}]*)\}')
UNKNOWN = re.compile(r"unrecognized arguments: (?P<words>.*)")


def parser_words(text: str) -> str:
    """One line: what was given, what was expected. What is not recognised stays as it was, without types and keys of Python."""
    line = " ".join(text.split()).replace("Parser key ", "")
    if found := ONE.fullmatch(line) or SEVERAL.fullmatch(line):
        kinds = [words for kind in KIND.finditer(found["errors"]) if (words := _kind(kind)) is not None]
        if kinds:
            return f"{found['key']} is {found['value']!r}; expected {' or '.join(dict.fromkeys(kinds))}"
    if found := REQUIRED.fullmatch(line):
        command = found["command"].replace(".", " ")
        return f"continua {command}: {found['name'].upper()} is required; continua {command} --help says what it is"
    if found := COMMAND.match(line):
        return f"continua {found['command'].replace('.', ' ')} is followed by one of {found['choices'].replace(',', ', ')}"
    if found := UNKNOWN.fullmatch(line):
        return f"{found['words']} is not known here; --help shows what is"
    return re.sub(r"<class '(\w+)'>", r"\1", line)


def _kind(kind: "re.Match[str]") -> str | None:
    if kind["choices"] is not None:
        return " or ".join(choice.strip().strip("'") for choice in kind["choices"].split(","))
    return None if kind["type"] == "NoneType" else TYPES.get(kind["type"], f"a {kind['type']}")
