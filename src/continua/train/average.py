"""An exponential moving average of the weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class AveragedWeights:
    """avg ← decay · avg + (1 − decay) · weights after every step; what is not a floating point number is copied."""

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.net, self.decay = net, decay
        self.state: dict[str, Tensor] = {name: value.detach().clone() for name, value in net.state_dict().items()}

    @torch.no_grad()
    def update(self) -> None:
        for name, value in self.net.state_dict().items():
            if value.is_floating_point():
                self.state[name].lerp_(value, 1 - self.decay)
            else:
                self.state[name].copy_(value)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the network has the averaged weights."""
        own = {name: value.detach().clone() for name, value in self.net.state_dict().items()}
        self.net.load_state_dict(self.state)
        try:
            yield
        finally:
            self.net.load_state_dict(own)
