"""The demo from end to end, small: three trainings through the ordinary loop, one page, and nothing done twice."""

import json
import re
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from continua.demo import run
from continua.demo.kept import RATES, SEARCH, SPREAD
from continua.demo.page import trend
from continua.demo.run import MODELS, _next_line, demo
from continua.errors import ConfigError
from continua.train import Interrupted, Run, RunOptions
from continua.train.loop import Training

SMALL: dict[str, Any] = dict(
    changes=dict(per_class=2, epochs=2, batch_size=10, model_options=dict(channels=[4, 8])),
    options=RunOptions(progress="off", device="cpu", threads=1),
    masks=dict(sizes=(0, 6), mask=6, trajectories=4, times=3, limit=8),
    contrasts=dict(contrasts=2, low=0.3, high=1.0, limit=8),
)
SECTIONS = [
    "How they were trained",
    "Loss curves",
    "Evaluations of f",
    "Scales by depth",
    "Feature maps through time",
    "Robustness to a mask",
    "Robustness to contrast",
    "What was learnt, and what next",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo(tmp_path_factory.mktemp("demo") / "with a space", **SMALL)


def test_three_runs_and_one_page_come_out(made: Path) -> None:
    assert made.name == "report.html"
    for name in MODELS:
        run = Run(made.parent / name)
        assert run.result is not None
        assert run.recipe.model == name
    text = made.read_text("utf-8")
    assert re.findall(r"<h2[^>]*>([^<]*)<", text) == SECTIONS
    for section in re.split(r"<h2[^>]*>", text)[1:]:
        assert re.search(r"<p>[^<]{60,}</p>", section), "each part has its sentence"
        assert 'class="plot"' in section or "<img" in section or section.startswith(("What was learnt", "How they were trained"))


def test_the_page_needs_nothing_from_elsewhere(made: Path) -> None:
    without_scripts = re.sub(r"<script>.*?</script>", "", made.read_text("utf-8"), flags=re.S)
    assert not re.search(r"(?:src|href)=\"https?:", without_scripts)


def test_the_page_shows_the_numbers_of_the_runs(made: Path) -> None:
    text = made.read_text("utf-8")
    for name in MODELS:
        result = json.loads((made.parent / name / "result.json").read_text())
        assert f"{result['parameters']:,}" in text
        assert f"{100 * result['test_accuracy']:.2f}" in text


def test_a_second_demo_uses_what_is_there(made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Training, "_train_batch", lambda *_: pytest.fail("trained again"))
    before = made.read_text("utf-8")
    demo(made.parent, **SMALL)
    assert capsys.readouterr().out.count("trained already") == len(MODELS)
    assert made.read_text("utf-8") == before


def test_an_interrupted_demo_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], made: Path
) -> None:
    step = Training._train_batch

    def stopping(self: Training, batch: Any) -> bool:
        return step(self, batch) or self.step == 1

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_train_batch", stopping)
        with pytest.raises(Interrupted):
            demo(tmp_path / "demo", **SMALL)
    demo(tmp_path / "demo", **SMALL)
    assert "dcn_ode: continuing" in capsys.readouterr().out
    whole, broken = (Run(folder / "dcn_ode").result for folder in (made.parent, tmp_path / "demo"))
    assert whole is not None
    assert broken is not None
    assert broken["test_loss"] == whole["test_loss"]


def test_runs_of_another_recipe_are_not_mixed_in(made: Path) -> None:
    with pytest.raises(ConfigError, match="by another recipe"):
        demo(made.parent, **(SMALL | dict(changes=SMALL["changes"] | dict(seed=1))))


# --- what the page says


def test_the_kept_numbers_are_those_of_the_search() -> None:
    kept = json.loads((Path(__file__).parents[2] / "results/checks/demo.json").read_text("utf-8"))
    search: dict[str, dict[float, list[float]]] = {}
    for line in kept["search"]:
        search.setdefault(line["model"], {}).setdefault(line["lr"], []).append(line["holdout_accuracy"])
    assert {model: {rate: sum(found) / len(found) for rate, found in tried.items()} for model, tried in search.items()} == SEARCH
    assert {
        frozenset(line["seed"] for line in kept["search"] if (line["model"], line["lr"]) == tried)
        for tried in ((model, rate) for model, rates in SEARCH.items() for rate in rates)
    } == {frozenset({0, 1, 2, 3})}  # no rate had more trials than another
    for model, tried in SEARCH.items():
        assert RATES[model] == max(tried, key=lambda rate: tried[rate])
        seeds = [line for line in kept["seeds"] if line["model"] == model and line["lr"] == RATES[model]]
        assert tuple(line["test_accuracy"] for line in sorted(seeds, key=lambda line: line["seed"])) == SPREAD[model]


def test_every_network_of_the_demo_trains_well_with_every_seed() -> None:
    assert min(accuracy for kept in SPREAD.values() for accuracy in kept) > 0.93
    assert min(len(kept) for kept in SPREAD.values()) >= 6


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"A": (1, 2), "B": (1, 3)}, "rises in both networks"),
        ({"A": (2, 1), "B": (3, 1), "C": (2, 1)}, "falls in all 3 networks"),
        ({"A": (1, 2), "B": (3, 1)}, "rises in A, and falls in B"),
        ({"A": (1, 1.001), "B": (3, 1), "C": (2, 1)}, "falls in B and C, and stays the same in A"),
    ],
)
def test_a_trend_is_said_as_the_numbers_have_it(changes: dict[str, tuple[float, float]], words: str) -> None:
    assert trend(changes) == words


@pytest.mark.parametrize(("idle", "busy"), [(200, 0.0), (150, 0.5), (0, 2.0)])
def test_busy_cores_are_those_of_now(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, idle: int, busy: float) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  1000 50 50 300 0 0 0 0 0 0\ncpu0 …\n")  # 79 % busy since the machine started
    monkeypatch.setattr(run.os, "cpu_count", lambda: 2)
    later = f"cpu  {1000 + 200 - idle} 50 50 {300 + idle - idle // 2} {idle // 2} 0 0 0 0 0\n"
    monkeypatch.setattr(run.time, "sleep", lambda _: stat.write_text(later))
    assert run.busy_cores(stat=stat) == pytest.approx(busy)


def test_a_busy_machine_gets_one_thread_unless_threads_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(run, "busy_cores", lambda: 3.2)
    assert run._unhurried(RunOptions()).threads == 1
    assert "3.2 of 4 cores" in capsys.readouterr().out
    assert run._unhurried(RunOptions(threads=4)).threads == 4
    monkeypatch.setattr(run, "busy_cores", lambda: 0.5)
    assert run._unhurried(RunOptions()).threads is None


def test_long_work_says_so_again_and_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(run, "BEAT", 0.01)
    with run._saying("looking"):
        time.sleep(0.1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "looking ..."
    assert len(lines) > 2


PROCESSOR_SECONDS = 900


@pytest.mark.slow
@pytest.mark.timeout(4 * PROCESSOR_SECONDS)
def test_the_demo_reads_the_digits(tmp_path: Path) -> None:
    """As a person types it, in a process of its own and with one thread: two would wait for each other wherever another process has a core.

    The time it takes is for an idle machine, and not tested; what ends a demo that goes round in circles is a limit on the work it does,
    which a busy machine does not change.
    """
    words = [sys.executable, "-m", "continua", "demo", "--threads", "1", "--out", str(tmp_path / "demo")]
    limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
    done = subprocess.run(words, preexec_fn=limit, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result = Run(tmp_path / "demo" / "dcn_ode").result
    assert result is not None
    assert result["test_accuracy"] >= 0.97


# --- what `continua demo` says last: the line to type next


def test_make_demo_ends_with_make_explore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])  # the clone
    assert _next_line(Path("runs/demo")) == "make explore"


def test_elsewhere_the_line_names_the_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = _next_line(Path("my runs"))
    assert line.startswith("continua explore 'my runs/dcn_ode'")
    assert len(MODELS) == line.count("my runs")
