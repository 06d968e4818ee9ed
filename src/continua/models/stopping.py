"""When an image may stop in its last block: its reaction time.

net.with_stop(Confident(0.9))     each image stops where the network's own head is sure of its class
net.with_stop(Event(...))         where a function of t and h crosses zero, in any block with time
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from continua.blocks import ODEBlock
from continua.errors import ConfigError
from continua.ode import Event

if TYPE_CHECKING:
    from continua.models.network import Network


@dataclass(frozen=True)
class Confident:
    """Stop an image where the largest probability that the head gives its state reaches `threshold`.

    The head is the network's own: what it makes of h(T) at the end, it makes of h(t) on the way. `precision`: how closely the moment is
    located, as a share of the step it lies in. Without gradients the state there is read off the interpolant, so a stop costs no
    evaluations of f.

    Example:
        >>> fast = net.eval().with_solver(method="dopri5", steps=None).with_stop(Confident(0.9))
        >>> fast(images).argmax(1), fast.stats[-1].t_end, fast.stats[-1].nfe
    """

    threshold: float = 0.9
    precision: float = 1e-3

    def __post_init__(self) -> None:
        number = isinstance(self.threshold, int | float) and not isinstance(self.threshold, bool)
        if not (number and 0 < self.threshold < 1):
            raise ConfigError(f"Confident({self.threshold!r}); expected a probability between 0 and 1, such as 0.9")

    def event(self, net: "Network") -> Event:
        """The event of this network as it is now."""

        def excess(t: Tensor, h: Tensor) -> Tensor:
            return net.forward_head(h).softmax(1, torch.float64).amax(1) - self.threshold

        return Event(excess, direction=1, precision=self.precision, interpolated=True)


Stop = Confident | Event


def check_stop(net: "Network", stop: Stop, index: int) -> None:
    """Refuse a stop that has no meaning for a network, in a sentence."""
    block, after = net.blocks[index], len(net.blocks) - 1 - index
    if not isinstance(stop, Confident | Event):
        raise ConfigError(f"stop={stop!r}; expected Confident(threshold) or a continua.ode.Event")
    if not isinstance(block, ODEBlock):
        raise ConfigError(f"block {index} of {net.title} is a {type(block).__name__} without time, so there is no way to stop on")
    if block.solver.steps is not None:
        raise ConfigError(
            f"{net.title} takes {block.solver.steps} equal steps for every image; choose adaptive ones first: "
            "net.with_solver(method='dopri5', steps=None, rtol=1e-3, atol=1e-3).with_stop(...)"
        )
    if isinstance(stop, Event):
        return
    if after or net.multiscale:
        what = f"{after} more block{'s' * (after > 1)} after it" if after else "a head that reads the states after all blocks"
        raise ConfigError(f"Confident asks the head about the state of the last block; block {index} of {net.title} has {what}")
    if not net.num_classes:
        raise ConfigError(f"{net.title} has no classifier, so it is never confident; reset_classifier(num_classes) gives it one")


def bound_event(net: "Network", stop: Stop) -> Event:
    """The event of a stop for one call of the network."""
    if isinstance(stop, Event):
        return stop
    if net.training:
        raise ConfigError(
            "Confident is for inference: in training, dropout and statistics of the batch would decide; call net.eval() first"
        )
    return stop.event(net)
