"""A package that somebody exchanged, under the right name and version, is not installed by hashes.txt."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAME = "packaging"


def forged(folder: Path) -> str:
    """A wheel of the pinned name and version with contents of its own; its entry of hashes.txt."""
    found = re.search(rf"^{NAME}==([\d.]+) \\\n(?:    --hash=\S+(?: \\)?\n)+", (ROOT / "hashes.txt").read_text(), re.MULTILINE)
    assert found is not None
    label = f"{NAME}-{found[1]}"
    with zipfile.ZipFile(folder / f"{label}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("packaging/__init__.py", "raise SystemExit('somebody else')\n")
        wheel.writestr(f"{label}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {found[1]}\n")
        wheel.writestr(f"{label}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{label}.dist-info/RECORD", "")
    return found[0]


@pytest.mark.parametrize("by_hash", [True, False])
def test_an_exchanged_package_is_installed_without_hashes_and_refused_with_them(by_hash: bool, tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    entry = forged(tmp_path / "wheels")
    (tmp_path / "asked.txt").write_text(entry if by_hash else entry.split(" ")[0] + "\n")
    rule = re.search(r"pip install (.*--require-hashes.*) -r hashes\.txt", (ROOT / "Makefile").read_text())
    assert rule is not None
    words = rule[1].split() if by_hash else ["--no-deps"]
    words += ["--no-index", "--find-links", str(tmp_path / "wheels"), "--target", str(tmp_path / "out"), "-r", str(tmp_path / "asked.txt")]
    done = subprocess.run([sys.executable, "-m", "pip", "install", *words], capture_output=True, text=True)
    assert (tmp_path / "out" / "packaging").exists() is not by_hash
    assert ("DO NOT MATCH THE HASHES" in done.stderr) is by_hash
