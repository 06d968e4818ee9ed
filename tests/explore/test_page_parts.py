"""What the page is made of: plots that plotly accepts, files to take away, answers that are computed once, two networks side by side."""

import re
import time
from threading import Event

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from exploring import SMALL

from continua import ConfigError, create_model
from continua.cli import main
from continua.explore.answers import Answers, Pending, Stopped
from continua.explore.changes import Change, Outcome
from continua.explore.image import from_data
from continua.explore.lens import Lens, Side, side_differences, side_probabilities, side_table
from continua.explore.network import Augmentation, Explored
from continua.explore.parts import chart, grid, numbers, picture, player, table
from continua.explore.server import free_port, host_names, server_words
from continua.explore.trajectory import follow
from continua.report import Axis, Figure, Maps, Series, Table

MAPS = Maps("m", "Some maps", ["a", "b", "c"], ["t = 0", "t = 1"], np.arange(3 * 2 * 4 * 5).reshape(3, 2, 4, 5), "h")


def test_a_grid_shows_every_value_in_its_place() -> None:
    drawn = go.Figure(**grid(MAPS))
    assert len(drawn.data) == 3  # a scale for each row
    assert np.array_equal(drawn.data[1].z[:4, :5], MAPS.values[1, 0])
    assert np.array_equal(drawn.data[1].z[:4, -5:], MAPS.values[1, 1])
    one = go.Figure(**grid(Maps("m", "m", MAPS.rows, MAPS.columns, MAPS.values, "h", one_scale=True)))
    assert len(one.data) == 1
    assert np.array_equal(one.data[0].z[-4:, :5], MAPS.values[2, 0])
    assert list(one.layout.yaxis.ticktext) == ["a", "b", "c"]


def test_a_player_has_a_frame_and_a_place_on_the_slider_for_each_moment() -> None:
    shares = np.array([[0.25, 0.75], [0.5, 0.5]])
    drawn = go.Figure(**player(MAPS, (("x", "y"), shares)))
    assert [frame.name for frame in drawn.frames] == ["t = 0", "t = 1"]
    assert [step.label for step in drawn.layout.sliders[0].steps] == ["t = 0", "t = 1"]
    for moment, frame in enumerate(drawn.frames):
        assert np.array_equal(frame.data[2].z, MAPS.values[2, moment])
        assert list(frame.data[3].y) == [100 * share for share in shares[moment]]
    assert np.array_equal(drawn.data[0].z, MAPS.values[0, -1])  # the last moment is seen first


def test_a_map_of_one_value_can_be_drawn() -> None:
    flat = Maps("m", "m", ["a"], ["t"], np.ones((1, 1, 3, 3)), "h")
    assert go.Figure(**grid(flat)).data[0].zmin < 1 < go.Figure(**player(flat)).data[0].zmax


def test_ticks_of_the_solver_are_ticks() -> None:
    figure = Figure("f", "f", Axis("t"), Axis("p"), [Series("x", [0, 1], [0, 1]), Series("solver steps", [0, 1], [0, 0], style="points")])
    assert go.Figure(**chart(figure)).data[1].marker.symbol == "line-ns-open"


def test_numbers_of_maps_name_every_pixel() -> None:
    lines = numbers(MAPS).decode().splitlines()
    assert lines[0] == "row,column,y,x,h"
    assert len(lines) == 1 + 3 * 2 * 4 * 5
    assert lines[-1] == "c,t = 1,3,4,119.0"


def test_a_figure_and_a_table_can_be_taken_away() -> None:
    figure = Figure("f", "f", Axis("t"), Axis("p"), [Series("x", [0, 1], [0, 1])])
    assert b"x,1.0,1.0" in numbers(figure)
    assert picture(figure, "png").startswith(b"\x89PNG")
    assert b"<svg" in picture(MAPS, "svg")
    assert numbers(Table("t", "t", ["a"], [[1]])) == b"a\r\n1\r\n"


def test_two_sets_of_maps_move_together_each_at_its_own_pace() -> None:
    few = Maps("n", "n", ["d"], ["input", "output"], np.arange(2 * 2 * 3).reshape(1, 2, 2, 3), "h")
    many = Maps("m", "m", ["a"], [f"t = {k}" for k in range(5)], np.arange(5 * 4 * 4).reshape(1, 5, 4, 4), "h")
    drawn = go.Figure(**player([few, many]))
    assert len(drawn.layout.sliders) == 1
    assert [frame.name for frame in drawn.frames][::2] == ["0% of the block", "50% of the block", "100% of the block"]
    for frame, (early, late) in zip(drawn.frames, [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4)], strict=True):
        assert np.array_equal(frame.data[0].z, few.values[0, early])
        assert np.array_equal(frame.data[1].z, many.values[0, late])


def test_a_table_shows_every_word_and_lets_no_markup_in() -> None:
    made = table(Table("t", "t", ["what", "a long head"], [["<script>", "none: the solver gave up " * 9]]))
    assert "&lt;script&gt;" in made
    assert ("none: the solver gave up " * 9).strip() in made


def test_on_a_phone_two_rows_stand_upright() -> None:
    two = Table("t", "t", ["network", "NFE"], [["a", "28"], ["b", "22"]])
    assert re.findall(r"<t[hd]>(.*?)</t", table(two, narrow=True)) == ["network", "a", "b", "NFE", "28", "22"]
    assert re.findall(r"<t[hd]>(.*?)</t", table(two)) == ["network", "NFE", "a", "28", "b", "22"]
    three = Table("t", "t", ["network", "NFE"], [["a", "28"], ["b", "22"], ["c", "1"]])
    assert table(three, narrow=True) == table(three)


def test_an_answer_that_takes_long_is_pending_until_it_is_there() -> None:
    answers, go_on = Answers(patience=0.01), Event()
    with pytest.raises(Pending) as first:
        answers("x", lambda: go_on.wait(60) and 7)
    with pytest.raises(Pending) as second:
        answers("x", lambda: pytest.fail("asked twice"))
    assert first.value.job is second.value.job
    go_on.set()
    first.value.job.ended.wait(60)
    assert answers("x", lambda: pytest.fail("asked again")) == 7


def test_a_job_that_is_stopped_or_that_nobody_looks_at_ends_between_two_operations() -> None:
    for end in (lambda job: job.stop(), lambda job: setattr(job, "looked_at", -1e9)):
        answers = Answers(patience=0.01)
        with pytest.raises(Pending) as caught:
            answers("x", endless)
        end(caught.value.job)
        assert caught.value.job.ended.wait(60)
        assert caught.value.job.answer is None
        caught.value.forget()
        assert Answers()("x", lambda: 1) == 1


def endless() -> None:
    try:
        while True:
            torch.zeros(1).add(1)
            time.sleep(0.001)
    except Exception:  # a computation that catches everything must not keep going
        pytest.fail("stopping was caught")
    except Stopped:
        raise


def test_a_solve_beside_the_page_gives_the_same_numbers() -> None:
    network = explored()
    image = network.floats(torch.zeros(1, 1, 12, 12, dtype=torch.uint8) + 9)
    beside = Answers(patience=60.0)("x", lambda: follow(network.model, image, 0))
    assert np.array_equal(beside.states, follow(network.model, image, 0).states)


def test_an_answer_is_computed_once_and_forgotten_last() -> None:
    answers, made = Answers(most=2, patience=60.0), []

    def ask(question: str) -> str:
        return answers(question, lambda: made.append(question) or question)

    assert [ask(question) for question in "abab"] == list("abab")
    assert made == ["a", "b"]
    ask("c")  # forgets a, which was asked for before b
    ask("b")
    ask("a")
    assert made == ["a", "b", "c", "a"]


def test_large_answers_are_forgotten_sooner() -> None:
    answers, made = Answers(most_bytes=1000, patience=60.0), []
    for name in "aba":
        answers(name, lambda name=name: made.append(name) or Outcome(np.zeros(75), (), (), (), 0.0))  # 600 bytes
    assert made == ["a", "b", "a"]


def test_an_error_is_not_remembered() -> None:
    answers = Answers(patience=60.0)
    with pytest.raises(ZeroDivisionError):
        answers("x", lambda: 1 // 0)
    assert answers("x", lambda: 1) == 1


def explored(name: str = "net", seed: int = 0, **preprocess) -> Explored:
    torch.manual_seed(seed)
    net = create_model("dcn_ode", **SMALL, in_channels=1).eval()
    image = from_data(torch.randint(0, 256, (1, 12, 12), dtype=torch.uint8), "x", "3")
    return Explored(name, f"{name}{seed}", net, (1, 12, 12), tuple("0123456789"), Augmentation(**preprocess), (image,), "")


def test_a_lens_asks_once_for_the_same_image_and_again_for_another() -> None:
    network, answers = explored(), Answers(patience=60.0)
    lens = Lens(network, network.pictures[0], False, answers)
    assert lens.trajectory(0) is Lens(network, network.pictures[0], False, answers).trajectory(0)
    assert lens.trajectory(0) is not lens.trajectory(1)
    assert lens.trajectory(0) is not Lens(network, network.pictures[0], True, answers).trajectory(0)
    assert lens.outcome() is lens.outcome(Change())
    assert lens.outcome(Change(contrast=0.5)) is not lens.outcome(Change(contrast=0.5), scaled=True)


def test_what_is_shown_are_pixel_values_whatever_the_network_reads() -> None:
    network = explored(mean=(0.5,), std=(0.25,))
    lens = Lens(network, network.pictures[0], False, Answers())
    original = network.pictures[0].pixels[..., 0] / 255
    assert np.allclose(lens.shown(), original, atol=1e-6)
    assert np.allclose(lens.shown(Change(contrast=0.5)), original / 2, atol=1e-6)
    assert lens.shown(Change(mask=12)).max() == pytest.approx(0, abs=1e-6)


def side(name: str, classes: tuple[str, ...], chances: list[float]) -> Side:
    network = explored()
    outcome = Outcome(np.array(chances), (14, 8), (2, 1), (0, 0), 0.01)
    way = follow(network.model, network.floats(torch.zeros(1, 1, 12, 12, dtype=torch.uint8)), 0)
    return Side(name, classes, 10, outcome, outcome, way, way)


def test_two_networks_with_other_classes_share_the_axis() -> None:
    sides = [side("one", ("cat", "dog"), [0.25, 0.75]), side("two", ("dog", "owl"), [0.5, 0.5])]
    bars = side_probabilities(sides)
    assert bars.series[0].x == ("cat", "dog", "owl")
    assert bars.series[0].y[:2] == (25.0, 75.0)
    assert np.isnan(bars.series[0].y[2])
    assert bars.series[1].y[1:] == (50.0, 50.0)
    shown = side_table(sides, "masked")
    assert [row[2] for row in shown.rows] == ["dog", "dog"]
    assert shown.rows[0][4] == 22
    assert len(side_differences(sides).series) == 2


def test_a_network_beside_itself_is_told_apart_by_its_place() -> None:
    sides = [side("one", ("a", "b"), [0.5, 0.5]) for _ in range(2)]
    assert [series.name for series in side_probabilities(sides).series] == ["one (left)", "one (right)"]


def test_the_server_listens_here_alone_and_sends_nothing() -> None:
    words = server_words("127.0.0.1", 8501, ["run"])
    for wanted in ("--server.address=127.0.0.1", "--browser.gatherUsageStats=false", "--server.headless=true", "--server.maxUploadSize=10"):
        assert wanted in words
    assert words[words.index("--") + 1 :] == ["run"]


@pytest.mark.parametrize(
    ("host", "origin", "welcome"),
    [
        ("127.0.0.1:8501", "http://127.0.0.1:8501", True),
        ("localhost:9000", "http://localhost:9000", True),  # through a tunnel
        ("[::1]:8501", None, True),
        ("evil.example:8501", "http://evil.example:8501", False),  # its name resolved to this machine: DNS rebinding
        ("evil.example:8501", None, False),
        (None, None, False),
    ],
)
def test_a_browser_that_asks_for_another_host_is_refused(
    host: str | None, origin: str | None, welcome: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamlit import config
    from streamlit.web.server.starlette import starlette_websocket

    flags = [word.removeprefix("--").partition("=") for word in server_words("127.0.0.1", 8501, []) if word.startswith("--server")]
    values = {name: value for name, _, value in flags}
    assert values["server.enableCORS"] == values["server.enableXsrfProtection"] == "true"
    names, known = [value for name, _, value in flags if name == "server.allowedHosts"], config.get_option
    monkeypatch.setattr(config, "get_option", lambda name: names if name == "server.allowedHosts" else known(name))
    assert starlette_websocket._is_origin_allowed(origin, host) is welcome


def test_a_host_of_ones_own_choice_is_a_name_of_the_page() -> None:
    assert "machine.example" in host_names("machine.example")
    assert host_names("0.0.0.0") == []


def test_without_streamlit_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["explore"]) == 2
    assert "pip install streamlit" in capsys.readouterr().err


def test_every_setting_of_the_server_is_known_to_streamlit() -> None:
    from streamlit import config

    flags = [word[2:].split("=")[0] for word in server_words("127.0.0.1", 8501, []) if word.startswith("--") and "=" in word]
    known = config.get_config_options()
    assert [flag for flag in flags if flag not in known] == []


def test_a_port_that_is_taken_is_passed_over_or_refused() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match="cannot be listened on"):
            free_port("127.0.0.1", port)
    assert 8501 <= free_port("127.0.0.1", None) < 8601
    with pytest.raises(ConfigError, match="expected 1"):
        free_port("127.0.0.1", 0)
    with pytest.raises(ConfigError, match="this machine's address"):
        free_port("192.0.2.1", None)
