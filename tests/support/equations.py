"""Initial value problems with known solutions, for interfaces that are tested against other libraries."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn


class Straight(nn.Module):
    """The solution is a line, from which the right-hand side pulls nothing away: every method is exact."""

    def __init__(self) -> None:
        super().__init__()
        self.slope, self.height = nn.Parameter(torch.tensor(0.2)), nn.Parameter(torch.tensor(3.0))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.slope + (y - self.solution(t)) ** 5

    def solution(self, t: Tensor) -> Tensor:
        return self.slope * t + self.height


class Turning(nn.Module):
    """dy/dt = A y with an antisymmetric A: a rotation in ten dimensions."""

    def __init__(self, size: int = 10) -> None:
        super().__init__()
        square = 0.1 * torch.randn(size, size, generator=torch.Generator().manual_seed(1))
        self.matrix = nn.Parameter(square - square.T)
        self.calls = 0

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        return self.matrix @ y

    def solution(self, t: Tensor) -> Tensor:
        start = torch.ones(len(self.matrix), dtype=self.matrix.dtype)
        return torch.stack([torch.linalg.matrix_exp(self.matrix.detach() * time) @ start for time in t.to(self.matrix.dtype)])


class Swinging(nn.Module):
    """y = t² (sin t + 2): depends on time in every term."""

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return 2 * y / t + t**2 * torch.cos(t)

    def solution(self, t: Tensor) -> Tensor:
        return t**2 * (torch.sin(t) + 2)


EQUATIONS = {"straight": Straight, "turning": Turning, "swinging": Swinging}


@dataclass
class Case:
    """A problem from its first time to its last, and the solution at all of them."""

    f: nn.Module
    y0: Tensor
    t: Tensor
    solution: Tensor


def case(name: str, dtype: torch.dtype = torch.float64, reverse: bool = False, points: int = 10) -> Case:
    f = EQUATIONS[name]().to(dtype)
    t = torch.linspace(1, 8, points, dtype=torch.float64)
    t = t.flip(0) if reverse else t
    solution = f.solution(t).detach().to(dtype)
    return Case(f, solution[0].clone().requires_grad_(), t, solution)


class Bend(nn.Module):
    """A small network that swings with time, with weights of its own."""

    def __init__(self, width: int = 8, size: int = 2) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(size, width), nn.Tanh(), nn.Linear(width, size))
        for p in self.parameters():
            p.data = torch.randn(p.shape, generator=generator) / math.sqrt(width)
        self.calls = 0

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        return self.layers(y) * torch.cos(2 * t)


def relative_error(truth: Tensor, estimate: Tensor) -> float:
    return float(((truth - estimate.detach()) / truth).abs().max())
