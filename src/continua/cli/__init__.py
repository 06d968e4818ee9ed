"""The command `continua`: one thin file per subcommand that parses options, calls the package and prints."""

from continua.cli.main import main

__all__ = ["main"]
