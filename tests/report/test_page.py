"""Pages: plain data that can be written, read back, drawn and compared."""

import csv
import json
import math
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from continua.errors import ConfigError
from continua.report import (
    PALETTE,
    Axis,
    Column,
    Figure,
    Link,
    Maps,
    Page,
    PlusMinus,
    Series,
    Table,
    colour,
    draw_figure,
    markdown,
    overlaid,
    page_from,
    page_json,
    plotly_figure,
    show_table,
    size_text,
    write_html,
    write_page,
)

X = np.geomspace(1e-3, 5, 7)
CURVES = Figure(
    "curves",
    "Accuracy </script> & more",
    Axis("contrast c", log=True),
    Axis("accuracy", "%", limits=(0, 100)),
    [
        Series("naive", X, 50 + X, error=np.full(7, 2.0), spread="band"),
        Series("scaled", X, 60 + X, error=np.full(7, 1.0), style="both", dashed=True),
        Series("a gap", X[:3], [1.0, math.nan, 3.0]),
    ],
    "A caption.",
)
BARS = Figure("bars", "Bars", Axis("layer"), Axis("σ", "pixels"), [Series("σ", ["stem", "block 1"], [1.0, 2.0], [0.1, 0.2], style="bars")])
STEPS = Figure("steps", "Steps", Axis("σ", "pixels"), Axis("density", "1/pixel"), [Series("σ", [0.5, 1.5], [0.25, 0.75], style="steps")])
TABLE = Table(
    "table", "A table", ["model", Column("accuracy", "%", 2), "images"], [("a|b", PlusMinus(12.345, 0.1), 3000), ("<b>", 88.0, None)]
)
MAPS = Maps("maps", "Maps", ["intact", "masked"], ["t = 0", "t = 1"], np.arange(64.0).reshape(2, 2, 4, 4), "h (no unit)")
PAGE = Page("A page", ["One sentence.", CURVES, TABLE, MAPS], [Page("More", [BARS, STEPS])])


def test_a_page_is_the_same_after_json() -> None:
    again = page_from(json.loads(page_json(PAGE)))
    assert again.parts[2] == TABLE
    assert again.sections == PAGE.sections
    np.testing.assert_array_equal(again.every(Maps)[0].values, MAPS.values)
    read = again.every(Figure)[0]
    assert (read.x, read.y, read.title, read.caption) == (CURVES.x, CURVES.y, CURVES.title, CURVES.caption)
    assert math.isnan(read.series[2].y[1])
    assert read.series[:2] == CURVES.series[:2]
    assert page_json(again) == page_json(page_from(json.loads(page_json(again))))


def test_json_has_no_nan() -> None:
    strange: list[str] = []
    json.loads(page_json(PAGE), parse_constant=strange.append)
    assert strange == []


@pytest.mark.parametrize("figure", [CURVES, BARS, STEPS], ids=lambda figure: figure.name)
def test_plotly_accepts_what_is_given_to_it(figure: Figure) -> None:
    from plotly.graph_objects import Figure as Checked

    made = plotly_figure(figure)
    json.dumps(made, allow_nan=False)
    checked = Checked(made)
    assert checked.layout.xaxis.title.text == figure.x.text
    assert checked.layout.yaxis.title.text == figure.y.text
    named = {trace.name for trace in checked.data if trace.showlegend is not False}
    assert named == {series.name for series in figure.series}


def test_a_log_axis_is_given_its_limits_as_exponents() -> None:
    figure = Figure("f", "F", Axis("c", log=True, limits=(0.01, 10)), Axis("y"), [Series("s", [0.1, 1], [1, 2])])
    assert plotly_figure(figure)["layout"]["xaxis"]["range"] == pytest.approx([-2, 1])


def test_epochs_are_marked_by_whole_numbers_and_a_short_log_axis_by_more_than_powers() -> None:
    def x_axis(axis: Axis, *x: float) -> dict[str, object]:
        return plotly_figure(Figure("f", "F", axis, Axis("y"), [Series("s", x, x)]))["layout"]["xaxis"]

    assert x_axis(Axis("epoch", whole=True), 1, 3)["dtick"] == 1
    assert "dtick" not in x_axis(Axis("epoch", whole=True), 1, 300), "plotly's own ticks are whole over many epochs"
    assert "dtick" not in x_axis(Axis("t"), 0, 1)
    assert x_axis(Axis("c", log=True), 0.1, 1)["ticktext"] == ["0.1", "0.2", "0.5", "1"]
    assert x_axis(Axis("c", log=True), 0.3, 0.7)["ticktext"] == ["0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1"]
    assert not {"tickvals", "dtick"} & set(x_axis(Axis("loss", log=True), 2.31, 2.38)), "plotly marks what no digit does"
    assert x_axis(Axis("n", log=True), 8, 9000)["dtick"] == 1
    sizes = Axis("images", log=True, whole=True)
    assert x_axis(sizes, 8, 52)["tickvals"] == [8, 52], "the numbers that occur"


def test_a_line_of_one_point_is_drawn_with_a_marker() -> None:
    assert Series("s", [1], [2]).style == "both"
    assert Series("s", [1, 2], [2, 3]).style == "line"


def test_dashes_tell_runs_apart_where_colours_repeat() -> None:
    series = [Series(str(place), [1, 2], [place, 1], colour=place, dash=place) for place in range(len(PALETTE) + 1)]
    lines = [trace["line"] for trace in plotly_figure(Figure("f", "F", Axis("x"), Axis("y"), series))["data"]]
    assert lines[0]["color"] == lines[-1]["color"]
    assert len({(line["color"], line["dash"]) for line in lines}) == len(lines)


def test_a_cell_may_lead_to_a_section(tmp_path: Path) -> None:
    table = Table("t", "T", ["study", "verdict"], [[Link("dcn/table1", "A & B"), "agrees"]])
    page = Page("Front", [table], [Page("A & B", ["Here."]), Page("C", ["There."])])
    text = write_html(page, tmp_path / "page.html").read_text("utf-8")
    assert '<td><a href="#a-b">dcn/table1</a></td>' in text
    assert text.count('href="#a-b"') == 1, "what the table leads to is not listed again"
    assert 'href="#c"' in text
    assert page_from(json.loads(page_json(page))).parts[0] == table
    assert "| dcn/table1 | agrees |" in markdown(page)


def test_a_page_is_written_as_text_numbers_and_pictures(tmp_path: Path) -> None:
    made = write_page(PAGE, tmp_path, ("svg",))
    assert {path.name for path in made} == {path.name for path in tmp_path.iterdir()}
    for name in ("curves", "bars", "steps", "maps"):
        assert "<svg" in (tmp_path / f"{name}.svg").read_text("utf-8")
    svg = (tmp_path / "curves.svg").read_text("utf-8")
    assert "contrast c" in svg
    assert "accuracy (%)" in svg
    rows = list(csv.reader((tmp_path / "table.csv").read_text("utf-8").splitlines()))
    assert rows == [["model", "accuracy (%)", "± accuracy (%)", "images"], ["a|b", "12.345", "0.1", "3000"], ["<b>", "88.0", "", ""]]
    rows = list(csv.reader((tmp_path / "curves.csv").read_text("utf-8").splitlines()))
    assert rows[0] == ["series", "contrast c", "accuracy (%)", "± accuracy (%)"]
    assert [float(row[1]) for row in rows[1:8]] == pytest.approx(X.tolist(), rel=1e-15)
    assert "| a∣b | 12.35 ± 0.10 | 3,000 |" in (tmp_path / "page.md").read_text("utf-8").replace("12.34 ", "12.35 ")


def test_pictures_stay_unless_they_are_to_be_drawn_anew(tmp_path: Path) -> None:
    write_page(PAGE, tmp_path, ("svg",))
    (tmp_path / "curves.svg").write_text("old")
    write_page(PAGE, tmp_path, ("svg",))
    assert (tmp_path / "curves.svg").read_text() == "old"
    write_page(PAGE, tmp_path, ("svg",), anew=True)
    assert "<svg" in (tmp_path / "curves.svg").read_text("utf-8")


def test_the_same_figure_is_the_same_svg(tmp_path: Path) -> None:
    first, second = (draw_figure(BARS, tmp_path / name).read_bytes() for name in ("a.svg", "b.svg"))
    assert first == second
    assert draw_figure(BARS, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_markdown_has_headings_and_links() -> None:
    text = markdown(PAGE, "svg", folder="pictures/")
    assert text.startswith("# A page\n\nOne sentence.\n")
    assert "](pictures/curves.svg)" in text
    assert "\n## More\n" in text


class Seen(HTMLParser):
    """Every tag that could reach for the network, and the data of each plot."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.plots: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.sources += [value for name, value in attrs if name in ("src", "href") and value]
        self._inside = tag == "script" and known.get("type") == "application/json"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.plots.append(data)
            self._inside = False


def test_the_html_page_needs_nothing_else(tmp_path: Path) -> None:
    text = write_html(PAGE, tmp_path / "page.html").read_text("utf-8")
    seen = Seen()
    seen.feed(text)
    assert all(source.startswith(("data:", "#")) for source in seen.sources)
    assert len(seen.plots) == 3
    assert json.loads(seen.plots[0])["layout"]["yaxis"]["title"]["text"] == "accuracy (%)"
    assert "&lt;b&gt;" in text
    assert 'name="viewport"' in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert 'data-value="12.345"' in text, "tables sort by the number, not by its text"
    assert not re.search(r"\{\{\w+\}\}", text.split("</style>")[1].split("<script>")[0])


def test_a_page_without_figures_does_not_carry_plotly(tmp_path: Path) -> None:
    assert write_html(Page("Words", ["Only {{body}} words.", TABLE]), tmp_path / "a.html").stat().st_size < 30_000
    assert "Only {{body}} words." in (tmp_path / "a.html").read_text("utf-8")


def least_apart(colours: Sequence[str]) -> float:
    """The smallest distance in RGB (0 … √3) as people without red or green cones see them (Viénot, Brettel and Mollon 1999)."""
    linear = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colours]) ** 2.2
    to_lms = np.array([[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]])
    protan = np.array([[0, 2.02344, -2.52581], [0, 1, 0], [0, 0, 1]])
    deutan = np.array([[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]])
    distances = []
    for blind in (protan, deutan):
        seen = np.clip(linear @ (np.linalg.inv(to_lms) @ blind @ to_lms).T, 0, 1) ** (1 / 2.2)
        distances.append(np.linalg.norm(seen[:, None] - seen[None], axis=2)[np.triu_indices(len(colours), 1)].min())
    return float(min(distances))


def test_the_first_colours_differ_also_without_red_or_green_cones() -> None:
    assert least_apart(PALETTE[:4]) > 0.2
    assert least_apart(["#d62728", "#6b8e23"]) < 0.2, "a red and a green that many cannot tell apart"
    assert colour(len(PALETTE)) == colour(0)


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without a label"):
        Axis("")
    with pytest.raises(ConfigError, match="lengths"):
        Series("s", [1, 2], [1])
    with pytest.raises(ConfigError, match="a row of 1 cells"):
        Table("t", "T", ["a", "b"], [[1]])
    with pytest.raises(ConfigError, match="expected"):
        Maps("m", "M", ["a"], ["b"], np.zeros((2, 1, 3, 3)), "h")
    with pytest.raises(ConfigError, match=r"\.png"):
        draw_figure(CURVES, tmp_path / "a.gif")
    with pytest.raises(ConfigError, match="gif"):
        write_page(PAGE, tmp_path, ("gif",))


def test_runs_compared_share_figures_and_tables() -> None:
    def page(shift: float, *more: Figure) -> Page:
        series = [Series("naive", [1, 2], [shift, 2]), Series("scaled", [1, 2], [3, 4], dashed=True)]
        figure = Figure("f", "F", Axis("x"), Axis("y"), series)
        return Page("Same", ["All say this.", f"Only {shift} says this.", figure, Table("t", "T", ["a"], [[shift]]), MAPS, *more])

    both = overlaid({"one": page(1.0), "two": page(5.0, BARS)})
    assert both.parts[:3] == ("All say this.", "one: Only 1.0 says this.", "two: Only 5.0 says this.")
    figure, bars = both.every(Figure)
    assert [series.name for series in figure.series] == ["one: naive", "one: scaled", "two: naive", "two: scaled"]
    assert [series.colour for series in figure.series] == [0, 0, 1, 1], "colours are for runs, dashes for what is compared"
    assert [series.name for series in bars.series] == ["two"]
    assert both.every(Table)[0].rows == (("one", 1.0), ("two", 5.0))
    assert len({maps.name for maps in both.every(Maps)}) == 2


# --- tables keep what they are told, in a pipe as on a terminal


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
