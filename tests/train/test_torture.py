"""`make torture` for a short while, and that what it tells is so."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from failing_disk import FailingDisk, Ledger

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "torture.py"
KEPT = ROOT / "results" / "checks" / "torture.json"


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_commands_that_are_struck_at_random_go_on_and_end_with_the_same_files(tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    words = ["--minutes", "1.5", "--seed", "0", "--sample", "--json", str(counts)]
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (told,) = json.loads(counts.read_text())["runs"]
    assert told["lost"] == []
    assert told["strikes"] >= 5, told
    assert set(told["points"]) == {"train", "fetch", "sweep", "analyse", "reproduce"}
    assert all(points > 50 for points in told["points"].values()), "everything that is written passes the stand-in"


# --- the stand-in itself: a disk that loses nothing would prove nothing -------------------------------------------------


def test_what_is_not_synced_is_gone_after_a_power_cut(tmp_path: Path) -> None:
    (tmp_path / "before").write_bytes(b"as it was")
    ledger = Ledger(tmp_path)
    (tmp_path / "before").write_bytes(b"changed")
    (tmp_path / "new").write_bytes(b"new")
    ledger.changed(str(tmp_path))
    ledger.cut_power(None)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"before": b"as it was"}


def test_a_synced_file_is_lost_without_its_name_and_empty_with_its_name_alone(tmp_path: Path) -> None:
    for synced, left in ((("file",), {}), (("folder",), {"a": b""}), (("file", "folder"), {"a": b"contents"})):
        home = tmp_path / "-".join(synced)
        home.mkdir()
        with FailingDisk(home, "power", 0).installed() as disk:
            import os

            with open(home / "a", "wb") as file:
                file.write(b"contents")
                file.flush()
                if "file" in synced:
                    os.fsync(file.fileno())
            if "folder" in synced:
                handle = os.open(home, os.O_RDONLY)
                os.fsync(handle)
                os.close(handle)
        assert disk.ledger is not None
        disk.ledger.cut_power(None)
        assert {path.name: path.read_bytes() for path in home.iterdir()} == left


def test_a_journal_keeps_names_in_their_order_and_a_rename_whole(tmp_path: Path) -> None:
    """Whatever is drawn, the renamed file is there under one of its names: never under none."""
    seen = set()
    for seed in range(40):
        home = tmp_path / str(seed)
        home.mkdir()
        (home / "a").write_bytes(b"1")
        with FailingDisk(home, "torn", 0, seed).installed() as disk:
            (home / "a").rename(home / "b")
        assert disk.ledger is not None
        disk.ledger.cut_power(random.Random(seed))
        names = {path.name for path in home.iterdir()}
        assert names in ({"a"}, {"b"})
        seen |= names
    assert seen == {"a", "b"}


# --- what is kept -------------------------------------------------------------------------------------------------------


def test_the_counts_in_the_text_are_those_of_the_runs_that_are_kept() -> None:
    """SECURITY.md says what `make torture` came to; what was counted is kept."""
    runs = json.loads(KEPT.read_text("utf-8"))["runs"]
    for run in runs:
        assert run["lost"] == []
        assert sum(run["by_way"].values()) == run["strikes"] == sum(sum(each.values()) for each in run["by_command"].values())
        assert run["kills"] == run["by_way"]["kill"] + run["by_way"]["moment"]
    seeds = ", ".join(str(run["seed"]) for run in runs)
    whole = sorted({name for run in runs for name in run["every_point_in_every_way"]})
    expected = [
        f"{sum(run['strikes'] for run in runs):,} strikes, {sum(run['kills'] for run in runs):,} of them kills, 0 lost (seeds {seeds})",
        f"every file operation in every way: {', '.join(whole) or 'of no command yet'}",
    ]
    text = " ".join((ROOT / "SECURITY.md").read_text("utf-8").split())
    assert [words for words in expected if words not in text] == [], "SECURITY.md must say this"
