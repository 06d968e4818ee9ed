"""The layer that makes logits: which one it is, what stands in its place where there are no classes, and what it reads.

Two habits of timm. `num_classes=0` leaves the layer out, so the network ends with the features that it would have read;
`forward_head(h, pre_logits=True)` asks for them once.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from continua.errors import ConfigError


class NoClassifier(nn.Identity):
    """Stands where the classifier was: the features pass as they are."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.in_features = in_features

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}"


Classifier = nn.Linear | NoClassifier


@runtime_checkable
class SplitHead(Protocol):
    """A head that gives what its classifier reads."""

    def pre_logits(self, h: Any) -> Tensor: ...


def make_classifier(features: int, num_classes: int) -> Classifier:
    """A linear layer to `num_classes` logits; for 0 classes, one that passes the features."""
    return nn.Linear(features, num_classes) if num_classes else NoClassifier(features)


def find_classifier(net: nn.Module) -> tuple[str, Classifier] | None:
    """Where the classifier of a network is and what it is: the last linear layer of its head. None where the head has none."""
    head = getattr(net, "head", None)
    layers = [] if head is None else [(name, layer) for name, layer in head.named_modules() if isinstance(layer, Classifier)]
    if not layers:
        return None
    name, layer = layers[-1]
    return f"head.{name}" if name else "head", layer


def replace_classifier(net: nn.Module, num_classes: int) -> Classifier:
    """Put a new classifier where the old one is, on its device and of its dtype."""
    place = find_classifier(net)
    if place is None:
        raise ConfigError(
            f"the head of {type(net).__name__} has no linear layer, so there is no classifier to replace; set net.head yourself"
        )
    if isinstance(num_classes, bool) or not isinstance(num_classes, int) or num_classes < 0:
        raise ConfigError(f"num_classes={num_classes!r}; expected a whole number, 0 for pooled features without a classifier")
    name, old = place
    new, like = make_classifier(old.in_features, num_classes), next(net.parameters(), None)
    if like is not None:
        new = new.to(like.device, like.dtype)
    parent, _, last = name.rpartition(".")
    owner = net.get_submodule(parent)
    owner.add_module(last, new)
    return new


def what_the_classifier_reads(net: nn.Module, h: "Tensor | Sequence[Tensor]") -> Tensor:
    """The features before the logits: asked of the head where it can say so, else listened for."""
    head, place = net.get_submodule("head"), find_classifier(net)
    if isinstance(head, SplitHead):
        return head.pre_logits(h)
    if place is None:
        raise ConfigError(f"the head of {type(net).__name__} has no linear layer, so there is nothing before its logits")
    heard: list[Tensor] = []
    hook = place[1].register_forward_pre_hook(lambda _, given: heard.append(given[0]))
    try:
        head(h)
    finally:
        hook.remove()
    return heard[-1]
