"""What the documentation shows is true: every page is gone through from top to bottom, in a folder of its own.

Python runs as it stands. So do shell commands, `continua` inside this process. A block with a title (```sh title="needs a GPU") says what
it would take; its commands are checked instead, a training down to its resolved recipe. So are commands that install, build or
serve, and those with a word in capitals, which stands for the reader's own.
"""

import builtins
import dis
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import pytest
import yaml

from continua import cli
from continua.analysis import question
from continua.studies import STUDIES, find_study
from continua.train import RunOptions, load_recipe, train

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
SLOW = {"docs/analyse.md", "docs/own-images.md", "docs/reproduce.md"}  # pages that take more than some seconds
GENERATED = {"docs/results.md"}  # its commands are how each result was made: hours, as the page says
KINDS = {"python", "sh", "yaml", "text", "bibtex"}
FENCE = re.compile(r"^```(?P<kind>\S*)(?: title=\"(?P<needs>[^\"\n]+)\")?\n(?P<code>.*?)^```$", flags=re.M | re.S)
THE_READERS_OWN = re.compile(r"[A-Z]{3,}(:\d+)?")
SERVES = {"explore"}  # would not come back

TINY = dict(channels=[4, 8], stem_padding=1, norm_groups=2, solver=dict(method="rk4", steps=1))
RUNS: dict[str, tuple[str, dict[str, object]]] = {
    "x": ("demo", dict(data="digits16", per_class=8, epochs=1, model_options=TINY)),
    "y": ("demo", dict(data="digits16", per_class=8, epochs=1, seed=1, model_options=TINY)),
    "demo/dcn_ode": ("demo", dict(data="digits16", per_class=8, epochs=1, seed=2, model_options=TINY)),
    "resnet4_anodev2_c1": (
        "anodev2_resnet",
        dict(model="resnet4_anodev2_c1", data="digits", per_class=8, epochs=1, augmentation=dict(mean=None, std=None)),
    ),
}


@dataclass(frozen=True)
class Block:
    kind: str
    needs: str | None
    code: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [Block(one["kind"], one["needs"], one["code"], text[: one.start("code")].count("\n")) for one in FENCE.finditer(text)]


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def shown(pages: list[Path]) -> list:
    marks = {page: [pytest.mark.slow] if named(page) in SLOW else [] for page in pages}
    return [pytest.param(page, id=named(page), marks=marks[page]) for page in pages if blocks(page)]


@pytest.fixture(scope="session")
def finished_runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Finished runs under the names that pages use, each trained when it is first asked for."""
    folder = tmp_path_factory.mktemp("documented")

    def run(name: str) -> Path:
        if not (folder / name).exists():
            recipe, changes = RUNS[name]
            train(load_recipe(recipe, changes), folder / name, RunOptions(progress="off", device="cpu"))
        return folder / name

    return run


@pytest.fixture(autouse=True)
def only_known_here() -> Iterator[None]:
    """What a page registers is gone when the page is."""
    registries = (STUDIES, question._REGISTERED)
    before = [dict(registry) for registry in registries]
    yield
    for registry, known in zip(registries, before, strict=True):
        registry.clear()
        registry.update(known)


@pytest.mark.parametrize("page", shown(PAGES))
def test_a_page_can_be_followed_from_top_to_bottom(
    page: Path, tmp_path: Path, finished_runs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page.read_text("utf-8")
    for name in RUNS:
        if f"runs/{name}" in text:
            shutil.copytree(finished_runs(name), tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the command line sets its own
    names = {"__name__": "__main__"}
    for block in blocks(page):  # a command may come before the file it reads is shown
        if block.kind == "yaml":
            keep_yaml(block.code)
    for block in blocks(page):
        if block.kind == "python":
            # Empty lines before the code give errors the page's own line numbers.
            code = compile("\n" * block.line + block.code, str(page), "exec")
            if block.needs is None:
                exec(code, names)
        elif block.kind == "sh":
            for words in commands(block.code):
                follow(words, only_check=block.needs is not None or named(page) in GENERATED)


@pytest.mark.parametrize("part", ["gradient", "filter", "model", "analysis", "study"])
def test_a_part_of_ones_own_is_one_short_file(part: str) -> None:
    """The page above runs it; here: it needs nothing of the page before it, and is short."""
    text = (ROOT / "docs" / "own-parts.md").read_text("utf-8")
    (section,) = re.findall(rf"^## An? {part}: .*?(?=^## |\Z)", text, flags=re.M | re.S)
    (code,) = (block["code"] for block in FENCE.finditer(section) if block["kind"] == "python")
    assert len(code.splitlines()) < 40
    assert names_from_elsewhere(compile(code, part, "exec")) == set()


def names_from_elsewhere(code: CodeType) -> set[str]:
    """Names that a module reads and nowhere defines."""
    read, defined, waiting = set(), {*vars(builtins), "__annotations__"}, [code]
    while waiting:
        here = waiting.pop()
        waiting += [constant for constant in here.co_consts if isinstance(constant, CodeType)]
        for instruction in dis.get_instructions(here):
            if instruction.opname in {"LOAD_NAME", "LOAD_GLOBAL"}:
                read.add(instruction.argval)
            elif instruction.opname in {"STORE_NAME", "STORE_GLOBAL"}:
                defined.add(instruction.argval)
    return read - defined


def test_a_name_from_elsewhere_is_seen() -> None:
    assert names_from_elsewhere(compile("import os\n\nclass A(B):\n    def c(self, d=E):\n        return os, F, d, len", "x", "exec")) == {
        "B",
        "E",
        "F",
    }


def commands(code: str) -> Iterator[list[str]]:
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def keep_yaml(code: str) -> None:
    """A file, if its first line is a comment with its name."""
    assert isinstance(yaml.safe_load(code), dict)
    name = re.match(r"# (\w+\.yaml)", code)
    if name:
        Path(name[1]).write_text(code, "utf-8")


def follow(words: list[str], only_check: bool) -> None:
    program, *rest = words
    own = any(THE_READERS_OWN.fullmatch(word) for word in rest)
    if program == "continua" and not (only_check or own or rest[0] in SERVES):
        assert answers(rest) == 0, shlex.join(words)
    else:
        assert program in CHECKS, f"{shlex.join(words)}: no test knows {program!r}; say in CHECKS how to check it"
        CHECKS[program](rest)


def answers(words: list[str]) -> object:
    try:
        return cli.main(words)
    except SystemExit as end:  # --help
        return end.code


def check_continua(words: list[str]) -> None:
    """Options as the command line reads them; recipes and sweeps resolved; studies known."""
    own = any(THE_READERS_OWN.fullmatch(word) for word in words)
    if words[0] == "train" and "--resume" not in words and not own:
        assert answers([*words, "--print-config"]) == 0, shlex.join(words)
        return
    cli.parse(words)
    if words[0] == "sweep" and not own and not (seen := Path(f"{words[1]}.seen")).exists():
        assert answers(["sweep", words[1], "--status"]) == 0, shlex.join(words)  # builds the network of every cell
        seen.touch()
    if words[0] == "reproduce" and "/" in words[1]:
        find_study(words[1])


def check_torchrun(words: list[str]) -> None:
    from torch.distributed.run import get_args_parser

    asked = get_args_parser().parse_args(words)
    assert asked.module
    assert asked.training_script == "continua"
    check_continua(asked.training_script_args)


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.M)
    assert set(words) <= set(targets), words


def check_pip(words: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert words[0] == "install"
    for extra in re.findall(r"\[([\w,]+)\]", " ".join(words)):
        assert set(extra.split(",")) <= set(extras), words
    assert all((ROOT / word).exists() for word in words if word.endswith(".txt"))


def check_script(words: list[str]) -> None:
    """A script of the project whose options are written in it."""
    script = ROOT / words[0]
    code = script.read_text("utf-8") + (script.with_name("_common.py").read_text("utf-8") if script.parent.name == "benchmarks" else "")
    assert all(f'"{word}"' in code for word in words[1:] if word.startswith("--")), words


def check_variables(words: list[str]) -> None:
    assert all(re.fullmatch(r"\w+=\S+", word) for word in words), words


def check_activation(words: list[str]) -> None:
    assert words == [".venv/bin/activate"]


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "continua": check_continua,
    "torchrun": check_torchrun,
    "make": check_make,
    "pip": check_pip,
    "python": check_script,
    "export": check_variables,
    ".": check_activation,
}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_code_of_a_page_escapes_the_tests(page: Path) -> None:
    text = page.read_text("utf-8")
    assert {block.kind for block in blocks(page)} <= KINDS
    outside = FENCE.sub("", text)
    assert "```" not in outside, "a fence that the tests cannot read"
    assert not re.findall(r"^(?: {4}|\t)(?:continua|torchrun|python|make|pip) .*", outside, flags=re.M), "commands belong into ```sh"


@pytest.mark.parametrize(
    "wrong",
    [
        "continua train --recipe dcn --modle dcn_ode",
        "continua train --recipe nothing",
        "continua analyse scales RUN --no_such_option 1",
        "continua reproduce dcn/table99",
        "torchrun --processes 4 -m continua train --recipe dcn",
        "make tea",
        "pip install 'continua[nothing]'",
        "python benchmarks/solver.py --nothing",
        "curl example.org",
    ],
)
def test_the_check_of_commands_sees_a_wrong_one(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BaseException):  # noqa: B017, PT011 - parsers raise what they like
        follow(shlex.split(wrong), only_check=True)


def test_the_tables_of_speed_are_what_the_benchmarks_said() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "scripts/speed-tables"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
