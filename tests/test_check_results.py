"""scripts/check_results.py: a kept run is as good as it is stored to be, or the script says that it is not."""

import json
import runpy
from pathlib import Path

import pytest
from training import QUIET, tiny_recipe

from continua.train import train

SCRIPT = Path(__file__).parents[1] / "scripts" / "check_results.py"


def test_a_run_is_compared_with_its_stored_accuracy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main, run = runpy.run_path(str(SCRIPT))["main"], tmp_path / "run"
    train(tiny_recipe(), run, QUIET)
    out, progress = tmp_path / "table.json", tmp_path / "done.jsonl"
    words = [str(run), "--out", str(out), "--progress", str(progress)]
    assert main(words) == 0
    (line,) = json.loads(out.read_text("utf-8"))["runs"]
    assert (line["verdict"], line["correct"], line["failed"]) == ("equal", line["stored_correct"], 0)

    result = json.loads((run / "result.json").read_text("utf-8"))
    result["test_accuracy"] += 0.5 if result["test_accuracy"] < 0.5 else -0.5
    (run / "result.json").write_text(json.dumps(result))
    assert main(words) == 0, "done already, as its line in the file of progress says"
    progress.unlink()
    assert main(words) == 1
    assert json.loads(out.read_text("utf-8"))["verdicts"] == {"differs": 1}
    for path in (run / "best").iterdir():
        path.unlink()
    assert main([str(run)]) == 0
    assert "1 no weights kept" in capsys.readouterr().out
