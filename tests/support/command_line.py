"""What tests of the command line share."""

import pytest

from continua.cli import main


def failed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line on stderr of a command that fails with exit code 2."""
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("continua: ")
    assert error.count("\n") == 1
    return error
