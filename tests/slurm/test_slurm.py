"""On a real Slurm cluster of one node (`make test-slurm`): whatever the cluster does to a job, its run ends with the same weights."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from sweeping import write_sweep
from training import QUIET, lasting_lines, weights

from continua.train import Run, Slurm, Sweep, SweepOutcome, cancel, jobs_folder, load_sweep, run_sweep, train
from continua.train.sweeps.cells import CellStatus

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]
SCRIPT = Path(__file__).parents[2] / "scripts" / "slurm-local"
OPTIONS = QUIET
EPOCHS = 40


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """The cluster of scripts/slurm-local; one that was not up before is taken down again."""
    if os.getuid() != 0:
        pytest.skip("a cluster's daemons run as root")
    line = subprocess.run([SCRIPT, "env"], capture_output=True, text=True, check=True).stdout.strip()
    os.environ["SLURM_CONF"] = line.partition("=")[2]
    was_up = Path(os.environ["SLURM_CONF"]).exists()
    subprocess.run([SCRIPT, "up"], check=True, stdout=subprocess.DEVNULL)
    yield
    if not was_up:
        subprocess.run([SCRIPT, "down"], check=True)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same training, left alone."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("reference")
    return train(load_sweep(write_sweep(folder / "s.yaml", epochs=EPOCHS), folder).cells[0].recipe, folder / "run", OPTIONS)


class Driver(threading.Thread):
    """A sweep that is carried out while the test does things to its jobs."""

    def __init__(self, sweep: Sweep) -> None:
        super().__init__(daemon=True)
        self.sweep, self.executor = sweep, Slurm(jobs_folder(sweep), sweep.slurm)
        self.executor.pause = 0.5
        self.statuses: Sequence[CellStatus] = ()
        self.notes: set[tuple[str, str]] = set()
        self.outcome: SweepOutcome | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = run_sweep(self.sweep, self.executor, OPTIONS, watch=self._see)
        except BaseException as error:
            self.error = error

    def _see(self, statuses: Sequence[CellStatus]) -> None:
        self.statuses = statuses
        self.notes |= {(one.state, one.said) for one in statuses}

    def finish(self) -> SweepOutcome:
        wait_until(lambda: not self.is_alive(), 600, "the sweep ends")
        if self.error is not None:
            raise self.error
        assert self.outcome is not None
        return self.outcome

    def job(self, cell: int = 0) -> str:
        wait_until(lambda: bool(self.statuses) and self.statuses[cell].job is not None, 60, "a job")
        return str(self.statuses[cell].job)


def wait_until(true: Callable[[], bool], seconds: float, what: str) -> None:
    limit = time.monotonic() + seconds
    while not true():
        if time.monotonic() > limit:
            raise TimeoutError(f"waited {seconds} s in vain until {what}")
        time.sleep(0.1)


@contextmanager
def held_in_training(sweep: Sweep, signalled: bool = True) -> Iterator[None]:
    """The first cell, stopped in its fourth epoch or a little later while the test does something to its job, however fast the machine is.

    It goes on once the signal of what was done is there (`signalled`), or at once.
    """
    cell = sweep.cells[0]
    wait_until(lambda: cell.reached().epoch >= 3, 300, "the third epoch ends")
    process = int((cell.run.owner() or "process 0").split()[1])
    os.kill(process, signal.SIGSTOP)
    try:
        yield
        if signalled:
            wait_until(lambda: not still_waits(process), 300, "Slurm sends its signal")
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def still_waits(process: int) -> bool:
    """Whether a stopped process has neither been continued nor been sent SIGTERM or SIGUSR2."""
    try:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    except OSError:
        return False
    sent = int(status["ShdPnd"], 16) | int(status["SigPnd"], 16)
    return status["State"].split()[0] == "T" and not sent & (1 << signal.SIGTERM - 1 | 1 << signal.SIGUSR2 - 1)


def slurm(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def restarts(job: str) -> int:
    shown = slurm("scontrol", "show", "job", job)
    return int(shown.partition("Restarts=")[2].split()[0])


def log(sweep: Sweep, job: str) -> str:
    return (jobs_folder(sweep) / f"{job}_0_log.out").read_text()


def assert_same(run: Run, expected: Run) -> None:
    assert lasting_lines(run) == lasting_lines(expected)
    found, wanted = weights(run), weights(expected)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def sweep_of(folder: Path, **more: Any) -> Sweep:
    slurm_options = {"time": 60, "cpus_per_task": 1, "signal_delay_s": 60} | more.pop("slurm", {})
    return load_sweep(write_sweep(folder / "s.yaml", epochs=more.pop("epochs", EPOCHS), slurm=slurm_options, **more), folder / "runs")


# --- pre-emption --------------------------------------------------------------------------------------------------------


def test_a_job_that_slurm_requeues_goes_on_from_its_checkpoint(tmp_path: Path, reference: Run) -> None:
    sweep = sweep_of(tmp_path)
    driver = Driver(sweep)
    job = driver.job()
    with held_in_training(sweep):
        slurm("scontrol", "requeue", job)
    outcome = driver.finish()
    assert outcome.count("done") == 1
    assert (restarts(job), driver.statuses[0].failures) == (1, 0)
    assert log(sweep, job).count("stopped and saved at epoch") == 1, "SIGTERM was ours, and the step was finished"
    assert "Calling checkpoint method" not in log(sweep, job), "Slurm had requeued the job, so submitit had nothing to do"
    assert "resumed from step-" in (sweep.cells[0].folder / "log.txt").read_text()
    assert_same(sweep.cells[0].run, reference)


def test_submitits_pre_emption_signal_saves_first_and_then_requeues(tmp_path: Path, reference: Run) -> None:
    import submitit

    sweep = sweep_of(tmp_path)
    driver = Driver(sweep)
    job = driver.job()
    with held_in_training(sweep):
        submitit.SlurmJob(jobs_folder(sweep), job)._interrupt(timeout=False)  # SIGTERM, then SIGUSR2
    assert driver.finish().count("done") == 1
    said = log(sweep, job)
    assert said.index("stopped and saved at epoch") < said.index("Calling checkpoint method") < said.index("Requeued job")
    assert (restarts(job), driver.statuses[0].failures) == (1, 0)
    assert_same(sweep.cells[0].run, reference)


def test_a_more_urgent_job_takes_the_place_of_a_cell_which_then_goes_on(tmp_path: Path, reference: Run) -> None:
    cores = slurm("sinfo", "--noheader", "--partition=main", "--format=%c").strip()
    sweep = sweep_of(tmp_path, slurm={"partition": "main"})
    driver = Driver(sweep)
    with held_in_training(sweep):
        slurm("sbatch", "--partition=urgent", f"--cpus-per-task={cores}", f"--output={tmp_path}/urgent", "--wrap=sleep 2")
    assert driver.finish().count("done") == 1
    assert restarts(driver.job()) == 1
    assert_same(sweep.cells[0].run, reference)


# --- the node and the clock ---------------------------------------------------------------------------------------------


def test_a_drained_node_finishes_what_it_runs_and_the_rest_waits_until_it_is_back(tmp_path: Path, reference: Run) -> None:
    node, cores = slurm("sinfo", "--noheader", "--partition=main", "--format=%n %c").split()
    sweep = sweep_of(tmp_path, seeds=2, slurm={"cpus_per_task": int(cores)})  # room for one cell at a time
    driver = Driver(sweep)
    with held_in_training(sweep, signalled=False):
        slurm("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    try:
        wait_until(lambda: driver.statuses[0].state == "done", 300, "the running cell ends")
        time.sleep(5)
        assert driver.statuses[1].state == "queued"
        assert driver.statuses[1].said, "the table says why"
        assert not sweep.cells[1].run.exists
    finally:
        slurm("scontrol", "update", f"nodename={node}", "state=resume")
    outcome = driver.finish()
    assert (outcome.count("done"), restarts(driver.job(0))) == (2, 0)
    assert_same(sweep.cells[0].run, reference)


def test_a_job_that_reaches_its_time_limit_saves_and_goes_on_in_a_new_one(tmp_path: Path, reference: Run) -> None:
    """Slurm looks at the clock every 30 s and warns `signal_delay_s` ahead of the limit, which is brought near while the job runs."""
    sweep = sweep_of(tmp_path, slurm={"time": 60, "signal_delay_s": 600})
    driver = Driver(sweep)
    job = driver.job()
    with held_in_training(sweep):
        minutes = slurm("squeue", "--noheader", f"--job={job}", "--format=%M").strip().split(":")[-2]
        slurm("scontrol", "update", f"jobid={job}", f"timelimit={int(minutes) + 2}")
    wait_until(lambda: driver.statuses[0].state == "queued", 300, "the job is back in the queue")
    slurm("scontrol", "update", f"jobid={job}", "timelimit=60")
    assert driver.finish().count("done") == 1
    said = log(sweep, job)
    assert said.index("stopped and saved at epoch") < said.index("Calling checkpoint method") < said.index("Requeued job")
    assert (restarts(job), driver.statuses[0].failures) == (1, 0)
    assert_same(sweep.cells[0].run, reference)


# --- the command --------------------------------------------------------------------------------------------------------


def test_ctrl_c_leaves_the_jobs_in_the_queue_and_the_same_command_finds_them_again(tmp_path: Path, reference: Run) -> None:
    sweep = sweep_of(tmp_path)
    words = [sys.executable, "-m", "continua", "sweep", str(sweep.path), "--on", "slurm", "--runs", str(tmp_path / "runs")]
    first = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with held_in_training(sweep, signalled=False):
        first.send_signal(signal.SIGINT)
        shown, _ = first.communicate(timeout=60)
    assert first.returncode == 130
    assert "the jobs go on in the queue" in shown
    driver = Driver(sweep)
    assert driver.finish().count("done") == 1
    assert len(list(jobs_folder(sweep).glob("*_submitted.pkl"))) == 1, "the job was found, not submitted again"
    status = subprocess.run([*words, "--status"], capture_output=True, text=True, check=True).stdout
    assert "1 done of 1 cells" in status
    assert_same(sweep.cells[0].run, reference)


def test_a_cancelled_sweep_is_saved_and_goes_on_when_it_is_run_again(tmp_path: Path, reference: Run) -> None:
    sweep = sweep_of(tmp_path)
    driver = Driver(sweep)
    with held_in_training(sweep):
        assert cancel(sweep, driver.executor) == 1
    outcome = driver.finish()
    assert (outcome.count("stopped"), outcome.statuses[0].failures, outcome.statuses[0].said) == (1, 0, "cancelled")
    assert sweep.cells[0].reached().step > 0
    assert Driver(sweep).finish().count("done") == 1
    assert_same(sweep.cells[0].run, reference)


def test_a_cell_that_fails_on_the_cluster_is_tried_twice_and_says_why(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, set={"optimiser.lr": 1e9, "failure.divergence_batches": 1, "failure.max_skipped": 0})
    outcome = Driver(sweep).finish()
    assert (outcome.count("failed"), outcome.statuses[0].failures) == (1, 2)
    assert "diverge" in outcome.statuses[0].error, "what the training itself said"
