"""`continua data`: list, fetch and check data sets."""

from jsonargparse import Namespace

from continua.cli.commands import Command, Parser, Words
from continua.errors import DataError, unknown_name


def _add_name(parser: Parser, words: Words) -> None:
    parser.add_argument("name", metavar="NAME", type=str, help="a name from `continua data list`")
    parser.common("data_dir")


def _add_fetch_arguments(parser: Parser, words: Words) -> None:
    _add_name(parser, words)
    parser.option("layout", str | None, None, "which official layout (cifar10, cifar100: python or binary)")
    parser.option("mirror", str | None, None, "address of a folder to try before the official ones")
    parser.option("timeout", float, 30.0, "seconds to wait for a silent server")


def _list(options: Namespace) -> None:
    from continua.data import CATALOGUE, data_folder, data_presence
    from continua.report import show_table, size_text

    root = data_folder(options.data_dir)
    rows = []
    for known in CATALOGUE.values():
        here = data_presence(known, root)
        size = size_text(here.size) if here.size else f"({size_text(here.download)} to fetch)" if here.download else ""
        images = " + ".join(f"{sum(counts):,}" for counts in known.counts.values())
        shape = "×".join(map(str, known.shape))
        rows.append((known.name, images, len(known.counts["train"]), shape, size, here.where(root)))
    show_table(f"data sets in {root}", ("name", "images", "classes", "shape", "size", "here"), rows, text=(0, 5))


def _fetch(options: Namespace) -> None:
    from continua.data import REMOTES, Patience, catalogue_entry, data_folder, data_presence, fetch_data, forget_fetched

    known, root = catalogue_entry(options.name), data_folder(options.data_dir)
    layouts = REMOTES.get(known.name, {})
    if options.layout is not None and options.layout not in layouts:
        raise unknown_name(f"layout of {known.name}", options.layout, layouts, see="" if layouts else "it has none: it is embedded")
    here = data_presence(known, root)
    if not layouts or (here.state == "yes" and options.layout is None):
        forget_fetched([remote for layout in layouts.values() for remote in layout], root)
        print(f"{known.name} is here already: {here.folder}" + (" (move that folder away to fetch it anew)" if layouts else ""))
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
    checked = check_data(known, data_folder(options.data_dir))
    verdict = {True: "official", False: "WRONG", None: "none published"}
    if checked.files:
        rows = [(file.path.name, size_text(file.size), verdict[file.official]) for file in checked.files]
        show_table(f"{checked.name}: files in {checked.folder}", ("file", "size", "checksum"), rows)
    if checked.splits:
        rows = []
        for split in checked.splits:
            least, most = min(split.counts), max(split.counts)
            each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            means = ", ".join(f"{mean:.4f}" for mean in split.means)
            rows.append((split.split, sum(split.counts), len(split.counts), each, "×".join(map(str, split.shape)), means))
        show_table(f"{checked.name}: images", ("split", "images", "classes", "per class", "shape", "channel means"), rows)
    for split in checked.absent:
        print(f"this copy has no {split} split")
    if checked.problems:
        more = f" (and {len(checked.problems) - 1} more)" if len(checked.problems) > 1 else ""
        raise DataError(checked.problems[0] + more)
    print(f"{checked.name}: all right")


COMMAND = Command(
    "Data sets: what is known, what is here, whether it is right.",
    subcommands={
        "list": (
            "what is known, what is here, where, its size",
            Command(
                "Every known data set: whether it is here, where, and its size.", _list, lambda parser, words: parser.common("data_dir")
            ),
        ),
        "fetch": (
            "download and verify a data set",
            Command("Download a data set, resuming where an earlier attempt stopped, and verify it.", _fetch, _add_fetch_arguments),
        ),
        "check": (
            "compare a data set on disk with the official one",
            Command("Compare a data set on disk with the official one: checksums, shapes, images per class.", _check, _add_name),
        ),
    },
)
