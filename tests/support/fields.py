"""Fields that the tests of the ODE room share: smooth, small, time-dependent, and counted where a test asks what f was given."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from continua.ode import broadcast_time


class VectorField(nn.Module):
    """dy/dt = W₂ tanh(W₁ y + b + t v) − y / 2, each sample for itself."""

    def __init__(self, features: int = 3, hidden: int = 5, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.first = nn.Linear(features, hidden, dtype=dtype)
        self.second = nn.Linear(hidden, features, bias=False, dtype=dtype)
        self.in_time = nn.Parameter(torch.randn(hidden, dtype=dtype))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        moment = broadcast_time(t, y).to(y.dtype) * self.in_time
        return self.second(torch.tanh(self.first(y) + moment)) - y / 2


class MapField(nn.Module):
    """Two convolutions of feature maps with norms of each sample between them, as in the networks of the papers."""

    def __init__(self, channels: int = 4, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(2, channels, dtype=dtype) for _ in range(2))
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1, dtype=dtype) for _ in range(2))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        h = self.convs[0](torch.tanh(self.norms[0](y)))
        return self.convs[1](torch.tanh(self.norms[1](h))) + torch.sin(3 * broadcast_time(t, y).to(y.dtype))


class PairField(nn.Module):
    """A coupled system of two states of different shape: an image-like map and a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.randn(3, 3, dtype=torch.float64) / 2)

    def forward(self, t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        maps, vector = y
        drive = torch.tanh(vector @ self.mix)
        return torch.sin(maps) * drive[:, :, None, None] - maps / 3, maps.mean((2, 3)) - broadcast_time(t, vector).to(vector.dtype) * drive


class Recorder:
    """Passes calls on to f and keeps what it was asked: times, number of rows, dtype of time and state."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f = f
        self.times: list[Tensor] = []
        self.rows: list[int] = []
        self.dtypes: set[tuple[torch.dtype, torch.dtype]] = set()

    def __call__(self, t: Tensor, y: Any) -> Any:
        state = y if isinstance(y, Tensor) else y[0]
        self.times.append(t.detach().clone())
        self.rows.append(len(state))
        self.dtypes.add((t.dtype, state.dtype))
        return self.f(t, y)

    @property
    def calls(self) -> int:
        return len(self.rows)
