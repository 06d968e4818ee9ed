"""Several processes: ranks take different numbers of steps, each parameter is reduced once, and the sum is right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from continua.ode import Checkpoint, Gradient, solve

RANKS = 2
OPTIONS = dict(rtol=1e-6, atol=1e-6)


class Net(nn.Module):
    """A stem, an ODE block and a head."""

    def __init__(self, gradient: str | Gradient) -> None:
        super().__init__()
        self.stem, self.field, self.head = (nn.Linear(3, 3, dtype=torch.float64) for _ in range(3))
        self.gradient, self.accepted = gradient, 0

    def forward(self, x: Tensor) -> Tensor:
        flow = lambda t, y: torch.sin(3 * self.field(y)) * (1 + t)  # noqa: E731
        solution = solve(flow, self.stem(x), 0.0, 1.0, gradient=self.gradient, params=list(self.field.parameters()), **OPTIONS)
        self.accepted = solution.stats.accepted
        return self.head(solution.y1)


def images(rank: int) -> Tensor:
    """Far larger inputs on the second rank, so that its solves need other steps."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(4, 3, dtype=torch.float64, generator=generator) * (1.0, 30.0)[rank]


def net(gradient: str) -> Net:
    torch.manual_seed(5)
    return Net(Checkpoint(direct_below=0) if gradient == "checkpoint" else gradient)


def work(rank: int, meeting: Path, gradients: list[str]) -> None:
    """What one process does; it leaves what it found in a file."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    found = {}
    for gradient in gradients:
        model = DistributedDataParallel(net(gradient))
        fired: list[int] = []
        for index, parameter in enumerate(model.parameters()):
            parameter.register_post_accumulate_grad_hook(lambda _, fired=fired, index=index: fired.append(index))
        for _ in range(2):  # the second time the reducer has rebuilt its buckets
            model.zero_grad()
            fired.clear()
            model(images(rank)).square().mean().backward()
        found[gradient] = [model.module.accepted, sorted(fired), [p.grad.tolist() for p in model.parameters()]]
    meeting.with_name(f"{rank}.json").write_text(json.dumps(found))
    del model
    torch.distributed.barrier()  # gloo's threads must not outlive the other rank: now and then that aborts a process that is done
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch is built without torch.distributed")
def test_two_ranks_with_different_steps_average_their_gradients(tmp_path):
    gradients = ["checkpoint", "reversible", "adjoint"]
    command = [sys.executable, __file__, str(tmp_path / "meeting"), *gradients]
    workers = [subprocess.Popen([*command, str(rank)]) for rank in range(RANKS)]
    try:
        assert [worker.wait(120) for worker in workers] == [0] * RANKS
    finally:
        for worker in workers:
            worker.kill()
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(RANKS)]

    for gradient in gradients:
        alone = []
        for rank in range(RANKS):
            model = net(gradient)
            model(images(rank)).square().mean().backward()
            alone.append([p.grad for p in model.parameters()])
        average = [sum(parts) / RANKS for parts in zip(*alone, strict=True)]
        assert found[0][gradient][0] != found[1][gradient][0]  # else nothing was tried
        for rank in range(RANKS):
            _, fired, reduced = found[rank][gradient]
            assert fired == list(range(len(average)))
            assert all(torch.allclose(torch.tensor(a, dtype=torch.float64), b, rtol=1e-9) for a, b in zip(reduced, average, strict=True))


if __name__ == "__main__":
    _, place, *names, number = sys.argv
    work(int(number), Path(place), names)
