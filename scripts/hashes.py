"""Write hashes.txt: each package that constraints.txt pins, with the SHA-256 of every file that the registry holds of that version.

    python scripts/hashes.py [FOLDER OF WHEELS ...]

Run it after a change of constraints.txt; it asks the index that pip itself asks. The folders are for files that are not there:
PyTorch's builds for the CPU come from an index of its own. They are what is meant on Linux, under their full version (`2.13.0+cpu`): the
builds of the same number that PyPI has there ask for a dozen packages of CUDA, which nobody pinned. `make hashed` installs by this file:
one that is none of these is refused.
"""

import hashlib
import os
import re
import subprocess
import sys
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

from bill_of_materials import pinned

ROOT = Path(__file__).parents[1]
HEAD = "# Made by scripts/hashes.py from constraints.txt: what `make hashed` installs, and nothing else of the same name.\n"


def index_address() -> str:
    """The package index that pip asks: one that is configured, or pip's own."""
    from pip._internal.models.index import PyPI

    configured = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True)
    return (os.environ.get("PIP_INDEX_URL") or configured.stdout.strip() or PyPI.simple_url).rstrip("/")


class Links(HTMLParser):
    """The files of a page of the registry, with their SHA-256."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address, _, digest = (dict(attrs).get("href") or "").partition("#sha256=")
        if tag == "a" and digest:
            self.sums[address.rsplit("/", 1)[-1]] = digest


def version_of(file: str, name: str) -> str | None:
    """The version in the name of a wheel or of a source archive of a package; without the local part of a build (`+cpu`)."""
    plain = re.sub(r"[-_.]+", "_", name).lower()
    stem = re.sub(r"\.(whl|tar\.gz|zip|tar\.bz2)$", "", file.replace("%2B", "+"))
    parts = stem.split("-")
    for cut in range(1, len(parts)):
        if re.sub(r"[-_.]+", "_", "-".join(parts[:cut])).lower() == plain:
            return parts[cut].partition("+")[0]
    return None


def sums_of(index: str, name: str, version: str, folders: list[Path]) -> str:
    """SHA-256 of every file of a version, in the registry and in folders of wheels, as lines of requirements."""
    with urllib.request.urlopen(f"{index}/{name}/", timeout=60) as response:
        page = Links()
        page.feed(response.read().decode())
    files = [path for folder in folders for path in folder.glob("*.whl")]
    sums = {file: digest for file, digest in page.sums.items() if version_of(file, name) == version}
    sums |= {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files if version_of(path.name, name) == version}
    builds: dict[str, dict[str, str]] = {}
    for file, digest in sums.items():
        builds.setdefault(re.sub(r"[^+]*(\+\w+)?.*", r"\1", file.replace("%2B", "+"), count=1), {})[file] = digest
    both = len(builds) > 1
    return "".join(
        block(
            f"{name}=={version}{build}" + (f' ; sys_platform {"==" if build else "!="} "linux"' if both or build else ""),
            set(some.values()),
        )
        for build, some in sorted(builds.items(), reverse=True)
    )


def block(requirement: str, sums: set[str]) -> str:
    return " \\\n    ".join([requirement, *(f"--hash=sha256:{digest}" for digest in sorted(sums))]) + "\n"


def main() -> int:
    folders = [Path(word) for word in sys.argv[1:]]
    lines, target, index = [HEAD], ROOT / "hashes.txt", index_address()
    known: dict[str, str] = {}
    for text in re.findall(r"^\S+==.*\\\n(?:    --hash=\S+(?: \\)?\n)+", target.read_text() if target.exists() else "", re.MULTILINE):
        plain = re.split(r"[+ ]", text, maxsplit=1)[0]
        known[plain] = known.get(plain, "") + text
    for name, version in pinned(ROOT / "constraints.txt").items():
        if f"{name}=={version}" in known:  # to ask for all anew, remove the file
            lines.append(known[f"{name}=={version}"])
            continue
        sums = sums_of(index, name, version, folders)
        if not sums:
            print(f"{name}=={version} is not in the registry", file=sys.stderr)
            return 1
        lines.append(sums)
    target.write_text("".join(lines))
    print(f"wrote hashes.txt: {len(lines) - 1} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
