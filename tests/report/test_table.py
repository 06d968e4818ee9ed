"""Tables keep what they are told, in a pipe as on a terminal."""

import pytest

from continua.report import show_table, size_text


def test_every_cell_is_there_and_numbers_are_grouped(capsys: pytest.CaptureFixture[str]) -> None:
    long = "/a/long/folder/name" * 5
    show_table("a title [not markup]", ("name", "count", "where"), [("cat", 12345, long), ("[bold]dog", 7, "")], text=(0, 2))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a title [not markup]"
    assert lines[1].split() == ["name", "count", "where"]
    assert lines[3].split() == ["cat", "12,345", long]
    assert lines[4].split() == ["[bold]dog", "7"]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (170_498_071, "170 MB"),
        (57_500, "57.5 kB"),
        (1_228_800_000, "1.2 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_sizes_read_as_people_say_them(size: int, text: str) -> None:
    assert size_text(size) == text
