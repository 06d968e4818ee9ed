"""Several ranks give the single process's result, agree before going backward, and do not wait for a dead one."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from training import QUIET, finish, start, tiny_recipe, weights

from continua.blocks import ODEBlock
from continua.blocks.sync_batchnorm import RankBatchNorm
from continua.errors import ConfigError, SolverError
from continua.train import Recipe, Run, RunOptions, resume, train
from continua.train.ranks import EVERY, SILENCE, RankWatch
from continua.train.start import made_parallel

RANKS = 2
TWO = RunOptions(progress="off", device="cpu", threads=1, rank_timeout=60.0)


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def launch(target: Any, *arguments: Any) -> list[Any]:
    """As torchrun would: one process per rank, told of one another by the environment."""
    common = dict(WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
    common |= dict(TORCHELASTIC_RUN_ID="test", GROUP_RANK="0")
    return [start(target, *arguments, **common, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(RANKS)]


def recipe_of(changes: dict[str, Any]) -> Recipe:
    plain = {name: value for name, value in changes.items() if name != "replace_options"}
    recipe = tiny_recipe(**{name: value for name, value in plain.items() if name != "model_options"})
    return replace(recipe, model_options=plain["model_options"]) if "replace_options" in changes else tiny_recipe(**plain)


def train_here(folder: Path, changes: dict[str, Any]) -> None:
    train(recipe_of(changes), folder, TWO)


def network(name: str, **options: Any) -> dict[str, Any]:
    """Another model than the usual one, with its own options only."""
    return dict(model=name, model_options=options, replace_options=True)


CASES: dict[str, dict[str, Any]] = {
    "fixed steps": dict(batch_size=15, drop_last=False),  # 15 = 8 + 7: one rank repeats a sample that must not count
    "per-sample steps": dict(model_options=dict(solver=dict(method="bosh3", steps=None, control="sample", rtol=0.1, atol=0.1))),
    "adjoint": dict(model_options=dict(solver=dict(gradient="adjoint"))),
    "batch norm": network("erknet", stages="2x1_2x1", growth=4, attention=True),
    "batch norm of each step": network("resnet4_anodev2_c2") | dict(data="digits32", per_class=2, batch_size=10, optimiser=dict(lr=0.002)),
}


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_give_the_result_of_one_to_rounding(case: str, tmp_path: Path) -> None:
    changes = dict(per_class=4, epochs=2, holdout=0.25) | CASES[case]
    both = launch(train_here, tmp_path / "two", changes)
    one, two = train(recipe_of(changes), tmp_path / "one", QUIET), Run(tmp_path / "two")
    assert [finish(process) for process in both] == [0, 0]
    for alone, together in zip(one.lines(), two.lines(), strict=True):
        assert together["loss"] == pytest.approx(alone["loss"], rel=1e-5)
        assert together["nfe"] == pytest.approx(alone["nfe"])
        for name in ("train_accuracy", "holdout_accuracy", "images", "skipped", "lr"):
            assert together[name] == pytest.approx(alone[name]), name
    for name, value in weights(one).items():
        torch.testing.assert_close(weights(two)[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_steps_that_each_rank_chooses_agree_to_the_order_of_the_tolerance(gradient: str, tmp_path: Path) -> None:
    tolerance = 1e-3
    solver = dict(method="bosh3", steps=None, rtol=tolerance, atol=tolerance, gradient=gradient)
    changes: dict[str, Any] = dict(per_class=4, epochs=1, model_options=dict(solver=solver))
    both = launch(train_here, tmp_path / "two", changes)
    one, two = train(tiny_recipe(**changes), tmp_path / "one", QUIET), Run(tmp_path / "two")
    assert [finish(process) for process in both] == [0, 0]
    assert two.lines()[0]["loss"] == pytest.approx(one.lines()[0]["loss"], rel=3 * tolerance)
    assert two.lines()[0]["gradient_norm"] == pytest.approx(one.lines()[0]["gradient_norm"], rel=30 * tolerance)
    apart = torch.cat([(value - weights(two)[name]).flatten() for name, value in weights(one).items()]).norm()
    whole = torch.cat([value.flatten() for value in weights(one).values()]).norm()
    assert 0 < apart < 3 * tolerance * whole


def fail_on_one_rank(folder: Path, changes: dict[str, Any]) -> None:
    from continua.models.network import Network

    whole, calls = Network.forward, 0

    def forward(self: Any, images: torch.Tensor, **options: Any) -> torch.Tensor:
        nonlocal calls
        calls += self.training
        if self.training and calls == 2 and os.environ["RANK"] == "1":
            raise SolverError("the step became too small")
        return whole(self, images, **options)

    Network.forward = forward  # pyright: ignore[reportAttributeAccessIssue]
    train(tiny_recipe(**changes), folder, TWO)


def test_a_failure_on_one_rank_is_skipped_by_all(tmp_path: Path) -> None:
    both = launch(fail_on_one_rank, tmp_path / "run", dict(per_class=8, epochs=1))
    assert [finish(process) for process in both] == [0, 0]
    skipped, epoch = Run(tmp_path / "run").lines()
    assert (skipped["event"], skipped["batch"], skipped["diagnosis"]) == ("skipped", 1, "rank 1: the step became too small")
    assert (epoch["skipped"], epoch["images"]) == (1, 64)


def die_on_one_rank(folder: Path, changes: dict[str, Any]) -> None:
    from continua.train import loop

    step = loop.Training._train_batch

    def train_batch(self: Any, batch: Any) -> bool:
        if self.step == 7 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, batch)

    loop.Training._train_batch = train_batch  # pyright: ignore[reportAttributeAccessIssue]
    try:
        train(tiny_recipe(**changes), folder, TWO)
    except Exception as error:
        (folder / f"told {os.environ['RANK']}").write_text(f"{type(error).__name__}: {error}")


@pytest.mark.filterwarnings("ignore:.*was trained with ranks:continua.ContinuaWarning")
def test_when_a_rank_dies_the_others_say_so_and_one_process_can_go_on(tmp_path: Path) -> None:
    changes = dict(per_class=8, epochs=3)
    both = launch(die_on_one_rank, tmp_path / "run", changes)
    assert finish(both[1]) == -9
    since = time.monotonic()
    assert finish(both[0]) == 0
    assert time.monotonic() - since < TWO.rank_timeout + 30
    told = (tmp_path / "run" / "told 0").read_text()
    assert told.startswith("ContinuaError: rank 0 lost contact with another rank")
    assert "--resume" in told
    run, one = resume(tmp_path / "run", QUIET), train(tiny_recipe(**changes), tmp_path / "one", QUIET)
    assert [line["loss"] for line in run.lines()] == pytest.approx([line["loss"] for line in one.lines()], rel=1e-5)


class NormField(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        return self.norm(h)


def test_batch_norm_among_ranks_needs_fixed_steps() -> None:
    def block(steps: int | None) -> ODEBlock:
        return ODEBlock(NormField(), solver={"steps": steps})

    made = made_parallel(nn.Sequential(block(steps=5)))
    assert any(isinstance(module, RankBatchNorm) for module in made.modules())
    with pytest.raises(ConfigError, match="needs fixed steps"):
        made_parallel(nn.Sequential(block(steps=None)))
    plain = nn.Sequential(nn.GroupNorm(1, 3))
    assert made_parallel(plain) is plain


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*was trained with ranks:continua.ContinuaWarning")
def test_torchrun_trains_and_a_run_of_one_process_goes_on_with_two(tmp_path: Path) -> None:
    words = ["train", "--recipe", "demo", "--data", "digits", "--per-class", "8", "--epochs", "3", "--batch_size=16", "--threads", "1"]
    words += ["--model-options.channels", "[4, 8]", "--model-options.stem_padding", "1", "--device", "cpu"]
    solver = ["--model_options.solver.method", "rk4", "--model_options.solver.steps", "1"]

    def continua(*words: str, ranks: int) -> str:
        many = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", free_port()] if ranks > 1 else []
        done = subprocess.run([sys.executable, *many, "-m", "continua", *words], capture_output=True, text=True, timeout=250)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = continua(*words, *solver, "--out", str(tmp_path / "two"), ranks=RANKS)
    assert said.count("finished") == 1, "only one rank speaks"
    assert finish(start(killed_by_batch, 7, [*words, *solver, "--out", str(tmp_path / "mixed")])) == -9
    continua("train", "--resume", str(tmp_path / "mixed"), "--threads", "1", "--device", "cpu", ranks=RANKS)
    two, mixed = Run(tmp_path / "two"), Run(tmp_path / "mixed")
    assert [line["loss"] for line in mixed.lines()] == pytest.approx([line["loss"] for line in two.lines()], rel=1e-5)


# --- ranks that give no sign --------------------------------------------------------------------------------------------


def test_a_rank_that_gives_no_sign_is_named_and_ended_and_one_that_does_is_left_alone() -> None:
    enough = int(SILENCE / EVERY) + 2
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as stopped:
        try:
            watch = RankWatch(0, 3, torch.distributed.HashStore())  # pyright: ignore[reportPrivateImportUsage]
            for number in range(enough):
                watch.store.set("continua/sign/2", f"{number} 1 elsewhere")
                watch.look()
            assert watch.lost is None, "rank 1 is not there yet, rank 2 counts"
            watch.store.set("continua/sign/1", f"7 {stopped.pid} {socket.gethostname()}")
            watch.store.set("continua/sign/2", "gone")
            for _ in range(enough):
                watch.look()
            assert watch.lost is not None
            assert f"rank 1 (process {stopped.pid} on " in watch.lost
            assert stopped.wait(60) == -signal.SIGKILL
        finally:
            stopped.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_torchrun_ends_when_a_rank_is_stopped_or_killed_long_before_the_patience_of_the_others(number: int, tmp_path: Path) -> None:
    words = ["train", "--recipe", "demo", "--data", "digits", "--epochs", "100000", "--batch_size=16", "--threads", "1", "--device", "cpu"]
    words += ["--model-options.channels", "[4, 8]", "--model-options.stem_padding", "1", "--out", str(tmp_path / "run")]
    many = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()]
    with subprocess.Popen([sys.executable, *many, "-m", "continua", *words], stderr=subprocess.PIPE, text=True) as job:
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            assert job.poll() is None
            time.sleep(0.1)
        os.kill(rank_process(job.pid, 1), number)
        _, said = job.communicate(timeout=200)  # far less than the 600 s for which a rank waits for a slow one
    assert job.returncode == 1
    named = [line for line in said.splitlines() if line.startswith("continua: rank ")]
    assert len(named) == 1
    assert "--resume" in named[0]
    assert ("has given no sign" in named[0]) == (number == signal.SIGSTOP)


def rank_process(parent: int, rank: int) -> int:
    """The process that torchrun started for a rank."""
    for process in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if f"RANK={rank}" in Path(f"/proc/{process}/environ").read_text().split("\0"):
            return int(process)
    raise LookupError(f"torchrun has started no rank {rank}")


def killed_by_batch(count: int, words: list[str]) -> None:
    from continua.cli import main
    from continua.train import loop

    step = loop.Training._train_batch

    def train_batch(self: Any, batch: Any) -> bool:
        if self.step == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, batch)

    loop.Training._train_batch = train_batch  # pyright: ignore[reportAttributeAccessIssue]
    main(words)
