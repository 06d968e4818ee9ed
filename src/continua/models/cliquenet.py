"""CliqueNet (Yang et al. 2018), a source for conversion to an IRKNet."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from continua.blocks import Clique, Style
from continua.errors import ConfigError
from continua.models.densenet import check_numbers
from continua.models.rk_parts import MultiscaleHead, Transition
from continua.models.rknet import initialise


@dataclass(frozen=True)
class CliqueNetSpec:
    """A CliqueNet by its numbers. The paper's T is the sum of `nodes`.

    transition    channels after each transition; None: as many as the nodes of the block before have together, as in the paper
    bottleneck    a 1×1 convolution to k channels before each 3×3
    """

    nodes: tuple[int, ...] = (4, 4, 4)
    growth: int = 36
    stem_channels: int = 64
    transition: int | None = None
    bottleneck: bool = False
    attention: bool = False
    num_classes: int = 10
    in_channels: int = 3
    norm_eps: float = 1e-3

    def __post_init__(self) -> None:
        numbers = ("growth", "stem_channels", "num_classes", "in_channels")
        check_numbers(self, "nodes", numbers if self.transition is None else (*numbers, "transition"))
        for name in ("bottleneck", "attention"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"CliqueNetSpec: {name}={getattr(self, name)!r}; expected true or false")

    @property
    def inputs(self) -> list[int]:
        """Channels at the start of each clique block."""
        return [self.stem_channels, *(self.transition or nodes * self.growth for nodes in self.nodes[:-1])]


class CliqueNet(nn.Module):
    """stem → clique block → transition → …; the head reads y_n and all nodes of every block."""

    def __init__(self, spec: CliqueNetSpec | None = None) -> None:
        super().__init__()
        self.spec = spec = spec or CliqueNetSpec()
        style = Style(norm_eps=spec.norm_eps)
        neck = spec.growth if spec.bottleneck else None
        ends = [nodes * spec.growth for nodes in spec.nodes]
        self.stem = nn.Conv2d(spec.in_channels, spec.stem_channels, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList(
            Clique(start, spec.growth, nodes, bottleneck=neck, style=style) for start, nodes in zip(spec.inputs, spec.nodes, strict=True)
        )
        following = [after for _, after in pairwise(spec.inputs)]
        self.transitions = nn.ModuleList(
            Transition(end, after, style, spec.attention) for end, after in zip(ends[:-1], following, strict=True)
        )
        widths = [start + end for start, end in zip(spec.inputs, ends, strict=True)]
        self.head = MultiscaleHead(widths, spec.num_classes, style)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        h, seen = self.stem(images), []
        for index, block in enumerate(self.blocks):
            nodes = torch.cat(block.increments(h), 1)  # pyright: ignore[reportCallIssue]
            seen.append(torch.cat([h, nodes], 1))
            if index < len(self.transitions):
                h = self.transitions[index](nodes)
        return self.head(seen)
