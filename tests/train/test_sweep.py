"""Sweeps: only what is missing is done, failures are tried once more, and a stopped cell goes on exactly."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sweeping import Pretended, small_recipe, write_sweep
from training import QUIET, lasting_lines, weights

from continua.cli import main
from continua.errors import ConfigError
from continua.train import (
    Run,
    RunOptions,
    Sweep,
    View,
    load_recipe,
    load_sweep,
    read_statuses,
    resolve,
    run_id,
    run_sweep,
    show_status,
    summary,
    train,
)
from continua.train.loop import Training
from continua.train.sweeps.cells import CellStatus, last_words
from continua.train.sweeps.jobs import CellJob, JobSignals, slurm_parameters
from continua.train.sweeps.table import summarise


def sweep_of(folder: Path, **axes: Any) -> Sweep:
    return load_sweep(write_sweep(folder / "sweep.yaml", **axes), folder / "runs")


# --- the file -----------------------------------------------------------------------------------------------------------


def test_the_grid_is_the_product_of_its_axes(tmp_path: Path) -> None:
    small = {"name": "small", "model": "dcn_ode", "model_options.channels": [2, 4]}
    sweep = sweep_of(tmp_path, models=["dcn_ode", small], per_class=[2, 4], seeds=3, grid={"optimiser.lr": [0.1, 0.2]})
    assert len(sweep) == 2 * 2 * 3 * 2
    first, last = sweep.cells[0], sweep.cells[-1]
    assert first.label == {"model": "dcn_ode", "per_class": 2, "seed": 0, "optimiser.lr": 0.1}
    assert last.name == "small per_class=4 seed=2 optimiser.lr=0.2"
    assert (last.recipe.model_options["channels"], last.recipe.per_class, last.recipe.seed, last.recipe.optimiser.lr) == ([2, 4], 4, 2, 0.2)
    assert len({cell.identity for cell in sweep.cells}) == len({cell.folder for cell in sweep.cells}) == len(sweep)


def test_a_cell_is_the_run_that_continua_train_would_make(tmp_path: Path) -> None:
    cell = sweep_of(tmp_path, seeds=[3]).cells[0]
    assert cell.recipe == resolve(small_recipe(seed=3))


def test_cells_that_are_the_same_run_are_one_cell(tmp_path: Path) -> None:
    written_out = {"name": "again", "model": "dcn_ode", "model_options.activation": "celu"}
    assert len(sweep_of(tmp_path, models=["dcn_ode", written_out], seeds=[0, 1, 1])) == 2


def test_a_recipe_beside_the_sweep_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.yaml").write_text("data: digits\nepochs: 7\nmodel_options: {stem_padding: 1, channels: [2, 2]}\n")
    (tmp_path / "sweep.yaml").write_text("recipes: [own.yaml]\n")
    monkeypatch.chdir("/")
    assert load_sweep(tmp_path / "sweep.yaml", tmp_path).cells[0].recipe.epochs == 7
    assert load_recipe(tmp_path / "own.yaml").epochs == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("recipe: demo", "unknown key 'recipe'; did you mean recipes?"),
        ("recipes: demo\nepochs: 3", "belong under `set` or `grid`"),
        ("models: dcn_ode", "there are no recipes"),
        ("recipes: dmo", "did you mean demo?"),
        ("recipes: demo\nmodels: dcn_oed", "did you mean dcn_ode"),
        ("recipes: demo\nset: {optimisr.lr: 1}", "did you mean optimiser"),
        ("recipes: demo\ngrid: [1]", "expected a mapping"),
        ("recipes: demo\nseeds: []", "empty list"),
        ("recipes: demo\nmodels: [{model_options: {}}]", "it needs a `model`"),
        ("- demo", "holds list"),
    ],
)
def test_a_mistake_in_the_file_is_named_before_anything_runs(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_sweep(tmp_path / "sweep.yaml", tmp_path)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ntasks_per_node": 2}, "one process on one node"),
        ({"partitoin": "gpu"}, "did you mean partition?"),
        ({"time": "1h"}, "whole minutes"),
    ],
)
def test_what_a_cluster_cannot_be_asked_for_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        slurm_parameters(given)


def test_a_job_may_be_requeued_and_its_step_has_its_processors() -> None:
    found = slurm_parameters({"cpus_per_task": 4, "partition": "gpu"})
    assert found["additional_parameters"] == {"requeue": True}
    assert found["srun_args"] == ["--cpus-per-task=4"]
    assert (found["nodes"], found["ntasks_per_node"], found["partition"]) == (1, 1, "gpu")


# --- carrying it out ----------------------------------------------------------------------------------------------------


def test_only_what_is_missing_is_done_also_when_the_sweep_grows(tmp_path: Path) -> None:
    first = Pretended()
    assert run_sweep(sweep_of(tmp_path, seeds=2), first, QUIET, jobs=1).count("done") == 2
    again, grown = Pretended(), Pretended()
    assert run_sweep(sweep_of(tmp_path, seeds=2), again, QUIET).count("done") == 2
    assert again.jobs == {}
    assert run_sweep(sweep_of(tmp_path, seeds=3), grown, QUIET).count("done") == 3
    assert [name.split("-seed")[1][0] for name in grown.folders] == ["2"]


def test_a_run_made_by_hand_counts(tmp_path: Path) -> None:
    by_hand, executor = Run(tmp_path / "runs" / "by-hand"), Pretended()
    by_hand.create(resolve(small_recipe(seed=1)))
    by_hand.write_json(by_hand.result_file, {"identity": run_id(by_hand.recipe), "parameters": 7, "test_accuracy": 0.5})
    outcome = run_sweep(sweep_of(tmp_path, seeds=2), executor, QUIET)
    assert (outcome.count("done"), len(executor.jobs)) == (2, 1)


def test_at_most_so_many_jobs_are_submitted_at_a_time(tmp_path: Path) -> None:
    for limit in (1, 2, None):
        executor, folder = Pretended(), tmp_path / f"{limit}"
        folder.mkdir()
        run_sweep(sweep_of(folder, seeds=4), executor, QUIET, jobs=limit)
        assert executor.most == (limit or 4)
    with pytest.raises(ConfigError, match="jobs is 0"):
        run_sweep(sweep_of(tmp_path), Pretended(), QUIET, jobs=0)


def test_a_failed_cell_is_tried_once_more_and_then_reported_while_the_others_go_on(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, seeds=3)
    once, twice, fine = (cell.folder for cell in sweep.cells)
    executor = Pretended(fail={once: 1, twice: 2})
    outcome = run_sweep(sweep, executor, QUIET)
    assert [one.state for one in outcome.statuses] == ["done", "failed", "done"]
    assert [one.failures for one in outcome.statuses] == [1, 2, 0]
    assert [executor.folders.count(folder.name) for folder in (once, twice, fine)] == [2, 2, 1]
    assert outcome.statuses[0].error == ""
    assert "left no log" in outcome.statuses[1].error
    assert [one.state for one in read_statuses(sweep)] == ["done", "failed", "done"], "--status knows it too"
    assert run_sweep(sweep, Pretended(), QUIET).count("done") == 3, "another command tries it again"


def test_a_pre_empted_job_that_got_further_has_not_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_of(tmp_path)
    executor = Pretended(fail={sweep.cells[0].folder: 3})
    executor.said = "preempted"
    step = iter(range(100))
    monkeypatch.setattr("continua.train.sweeps.cells.last_step", lambda folder: next(step))
    outcome = run_sweep(sweep, executor, QUIET)
    assert (outcome.count("done"), len(executor.jobs), outcome.statuses[0].failures) == (1, 4, 0)


def test_a_pre_empted_job_that_gets_nowhere_has_failed(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    executor = Pretended(fail={sweep.cells[0].folder: 5})
    executor.said = "node_fail"
    outcome = run_sweep(sweep, executor, QUIET)
    assert (outcome.count("failed"), len(executor.jobs)) == (1, 2)
    assert outcome.statuses[0].error.startswith("node_fail: ")


def test_a_cancelled_job_is_left_alone_until_the_next_command(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    executor = Pretended(fail={sweep.cells[0].folder: 1})
    executor.said = "cancelled"
    outcome = run_sweep(sweep, executor, QUIET)
    assert (outcome.count("missing"), len(executor.jobs), outcome.statuses[0].failures) == (1, 1, 0)
    assert run_sweep(sweep, Pretended(), QUIET).count("done") == 1


def test_a_cell_that_someone_else_trains_is_waited_for(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, seeds=2)
    run, executor, seen = sweep.cells[0].run, Pretended(), []

    def watch(statuses: Any) -> None:
        seen.append(statuses[0].state)
        if len(seen) == 3:
            held.__exit__(None, None, None)

    held = run.locked()
    held.__enter__()
    assert run_sweep(sweep, executor, QUIET, watch=watch).count("done") == 2
    assert seen[:3] == ["elsewhere"] * 3
    assert len(executor.jobs) == 2


def test_two_commands_do_not_carry_out_one_sweep(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    with Run(sweep.folder).locked(), pytest.raises(ConfigError, match="is being carried out by process"):
        run_sweep(sweep, Pretended(), QUIET)


def test_results_are_mean_and_deviation_over_seeds(tmp_path: Path) -> None:
    outcome = run_sweep(sweep_of(tmp_path, per_class=[2, 4], seeds=[1, 2, 6]), Pretended(), QUIET)
    points = summarise(outcome.statuses)
    assert [point["label"] for point in points] == [{"model": "dcn_ode", "per_class": 2}, {"model": "dcn_ode", "per_class": 4}]
    assert points[0]["seeds"] == {"1": 0.1, "2": 0.2, "6": 0.6}
    assert points[0]["mean"] == pytest.approx(0.3)
    assert points[0]["std"] == pytest.approx(0.07**0.5)  # ((0.2² + 0.1² + 0.3²) / 2)^½


# --- inside a job -------------------------------------------------------------------------------------------------------


@pytest.fixture
def submitits_handler() -> Iterator[list[int]]:
    """Stands for the handler that submitit puts on the pre-emption signal: requeues the job and ends the process."""
    answered: list[int] = []

    def answer(number: int, frame: Any) -> None:
        answered.append(number)
        raise SystemExit(-1)

    before = signal.signal(signal.SIGUSR2, answer)
    yield answered
    signal.signal(signal.SIGUSR2, before)


def job_of(folder: Path, **changes: Any) -> CellJob:
    from dataclasses import asdict

    return CellJob(asdict(resolve(small_recipe(**changes))), folder, QUIET)


def signalled(monkeypatch: pytest.MonkeyPatch, step: int, *numbers: int) -> None:
    """Send signals to this process in the middle of a step."""
    whole = Training._train_batch

    def with_signals(self: Training, batch: Any) -> bool:
        if self.step == step and not self.run.folder.joinpath("signalled").exists():
            self.run.folder.joinpath("signalled").touch()
            for number in numbers:
                signal.raise_signal(number)
        return whole(self, batch)

    monkeypatch.setattr(Training, "_train_batch", with_signals)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(small_recipe(), tmp_path_factory.mktemp("reference") / "run", QUIET)


def assert_same(run: Run, reference: Run) -> None:
    assert lasting_lines(run) == lasting_lines(reference)
    expected, found = weights(reference), weights(run)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("numbers", [(signal.SIGTERM,), (signal.SIGTERM, signal.SIGTERM, signal.SIGINT)])
def test_sigterm_is_ours_save_and_leave_without_requeueing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, submitits_handler: list[int], reference: Run, numbers: tuple[int, ...]
) -> None:
    signalled(monkeypatch, 1, *numbers)
    job, before = job_of(tmp_path / "run"), signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as left:
        job()
    assert (left.value.code, submitits_handler) == (128 + signal.SIGTERM, [])
    assert Run(job.folder).result is None
    assert signal.getsignal(signal.SIGTERM) is before
    assert job()["test_accuracy"] == (reference.result or {})["test_accuracy"]
    assert_same(Run(job.folder), reference)


@pytest.mark.parametrize("numbers", [(signal.SIGUSR2,), (signal.SIGTERM, signal.SIGUSR2)])
def test_the_pre_emption_signal_is_answered_by_submitit_once_everything_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, submitits_handler: list[int], reference: Run, numbers: tuple[int, ...]
) -> None:
    signalled(monkeypatch, 1, *numbers)
    job = job_of(tmp_path / "run")
    with pytest.raises(SystemExit):
        job()
    assert submitits_handler == [signal.SIGUSR2]
    again = job.checkpoint().function
    assert again.step == 2, "the step that the signal came in was finished and saved"
    again()
    assert_same(Run(job.folder), reference)


def test_a_job_that_gets_nowhere_is_not_requeued_for_ever(tmp_path: Path) -> None:
    job = job_of(tmp_path / "run")
    assert job.checkpoint() is None
    assert replace(job, step=0).checkpoint() is None


def test_a_cell_is_one_process_whatever_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: Run) -> None:
    variables = {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7", "SLURM_PROCID": "3", "SLURM_LOCALID": "3", "SLURM_NODELIST": "a,b"}
    variables |= {"SLURM_JOB_NAME": "sweep", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "2", "SUBMITIT_EXECUTOR": "slurm"}
    for name, value in (variables | {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "nowhere"}).items():
        monkeypatch.setenv(name, value)
    job = job_of(tmp_path / "run")
    job()
    assert json.loads(Run(job.folder).environment.read_text())["ranks"] == 1
    assert_same(Run(job.folder), reference)


def test_a_signal_before_the_training_has_begun_is_not_lost(tmp_path: Path) -> None:
    job = job_of(tmp_path / "run")
    with JobSignals().owned() as signals, Run(job.folder).locked():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(SystemExit) as left:
            job._wait_for(Run(job.folder), signals)
    assert left.value.code == 143


# --- what is shown ------------------------------------------------------------------------------------------------------


def test_plain_lines_tell_each_change_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = sweep_of(tmp_path, seeds=2)
    with View(sweep.name) as view:
        outcome = run_sweep(sweep, Pretended(), QUIET, jobs=1, watch=view)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "dcn_ode seed=0: running job 0 epoch 0/3",
        "dcn_ode seed=0: done epoch 0/3 test 0.00%",
        "dcn_ode seed=1: running job 1 epoch 0/3",
        "dcn_ode seed=1: done epoch 0/3 test 10.00%",
    ]
    assert summary(outcome.statuses) == "2 done of 2 cells"


def test_the_table_shows_every_cell_with_its_state_and_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = sweep_of(tmp_path, seeds=2)
    statuses = [
        CellStatus(sweep.cells[0], "failed", failures=2, error="it diverged"),
        CellStatus(sweep.cells[1], "queued", job="12", said="Priority"),
    ]
    show_status(statuses, "mine")
    shown = capsys.readouterr().out
    assert "mine: 1 queued, 1 failed of 2 cells" in shown
    assert "it diverged" in shown
    assert "Priority" in shown


def test_the_error_of_a_job_is_the_last_line_of_its_traceback(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "epoch 1/3\nTraceback (most recent call last):\n  File x\ncontinua.errors.ConfigError: no such thing\nsrun: error: task 0\n"
    )
    assert last_words(log) == "ConfigError: no such thing"
    log.write_text("epoch 1/3\nslurmstepd: error: Detected 1 oom_kill event in StepId=4.0\nsrun: error: Killed\n")
    assert "oom_kill" in last_words(log)


# --- processes ----------------------------------------------------------------------------------------------------------


def test_a_local_sweep_trains_its_cells_and_does_nothing_the_second_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reference: Run
) -> None:
    path = write_sweep(tmp_path / "sweep.yaml")
    words = ["sweep", str(path), "--runs", str(tmp_path / "runs"), "--threads", "1", "--device", "cpu"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "dcn_ode seed=0: done epoch 3/3" in shown.err
    assert "1 done of 1 cells" in shown.out
    assert_same(load_sweep(path, tmp_path / "runs").cells[0].run, reference)
    written = json.loads((tmp_path / "runs" / "sweeps" / "sweep" / "results.json").read_text())
    assert written["points"][0]["mean"] == (reference.result or {})["test_accuracy"]
    assert main(words) == 0
    assert len(list((tmp_path / "runs" / "sweeps" / "sweep" / "jobs").glob("*_submitted.pkl"))) == 1
    assert main([*words, "--status"]) == 0
    assert "1 done of 1 cells" in capsys.readouterr().out
    assert main([*words, "--cancel"]) == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:The kernel of")  # seed 1 draws a wide scale for the small maps of these digits
def test_ctrl_c_stops_a_local_sweep_with_every_cell_saved_and_the_next_command_goes_on(tmp_path: Path) -> None:
    path = write_sweep(tmp_path / "sweep.yaml", epochs=120, seeds=2)
    sweep = load_sweep(path, tmp_path / "runs")
    words = [sys.executable, "-m", "continua", "sweep", str(path), "--runs", str(tmp_path / "runs"), "--jobs", "2", "--threads", "1"]
    # A session of its own, so that the interrupt can go to every process of it as a terminal's Ctrl-C does.
    first = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while min(cell.reached().epoch for cell in sweep.cells) < 3:
        assert first.poll() is None, first.communicate()
        time.sleep(0.1)
    os.killpg(first.pid, signal.SIGINT)
    shown, _ = first.communicate(timeout=120)
    assert first.returncode == 130
    assert f"stopped, every cell saved; go on with: continua sweep {path} --on local" in shown
    for cell in sweep.cells:
        assert cell.run.owner() is None
        assert "stopped and saved" in "".join(log.read_text() for log in (sweep.folder / "jobs").glob("*_log.out"))
    assert subprocess.run(words, capture_output=True).returncode == 0
    for cell in sweep.cells:
        assert_same(cell.run, train(cell.recipe, tmp_path / "alone" / str(cell.recipe.seed), RunOptions(progress="off", threads=1)))
