"""Text files from anyone: whatever is in them, the answer is their data or one error that names them, soon."""

import time
from pathlib import Path

import pytest

from continua.errors import ConfigError
from continua.options import text_value
from continua.reading import UnreadableFile, parse_json, parse_yaml, read_json_lines, read_json_object, read_yaml_file

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
MERGED = "b0: &b0 {x: 1}\n" + "".join(f"b{n}: &b{n}\n  <<: [{', '.join([f'*b{n - 1}'] * 9)}]\n" for n in range(1, 12))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1000 + "]" * 1000,
        "a:\n" + "".join("  " * depth + "- \n" for depth in range(1, 200)) + "  " * 200 + "- 1",
        "a: &a [*a]",
        "a: " + "9" * 1_000_000,
        "a: 0x" + "f" * 10_000,
        "a: " + ":".join(["59"] * 5_000),
        BOMB,
        MERGED,
        "a: 2001-99-99",
        "a: !!int ''",
        "a: !!bool 1",
        "a: !!float x",
        "a: !!timestamp x",
        "? [a]\n: 1",
        "a: [",
        "!!python/object:os.system {}",
        "\x00",
    ],
    ids=lambda text: text[:12],
)
def test_yaml_that_would_hurt_is_refused_at_once(text: str) -> None:
    begun = time.monotonic()
    with pytest.raises(UnreadableFile, match="cannot be read"):
        parse_yaml(text, "recipe.yaml")
    assert time.monotonic() - begun < 60, "it does not go on without end"


def test_yaml_that_people_write_is_read_as_before() -> None:
    text = "base: &base {lr: 1e-4, kind: sgd}\none: {<<: *base, lr: 0.1}\nwhen: 2020-01-02\nbig: 123456789012345678901234567890\nx: 0x1f\n"
    read = parse_yaml(text)
    assert read["one"] == {"lr": 0.1, "kind": "sgd"}
    assert read["base"]["lr"] == 1e-4
    assert (read["big"], read["x"]) == (123456789012345678901234567890, 31)
    assert text_value("{method: rk4, steps: 2}") == {"method": "rk4", "steps": 2}


@pytest.mark.parametrize("text", ["[" * 3000 + "]" * 3000, "[" * 60 + "]" * 60, "9" * 5000, '{"a": ', "", "\x00\x00", "nul"])
def test_json_that_is_damaged_or_too_deep_is_refused(text: str) -> None:
    with pytest.raises(UnreadableFile, match=r"a\.json cannot be read"):
        parse_json(text, "a.json")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("name: café".encode("latin-1"), "not UTF-8"),
        ("name: café".encode("utf-16"), "UTF-16; save it as UTF-8"),
        (b"a: 1\n" + b"#" * 300_000, "CONTINUA_MAX_YAML"),
    ],
)
def test_files_of_other_encodings_or_too_large_are_named_with_what_to_do(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=rf"r\.yaml cannot be read.*{said}"):
        read_yaml_file(path)


def test_an_object_is_expected_where_one_is_needed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(UnreadableFile, match="holds a list, expected an object"):
        read_json_object(tmp_path / "a.json")


def test_a_last_line_that_is_torn_is_left_out_and_a_damaged_one_before_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n{"a": 3, "\xff')
    assert read_json_lines(path) == [{"a": 1}, {"a": 2}]
    path.write_bytes(b'{"a": 1}\n\x00\x00\x00\n{"a": 3}\n')
    with pytest.raises(UnreadableFile, match=r"m\.jsonl, line 2 cannot be read"):
        read_json_lines(path)
