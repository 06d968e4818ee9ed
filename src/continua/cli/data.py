"""`continua data`: list, fetch and check data sets."""

from collections.abc import Callable
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from continua.errors import ConfigError, DataError


def add_data_commands(data: ArgumentParser, command: Callable[[str], ArgumentParser]) -> dict[str, Callable[[Namespace], None]]:
    commands = data.add_subcommands(dest="command", metavar="COMMAND")

    listing = command("Every known data set: whether it is here, where, and its size.")
    fetching = command("Download a data set, resuming where an earlier attempt stopped, and verify it.")
    checking = command("Compare a data set on disk with the official one: checksums, shapes, images per class.")
    for parser in (fetching, checking):
        parser.add_argument("name", metavar="NAME", type=str, help="a name from `continua data list`")
    for parser in (listing, fetching, checking):
        parser.add_argument(
            "--data-dir", type=Path | None, default=None, help="folder of all data sets (else CONTINUA_DATA, else the user's cache)"
        )
    fetching.add_argument("--layout", type=str | None, default=None, help="which official layout (cifar10, cifar100: python or binary)")
    fetching.add_argument("--mirror", type=str | None, default=None, help="address of a folder to try before the official ones")
    fetching.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for a silent server")

    commands.add_subcommand("list", listing, help="what is known, what is here, where, its size")
    commands.add_subcommand("fetch", fetching, help="download and verify a data set")
    commands.add_subcommand("check", checking, help="compare a data set on disk with the official one")
    return {"data list": _list, "data fetch": _fetch, "data check": _check}


def _list(options: Namespace) -> None:
    from continua.data import CATALOGUE, data_folder, data_presence
    from continua.report import show_table, size_text

    root = data_folder(options.data_dir)
    rows = []
    for known in CATALOGUE.values():
        found = data_presence(known, root)
        size = size_text(found.size) if found.size else f"({size_text(found.download)} to fetch)" if found.download else ""
        images = " + ".join(f"{sum(counts):,}" for counts in known.counts.values())
        shape = "×".join(map(str, known.shape))
        rows.append((known.name, images, len(known.counts["train"]), shape, size, found.where(root)))
    show_table(f"data sets in {root}", ("name", "images", "classes", "shape", "size", "here"), rows, text=(0, 5))


def _fetch(options: Namespace) -> None:
    from continua.data import REMOTES, Patience, catalogue_entry, data_folder, data_presence, fetch_data

    known, root = catalogue_entry(options.name), data_folder(options.data_dir)
    layouts = REMOTES.get(known.name, {})
    if options.layout is not None and options.layout not in layouts:
        raise ConfigError(f"{known.name} has no layout {options.layout!r}; it has {', '.join(layouts) or 'none: it is embedded'}")
    found = data_presence(known, root)
    if not layouts or (found.state == "yes" and options.layout is None):
        print(f"{known.name} is here already: {found.folder}" + (" (move that folder away to fetch it anew)" if layouts else ""))
        return
    remotes = layouts[options.layout or next(iter(layouts))]
    mirrors = (options.mirror,) if options.mirror else ()
    for path in fetch_data(remotes, root, mirrors, Patience(timeout=options.timeout)):
        print(f"fetched {path}")
    print(f"`continua data check {known.name}` looks inside.")


def _check(options: Namespace) -> None:
    from continua.data import catalogue_entry, check_data, data_folder
    from continua.report import show_table, size_text

    known = catalogue_entry(options.name)
    found = check_data(known, data_folder(options.data_dir))
    verdict = {True: "official", False: "WRONG", None: "none published"}
    if found.files:
        rows = [(file.path.name, size_text(file.size), verdict[file.official]) for file in found.files]
        show_table(f"{found.name}: files in {found.folder}", ("file", "size", "checksum"), rows)
    if found.splits:
        rows = []
        for split in found.splits:
            least, most = min(split.counts), max(split.counts)
            each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            means = ", ".join(f"{mean:.4f}" for mean in split.means)
            rows.append((split.split, sum(split.counts), len(split.counts), each, "×".join(map(str, split.shape)), means))
        show_table(f"{found.name}: images", ("split", "images", "classes", "per class", "shape", "channel means"), rows)
    for split in found.absent:
        print(f"this copy has no {split} split")
    if found.problems:
        more = f" (and {len(found.problems) - 1} more)" if len(found.problems) > 1 else ""
        raise DataError(found.problems[0] + more)
    print(f"{found.name}: all right")
