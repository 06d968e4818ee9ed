"""Questions and their answers on disk: asked once, read back whole, asked again when anything that matters changes."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from continua.analysis import DataOptions, Question, Subject, answer, find_question, known_questions, option
from continua.analysis.answers import answer_key, read_result
from continua.data import Augmentation
from continua.errors import ConfigError
from continua.report import Axis, Figure, Page, Series
from continua.report.plain import LARGE
from continua.runs import Recipe, Run, RunView, write_yaml


@dataclass(frozen=True)
class Inner:
    name: str
    pair: tuple[int, float]


@dataclass(frozen=True)
class Found:
    number: float
    missing: float
    boundless: float
    words: list[str]
    table: np.ndarray
    large: np.ndarray
    inner: list[Inner]
    by_block: dict[int, float]
    maybe: float | None = None


@dataclass(frozen=True)
class Options(DataOptions):
    factor: float = option(1.0, "times this")
    sizes: tuple[int, ...] = option((1, 2), "some sizes")


ASKED: list[float] = []
FOUND = Found(
    number=0.1,
    missing=math.nan,
    boundless=math.inf,
    words=["a", "b"],
    table=np.array([[1.0, math.nan], [2.5, -1e-9]]),
    large=np.arange(LARGE + 1, dtype=np.float32),
    inner=[Inner("x", (1, 0.5))],
    by_block={0: 1.5, 2: 2.5},
)


def ask(subject: Subject, options: Options) -> Found:
    ASKED.append(options.factor)
    return replace(FOUND, number=FOUND.number * options.factor)


def present(result: Found) -> Page:
    return Page("Found", [Figure("f", "F", Axis("x"), Axis("y"), [Series("s", [1, 2], [result.number, 2])])])


QUESTION = Question("test_found", "a test", Options, ask, present)


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    ASKED.clear()


def subject(
    folder: Path, *, name: str = "run", weights: str = "abc", device: str = "cpu", data_dir: Path | None = None, **changes: Any
) -> Subject:
    """A run whose files are there, with weights that nobody loads; `changes` to its recipe."""
    recipe: dict[str, Any] = dict(data="digits", per_class=3, seed=1, evaluation_batch_size=100)
    run = Run(folder / name)
    run.write(run.config, write_yaml(Recipe(**{**recipe, **changes})))
    run.write(run.best / "model.safetensors", weights)
    run.write(run.best / "config.json", "{}")
    return Subject(RunView(run.folder, device=device, data_dir=data_dir), quiet=True)


def test_an_answer_is_asked_once_and_read_back_equal(tmp_path: Path) -> None:
    first = answer(QUESTION, [subject(tmp_path)], Options(factor=3.0), pictures=())
    again = answer(QUESTION, [subject(tmp_path)], Options(factor=3.0), pictures=())
    assert ASKED == [3.0]
    assert (first.fresh, again.fresh, again.folder) == (True, False, first.folder)
    assert first.folder.parent == tmp_path / "run" / "analysis" / "test_found"
    for name in ("number", "boundless", "words", "inner", "by_block", "maybe"):
        assert getattr(again.result, name) == getattr(first.result, name), name
    assert math.isnan(again.result.missing)
    np.testing.assert_array_equal(again.result.table, FOUND.table)
    np.testing.assert_array_equal(again.result.large, FOUND.large)
    assert again.result.large.dtype == np.float32
    assert sorted(path.name for path in first.folder.iterdir()) == ["arrays.npz", "f.csv", "numbers.json", "page.json", "page.md"]


def test_force_asks_again_and_pictures_are_drawn_when_first_wanted(tmp_path: Path) -> None:
    answer(QUESTION, [subject(tmp_path)], pictures=())
    answered = answer(QUESTION, [subject(tmp_path)], pictures=("svg",))
    assert not answered.fresh
    assert (answered.folder / "f.svg").is_file()
    assert answer(QUESTION, [subject(tmp_path)], force=True, pictures=()).fresh
    assert ASKED == [1.0, 1.0]
    assert not (answered.folder / "f.svg").exists(), "what lies beside new numbers belongs to them"
    assert [path.name for path in answered.folder.parent.iterdir()] == [answered.folder.name]


@pytest.mark.parametrize(
    "change",
    [
        dict(weights="abd"),
        dict(data="digits32"),
        dict(evaluation_batch_size=50),
        dict(augmentation=Augmentation(mean=(0.5,), std=(0.2,))),
        dict(per_class=4),
    ],
    ids=str,
)
def test_what_decides_an_answer_decides_its_key(change: dict[str, Any], tmp_path: Path) -> None:
    before = answer_key(QUESTION, [subject(tmp_path)], Options())
    assert answer_key(QUESTION, [subject(tmp_path, **change)], Options()) != before


def test_options_and_version_decide_the_key_and_folders_do_not(tmp_path: Path) -> None:
    before = answer_key(QUESTION, [subject(tmp_path)], Options())
    keys = {before, answer_key(QUESTION, [subject(tmp_path)], Options(sizes=(1, 3)))}
    keys |= {answer_key(replace(QUESTION, version=2), [subject(tmp_path)], Options())}
    keys |= {answer_key(QUESTION, [subject(tmp_path)], Options(data="mnist"))}
    assert len(keys) == 4
    assert answer_key(QUESTION, [subject(tmp_path / "elsewhere", device="cuda", name="b")], Options()) == before


def test_a_folder_of_images_is_known_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "data" / "train" / "a").mkdir(parents=True)
    here = subject(tmp_path, data="image_folder", data_dir=tmp_path / "data")
    before = answer_key(QUESTION, [here], Options())
    (tmp_path / "data" / "train" / "a" / "1.png").touch()
    assert answer_key(QUESTION, [here], Options()) != before


def test_an_interrupted_analysis_goes_on_from_its_pieces(tmp_path: Path) -> None:
    made: list[str] = []
    interrupt = [True]

    def piece(name: str) -> list[float]:
        made.append(name)
        return [1.0, math.nan]

    def ask_in_pieces(subject: Subject, options: Options) -> Found:
        for name in ("one", "two", "three"):
            got = subject.keep(name, lambda name=name: piece(name))
            assert got == [1.0, None], "as JSON has it, also when made just now"
            if name == "two" and interrupt and interrupt.pop():
                raise RuntimeError("interrupted")
        return FOUND

    question = replace(QUESTION, ask=ask_in_pieces)
    with pytest.raises(RuntimeError, match="interrupted"):
        answer(question, [subject(tmp_path)], pictures=())
    answered = answer(question, [subject(tmp_path)], pictures=())
    assert made == ["one", "two", "three"]
    assert [path.name for path in answered.folder.parent.iterdir()] == [answered.folder.name], "pieces go when the answer is whole"


def test_a_failed_analysis_leaves_no_answer(tmp_path: Path) -> None:
    def failing(result: Found) -> Page:
        raise RuntimeError("no page")

    with pytest.raises(RuntimeError):
        answer(replace(QUESTION, present=failing), [subject(tmp_path)], pictures=())
    assert list((tmp_path / "run" / "analysis" / "test_found").iterdir()) == []


def test_questions_say_how_many_runs_they_take(tmp_path: Path) -> None:
    def ask_many(subjects: list[Subject], options: Options) -> Found:
        return replace(FOUND, words=[each.name for each in subjects])

    many, any_number = replace(QUESTION, ask=ask_many, runs="many"), replace(QUESTION, ask=ask_many, runs="any")
    two = [subject(tmp_path, name="a"), subject(tmp_path, name="b")]
    assert answer(many, two, pictures=()).result.words == ["a", "b"]
    assert answer(any_number, [], pictures=(), out=tmp_path / "out").result.words == []
    for question, subjects in ((QUESTION, []), (many, []), (QUESTION, two)):
        with pytest.raises(ConfigError, match="is asked of"):
            answer(question, subjects)


def test_results_hold_numbers_only(tmp_path: Path) -> None:
    wrong = replace(QUESTION, ask=lambda subject, options: replace(FOUND, inner=[object()]))
    with pytest.raises(ConfigError, match="inner"):
        answer(wrong, [subject(tmp_path)], pictures=())


def test_a_subject_gives_the_runs_own_images(tmp_path: Path) -> None:
    here = subject(tmp_path)
    images = here.images(split="train")
    assert images.count == 30, "three of each class, as the run was trained"
    batch, labels = next(iter(images))
    assert batch.shape == (30, 1, 8, 8)
    assert batch.dtype == torch.float32
    assert labels.bincount().tolist() == [3] * 10
    assert here.images().count == 359
    few = here.images(Options(limit=10, batch_size=4))
    assert [len(labels) for _, labels in few] == [4, 4, 2]
    assert len({int(label) for _, labels in few for label in labels}) > 3, "drawn from all, not the first"
    assert torch.equal(torch.cat([images for images, _ in few]), torch.cat([images for images, _ in few])), "the same every time"
    assert few.first(5)[0].shape == (5, 1, 8, 8)
    assert here.images(data="digits32", limit=2).first(1)[0].shape[-1] == 32
    with pytest.raises(ConfigError, match="limit is 0"):
        Options(limit=0)


def test_every_analysis_of_the_house_follows_the_contract() -> None:
    for name, summary in known_questions().items():
        question = find_question(name)
        assert question.name == name
        assert summary
        assert question.summary
        assert question.result.__dataclass_params__.frozen, name  # pyright: ignore
        assert question.Options.__dataclass_params__.frozen, name
        assert all(text for *_, text in question.option_fields()), f"{name}: an option without help"
        question.Options()
    assert {"scales", "pattern_completion", "contrast"} <= set(known_questions())
    with pytest.raises(ConfigError, match="did you mean pattern_completion"):
        find_question("pattern-complete")


def test_an_unannotated_answer_is_refused() -> None:
    with pytest.raises(ConfigError, match="annotate"):
        _ = Question("x", "y", Options, lambda subject, options: None, present).result


def test_a_stored_answer_with_fields_of_its_own_defaults(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Small:
        a: int = 3
        b: list[int] = field(default_factory=list)

    def ask_small(subject: Any, options: Any) -> Small:
        return Small()

    ask_small.__annotations__["return"] = Small
    question = replace(QUESTION, ask=ask_small, present=lambda result: Page("p"))
    folder = answer(question, [subject(tmp_path)], pictures=()).folder
    assert read_result(question, folder) == Small()
