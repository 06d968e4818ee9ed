"""Answers kept on disk: the same question about the same weights and data with the same options is asked once.

An answer lies in RUN/analysis/NAME/KEY/ as numbers.json (with arrays.npz for large arrays), page.json, page.md, CSV files and pictures. The
folder appears whole or not at all; pieces of an unfinished answer wait in RUN/analysis/NAME/KEY.pieces/.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from continua.analysis.question import Question, Subject, plotted
from continua.data import data_folder, folder_size
from continua.errors import ConfigError, ContinuaWarning
from continua.files import make_folder, own_folder, refuse_links, remove_leftovers, sync, write_text, written_whole
from continua.reading import UnreadableFile, read_json_object, unreadable
from continua.report import Page, draw_page, from_plain, notebook_html, to_plain, write_page
from continua.showing import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True, repr=False)
class Answer(Shown):
    """The result of a question, where it lies, and whether it was `fresh`: asked now, not read from disk."""

    question: Question
    result: Any
    folder: Path
    fresh: bool

    @property
    def page(self) -> Page:
        return self.question.present(self.result)

    def shown(self) -> dict[str, object]:
        """What a prompt shows: the question's name, the result, and where it lies."""
        return {"question": self.question.name, "result": self.result, "folder": self.folder, "fresh": self.fresh}

    def plot(self, name: str | None = None) -> "Canvas":
        """A figure of the answer, as one of matplotlib's; `name`: which, where there are several."""
        return plotted(self.page, name)

    def _repr_html_(self) -> str:
        return notebook_html(self.page, self.folder)


def answer(
    question: Question,
    subjects: Sequence[Subject],
    options: Any = None,
    *,
    force: bool = False,
    pictures: Sequence[str] = ("png",),
    out: Path | None = None,
) -> Answer:
    """The answer on disk if there is one (and not `force`), else ask. It lies with the first run, or under `out`.

    Args:
        question: the analysis, as `find_question` gives it.
        subjects: the runs that are asked, as `subject_of` gives them.
        options: an object of the question's `Options`; None: its defaults.
        force: ask again although the answer is on disk.
        pictures: formats in which figures are drawn beside the answer.
        out: folder for the answer; None: that of the first run.

    Returns:
        The answer: its result as a dataclass, and its page.

    Examples:
        >>> from continua.analysis import answer, find_question, subject_of
        >>> answer(find_question("scales"), [subject_of("runs/demo/dcn_ode")])  # doctest: +SKIP
    """
    options = question.Options() if options is None else options
    check_number(question, subjects)
    base = out or (subjects[0].folder / "analysis" if subjects else Path("analysis"))
    folder = base / question.name / answer_key(question, subjects, options)
    if not (folder / "numbers.json").is_file():  # an earlier version may have asked, and called its answer otherwise
        former = base / question.name / answer_key(question, subjects, options, former=True)
        folder = former if (former / "numbers.json").is_file() else folder
    if subjects and out is None:
        refuse_links(subjects[0].folder, folder)
    pieces = folder.with_name(f"{folder.name}.pieces")
    if not force and (folder / "numbers.json").is_file():
        try:
            known = Answer(question, read_result(question, folder), folder, fresh=False)
            remove_leftovers(folder.parent, folder.name)  # of an attempt that a failing disk did not let us clear away
            draw_page(known.page, folder, pictures)
            shutil.rmtree(pieces, ignore_errors=True)  # of one that was killed between its last two lines
            return known
        except UnreadableFile as error:
            warnings.warn(f"{error}; {question.name} is asked again", ContinuaWarning, stacklevel=2)
    if force and pieces.exists():
        shutil.rmtree(pieces)
    watched = [replace(subject, keep=keeper(pieces)) for subject in subjects]
    result = question.ask(watched[0] if question.runs == "one" else watched, options)
    fresh = Answer(question, result, folder, fresh=True)
    _write(fresh, subjects, options, pictures)
    shutil.rmtree(pieces, ignore_errors=True)
    return fresh


def check_number(question: Question, subjects: Sequence[Subject]) -> None:
    if question.runs != "any" and not subjects:
        raise ConfigError(f"{question.name} is asked of a run: continua analyse {question.name} RUN")
    if question.runs == "one" and len(subjects) > 1:
        raise ConfigError(f"{question.name} is asked of one run at a time; got {len(subjects)}")


def answer_key(question: Question, subjects: Sequence[Subject], options: Any, *, former: bool = False) -> str:
    """Sixteen hexadecimal digits of everything that decides the answer: question, weights, data, options.

    `former`: as versions said it that knew weights by the bytes of their file.
    """
    parts = [question.name, question.version, to_plain(asdict(options)), [_identity(subject, options, former) for subject in subjects]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def read_result(question: Question, folder: Path) -> Any:
    """The dataclass that was written to a folder."""
    data, arrays = read_json_object(folder / "numbers.json", folder), folder / "arrays.npz"
    try:
        kept = dict(np.load(refuse_links(folder, arrays), allow_pickle=False)) if arrays.is_file() else {}
        return from_plain(question.result, data["result"], kept)
    except (KeyError, TypeError, ValueError, AttributeError, OSError, EOFError, BadZipFile) as error:
        raise unreadable(folder, f"it holds no answer of {question.name} ({type(error).__name__}: {error})") from None


def keeper(folder: Path) -> Callable[[str, Callable[[], Any]], Any]:
    """Keeps pieces of plain data in a folder, so that an interrupted analysis does not make them again."""

    def keep(name: str, make: Callable[[], Any]) -> Any:
        path = folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
        try:
            return read_json_object(path, folder)["piece"]
        except (UnreadableFile, KeyError):  # not made yet, or damaged
            write_text(path, json.dumps({"name": name, "piece": to_plain(make())}, ensure_ascii=False))
        return read_json_object(path, folder)["piece"]  # also when made just now: the same whether interrupted or not

    return keep


def _identity(subject: Subject, options: Any, former: bool) -> dict[str, Any]:
    """What of a run decides its answers. Official sets are known by name, folders of images by their files."""
    name = getattr(options, "data", None) or subject.data
    own = {key: subject.run.config.get(key) for key in ("per_class", "seed", "holdout")} if name == subject.data else {}
    files = _files(data_folder(subject.run.data_dir)) if folder_size(name) else None
    return dict(
        weights=subject.former_weights if former else subject.weights,
        data=name,
        files=files,
        preprocess=to_plain(subject.run.preprocess),
        batch=subject.run.batch_size,
        **own,
    )


def _files(root: Path) -> str:
    """A digest of the names, sizes and dates of all files under a folder."""
    files = sorted((path.relative_to(root).as_posix(), path.stat()) for path in root.rglob("*") if path.is_file())
    listed = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def _write(answered: Answer, subjects: Sequence[Subject], options: Any, pictures: Sequence[str]) -> None:
    folder, question = answered.folder, answered.question
    make_folder(folder.parent)
    arrays: dict[str, Any] = {}
    about = {
        "question": question.name,
        "version": question.version,
        "options": to_plain(asdict(options)),
        "runs": [{"name": subject.name, "weights": subject.weights, "data": subject.data} for subject in subjects],
        "result": to_plain(answered.result, arrays),
    }
    with own_folder(folder.parent, folder.name) as temporary:
        new, old = temporary / "new", temporary / "old"
        new.mkdir()
        write_text(new / "numbers.json", json.dumps(about, indent=1, ensure_ascii=False) + "\n")
        if arrays:
            with written_whole(new / "arrays.npz") as file:
                np.savez_compressed(file, **arrays)
        write_page(answered.page, new, pictures)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        sync(folder.parent)
