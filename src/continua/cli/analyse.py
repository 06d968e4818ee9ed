"""`continua analyse NAME RUN...`: a question and its options in, numbers, pictures and a few sentences out."""

import hashlib
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from jsonargparse import Namespace

from continua.analysis import Answer, Subject, answer, find_question, known_questions, subject_of
from continua.cli.commands import Command, Parser, Words, spellings
from continua.errors import ConfigError
from continua.report import Page, overlaid, show_page, show_table, write_html, write_page


def add_analyse_arguments(parser: Parser, words: Words) -> None:
    """NAME and RUNs, options of all analyses, and those of the one that `words` (what follows `analyse`) names."""
    listed = "; ".join(f"{name}: {text}" for name, text in known_questions().items())
    parser.description = f"Ask a question of trained networks. Known: {listed}"
    parser.add_argument("name", metavar="NAME", type=str, nargs="?", default="", help="which analysis; none: list them")
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="*", default=[], help="folders of finished runs")
    parser.option("out", Path | None, None, "folder for the answers (else RUN/analysis)")
    parser.option("html", Path | None, None, "also write the page as one HTML file")
    parser.common("data_dir", "device")
    parser.flag("force", "ask again, even where the answer is known")
    parser.flag("svg", "pictures as SVG too")
    parser.flag("quiet", "no progress bar")
    name = next((word for word in words if not word.startswith("-")), None)
    if name is None:
        return
    question = find_question(name)
    group = parser.add_argument_group(f"options of {name}", question.summary)
    for option, kind, default, text in question.option_fields():
        group.add_argument(*spellings(option), type=kind, default=default, help=text or " ")


def analyse_command(parsed: Namespace) -> None:
    """Run `continua analyse`."""
    given = parsed.as_dict()
    if not given["name"]:
        show_table("continua analyse NAME RUN...", ("name", "what it asks"), known_questions().items(), text=(0, 1))
        return
    question = find_question(given["name"])
    asked = question.Options(**{item.name: given[item.name] for item in fields(question.Options)})
    subjects = [subject_of(run, device=given["device"], data_dir=given["data_dir"], quiet=given["quiet"]) for run in given["runs"]]
    how = dict(force=given["force"], pictures=("png", "svg") if given["svg"] else ("png",), out=given["out"])
    if question.runs == "one" and len(subjects) > 1:
        answers = {name: answer(question, [subject], asked, **how) for name, subject in _named(subjects).items()}
        page, folder = _compare(answers, how["pictures"], given["out"])
        state = "compared" if any(each.fresh for each in answers.values()) else "compared, all known"
    else:
        single = answer(question, subjects, asked, **how)
        page, folder, state = single.page, single.folder, "asked" if single.fresh else "known already"
    show_page(page)
    if given["html"]:
        print(f"wrote {write_html(page, given['html'])}")
    print(f"{question.name} {state}: numbers and pictures in {folder}")


def _compare(answers: dict[str, Answer], pictures: Sequence[str], out: Path | None) -> tuple[Page, Path]:
    """Several runs' answers as one page beside the first of them."""
    page = overlaid({name: each.page for name, each in answers.items()})
    first = next(iter(answers.values())).folder
    key = hashlib.sha256(repr([(name, each.folder.name) for name, each in answers.items()]).encode()).hexdigest()[:16]
    folder = first.with_name(f"compared-{key}")
    for stale in folder.glob("*.*"):  # pictures are only drawn where there are none
        stale.unlink()
    write_page(page, folder, pictures)
    return page, folder


def _named(subjects: Sequence[Subject]) -> dict[str, Subject]:
    """Runs by the shortest end of their path that tells them apart."""
    for depth in range(1, 12):
        names = ["/".join(subject.folder.resolve().parts[-depth:]) for subject in subjects]
        if len(set(names)) == len(names):
            return dict(zip(names, subjects, strict=True))
    raise ConfigError("a run was given twice; name each once")


COMMAND = Command("Ask a question of trained networks.", analyse_command, add_analyse_arguments)
