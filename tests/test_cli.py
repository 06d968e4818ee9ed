"""The command line: what it prints, what it makes, and one line with exit code 2 when something is wrong."""

import hashlib
import json
import resource
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from command_line import failed
from official import SMALL_CIFAR10, random_bytes, tar_gz, write_cifar10_python, write_tiny

from continua import ContinuaError
from continua.analysis import known_questions
from continua.cli import commands, main
from continua.data.catalogue import CATALOGUE
from continua.data.sources import CONTENTS_MD5, REMOTES
from continua.runs import load_recipe

QUESTIONS = known_questions()  # before tests register theirs
PIXELS, LABELS = random_bytes(30, 3072), [i % 10 for i in range(30)]


@pytest.fixture
def small_cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The catalogue's CIFAR-10 becomes a small one, whose archive is returned."""
    folder = write_cifar10_python(tmp_path / "made", PIXELS, LABELS)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    archive = tar_gz({f"cifar-10-batches-py/{name}": contents for name, contents in files.items()})
    remote = replace(
        REMOTES["cifar10"]["python"][0],
        md5=hashlib.md5(archive).hexdigest(),
        size=len(archive),
        addresses=("http://127.0.0.1:9/cifar-10-python.tar.gz",),
    )
    monkeypatch.setitem(REMOTES, "cifar10", {"python": (remote,)})
    monkeypatch.setitem(CATALOGUE, "cifar10", SMALL_CIFAR10)
    monkeypatch.setitem(CONTENTS_MD5, "cifar10", {name: hashlib.md5(contents).hexdigest() for name, contents in files.items()})
    return archive


def test_no_words_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert "demo" in shown
    assert "data" in shown


def test_every_command_is_a_line_of_the_table_and_a_file() -> None:
    files = {path.stem for path in Path(commands.__file__).parent.glob("*.py")} - {"__init__", "commands"}
    assert set(commands.COMMANDS) == files
    for name in commands.COMMANDS:
        command = import_module(f"continua.cli.{name}").COMMAND
        assert (command.run is None) == bool(command.subcommands), name
        assert command.description.endswith("."), name


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert f"continua [options] {name}" in " ".join(capsys.readouterr().out.split())


def test_list_shows_every_set_and_what_is_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_cifar10_python(tmp_path, PIXELS, LABELS)
    write_tiny(tmp_path, ("val",))
    assert main(["data", "list", "--data-dir", str(tmp_path)]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert str(tmp_path) in lines[0]
    rows = {line.split()[0]: line for line in lines if line.split()}
    assert set(CATALOGUE) <= set(rows)
    assert rows["digits"].endswith("embedded")
    assert "cifar-10-batches-py" in rows["cifar10"]
    assert rows["tiny_imagenet_200"].endswith("tiny-imagenet-200 (lacks train)")
    assert rows["mnist"].split()[-1] == "no"
    assert "(169 MB to fetch)" not in rows["cifar100"]  # its size is not published


def test_fetch_then_check_then_list(small_cifar: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "cifar-10-python.tar.gz").write_bytes(small_cifar)
    where = ["--data-dir", str(data)]
    assert main(["data", "fetch", "cifar10", *where]) == 0
    assert f"fetched {data / 'cifar-10-batches-py'}" in capsys.readouterr().out
    assert main(["data", "check", "cifar10", *where]) == 0
    shown = capsys.readouterr().out
    assert shown.count("official") == 7
    assert shown.splitlines()[-1] == "cifar10: all right"
    assert main(["data", "fetch", "cifar10", *where]) == 0
    assert "is here already" in capsys.readouterr().out


def test_check_of_a_changed_file_shows_the_table_and_fails(small_cifar: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = tmp_path / "made" / "cifar-10-batches-py" / "data_batch_3"
    batch.write_bytes(batch.read_bytes().replace(PIXELS[8].tobytes(), PIXELS[9].tobytes()))
    assert main(["data", "check", "cifar10", "--data-dir", str(tmp_path / "made")]) == 2
    shown = capsys.readouterr()
    assert [line.split()[-1] for line in shown.out.splitlines() if line.startswith("data_batch_3")] == ["WRONG"]
    assert "data_batch_3 has MD5" in shown.err
    assert shown.err.count("\n") == 1


def test_a_fetch_without_a_network_fails_in_one_line_and_leaves_nothing(
    small_cifar: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("continua.data.fetch.time.sleep", pauses.append)
    error = failed(capsys, "data", "fetch", "cifar10", "--data-dir", str(tmp_path / "new"), "--mirror", "http://127.0.0.1:9/mine")
    assert "http://127.0.0.1:9/mine/cifar-10-python.tar.gz: no connection" in error
    assert "4 times without a byte" in error
    assert list((tmp_path / "new").iterdir()) == []
    assert pauses == [1, 2, 4] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data", "check", "cifra10"], "did you mean cifar10?"),
        (["data", "fetch", "fashon_mnist"], "did you mean fashion_mnist?"),
        (["data", "check", "cifar10", "--data-dir", "nowhere"], "run `continua data fetch cifar10`"),
        (["data", "fetch", "mnist", "--layout", "binary"], "unknown layout of mnist 'binary'; known: idx"),
        (["data", "fetch", "digits", "--layout", "binary"], "it is embedded"),
        (["data", "check", "image_folder"], "a tree of your own"),
        (["data", "check"], "NAME is missing; continua data check --help"),
        (["evaluate"], "RUN is missing; continua evaluate --help"),
        (["evaluate", "nowhere"], "nowhere is not a run: there is no such folder"),
        (["data"], "continua data is followed by one of list, fetch, check"),
        (["reproduce", "dcn/table2a", "--scale", "tiny"], "scale is 'tiny'; expected smoke or cpu or wide or paper"),
        (["reproduce", "dcn/table2a", "--seeds", "many"], "seeds is 'many'; expected a whole number: runs of each model"),
        (["analyse", "contrast", "RUN", "--contrasts", "a,b"], "contrasts is 'a,b'; expected a whole number: how many values of c"),
        (["train", "--recipe", "demo", "--drop-last", "maybe"], "drop_last is 'maybe'; expected true or false or auto"),
        (["train", "--recipe", "demo", "--optimiser.betas", "3"], "optimiser.betas is '3'; expected a list"),
        (["train", "--recipe", "demo", "--model-options.channels", "8"], "channels is 8; expected a list"),
        (["data", "chek", "cifar10"], "unknown command 'chek'; did you mean check? continua data is followed by one of list, fetch, check"),
        (["trian"], "unknown command 'trian'; did you mean train?"),
        (["data", "list", "--no-such-option"], "unknown option '--no-such-option'; continua data list --help shows all"),
        (["data", "fetch", "mnist", "--timeout", "soon"], "timeout is 'soon'; expected a number"),
        (["data", "fetch", "mnist", "--timeout"], "--timeout needs a value"),
        (["data", "list", "cifar10"], "unexpected word 'cifar10'; continua data list --help shows what it takes"),
        (["--versoin"], "unknown option '--versoin'; did you mean --version?"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in failed(capsys, *words)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    assert str(tmp_path / "file") in failed_after_progress(capsys, "demo", "--epochs", "1", "--out", str(tmp_path / "file"))


def failed_after_progress(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("words", [["--debug", "data", "check", "cifra10"], ["data", "check", "cifra10", "--debug"]])
def test_debug_shows_the_traceback(words: list[str]) -> None:
    with pytest.raises(ContinuaError):
        main(words)


def test_fetching_what_is_embedded_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "digits"]) == 0
    assert "digits is here already" in capsys.readouterr().out


def options_of_all() -> dict[str, dict[str, bool]]:
    """Of every command without commands of its own; of `analyse` for each analysis, whose options differ."""
    known = {}
    for name in commands.COMMANDS:
        command = import_module(f"continua.cli.{name}").COMMAND
        if command.subcommands:
            continue
        for word in QUESTIONS if name == "analyse" else [""]:
            parser = commands.Parser("")
            command.add_arguments(parser, [word] if word else [])
            known[f"{name} {word}".strip()] = dict(sorted(parser.takes_value.items()))
    return known


def test_kept_options_are_those_of_the_commands() -> None:
    assert json.loads(commands.OPTIONS_FILE.read_text("utf-8")) == options_of_all(), (
        "write them anew: PYTHONPATH=tests/support python tests/test_cli.py"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["trian"],
        ["--halp"],
        ["train", "--frobnicate"],
        ["reproduce", "--liszt"],
        ["reproduce", "--list"],
        ["models", "dcn*"],
        ["analyse", "steps", "run", "--tolerence", "1"],
    ],
)
def test_help_and_wrong_words_are_answered_at_once_without_pytorch(words: list[str]) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    program = f"import sys\nfrom continua.cli import main\ntry:\n    main({words!r})\nfinally:\n    "
    program += "print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "False False", done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < 0.9, f"{seconds:.2f} s of processor time; 0.1 to 0.25 on an idle machine, 2 with PyTorch"


@pytest.mark.parametrize(
    "options", [["--model-options.channels", "[8, 16]"], ["--model_options.solver.steps=2"], ["--optimiser.lr", "0.1"]]
)
def test_options_of_options_pass_the_quick_check(options: list[str]) -> None:
    commands.check_options("train", ["--recipe", "demo", *options, "--print-config"])
    with pytest.raises(ContinuaError, match=r"unknown option '--optimiser\.lrr'; did you mean --optimiser\.lr"):
        commands.check_options("train", [*options, "--optimiser.lrr", "3"])


def test_american_spellings_are_understood() -> None:
    ours, theirs = (
        commands.parse(["train", "--recipe", "demo", f"--{word}.lr", "0.5", f"--{word}.momentum=0.8"])
        for word in ("optimiser", "optimizer")
    )
    assert theirs[1] == ours[1]
    assert commands.parse(["analyze", "steps", "run"])[1] == commands.parse(["analyse", "steps", "run"])[1]
    assert load_recipe("demo", {"optimizer": {"lr": 0.5}}) == load_recipe("demo", {"optimiser": {"lr": 0.5}})


if __name__ == "__main__":
    commands.OPTIONS_FILE.write_text(json.dumps(options_of_all(), indent=1) + "\n", "utf-8")
