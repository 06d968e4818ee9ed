"""Images back from features: a decoder trained on a frozen encoder (DCN §4.3)."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from continua.blocks import Activation, group_norm
from continua.errors import ConfigError
from continua.models.dcn import DCN
from continua.ode import Stats


class Reconstructor(nn.Module):
    """encoder → block → upscale → 1×1 → block → upscale → norm → act → 1×1, the paper's order.

    The encoder is a frozen copy of the given network: it stays in evaluation mode and gets no gradients. The decoder is fresh, with blocks
    of the encoder's kind. `loss = mse_loss(r(images), r.target(images))`.
    """

    def __init__(self, encoder: DCN, *, make_block: Callable[[int], nn.Module] | None = None) -> None:
        super().__init__()
        if not isinstance(encoder, DCN) or len(encoder.channels) < 2:
            given = type(encoder).__name__ if not isinstance(encoder, DCN) else f"one with channels={encoder.channels}"
            raise ConfigError(f"a Reconstructor takes a network of the DCN family with at least two blocks as its encoder; got {given}")
        make_block = make_block or encoder.make_block
        *_, narrow, wide = encoder.channels
        self.encoder = copy.deepcopy(encoder).requires_grad_(False).eval()
        self.blocks = nn.ModuleList([make_block(wide), make_block(narrow)])
        self.squeeze = nn.Conv2d(wide, narrow, 1)
        self.norm = group_norm(narrow, encoder.norm_groups)
        self.act = Activation(encoder.activation)
        self.to_image = nn.Conv2d(narrow, encoder.in_channels, 1)

    def forward(self, images: Tensor) -> Tensor:
        """The reconstruction, four times the size of the features and at most that of the images."""
        with torch.no_grad():
            h = self.encoder.forward_features(images)
        return _centre(self.decode(h), *images.shape[-2:])

    def decode(self, h: Tensor) -> Tensor:
        """An image from the state after the encoder's last block."""
        h = self.squeeze(_upscale(self.blocks[0](h)))
        h = _upscale(self.blocks[1](h))
        return self.to_image(self.act(self.norm(h), overwrite=True))

    def target(self, images: Tensor) -> Tensor:
        """What the reconstruction should be: the images cropped around their centre to its size."""
        with torch.no_grad():
            height, width = _feature_size(self.encoder, images)
        return _centre(images, 4 * height, 4 * width)

    def train(self, mode: bool = True) -> "Reconstructor":
        super().train(mode)
        self.encoder.eval()
        return self

    @property
    def stats(self) -> list[Stats | None]:
        """What the last solve of each decoder block cost."""
        return [getattr(block, "stats", None) for block in self.blocks]


def _upscale(h: Tensor) -> Tensor:
    return functional.interpolate(h, scale_factor=2, mode="bilinear", align_corners=False)


def _centre(images: Tensor, height: int, width: int) -> Tensor:
    """The middle of the images, where they are larger than asked."""
    top, left = (max(0, have - want) // 2 for have, want in zip(images.shape[-2:], (height, width), strict=True))
    return images[..., top : top + height, left : left + width]


def _feature_size(encoder: DCN, images: Tensor) -> tuple[int, int]:
    """Height and width after the last block: blocks keep the size of their input, so stem and transitions say it all."""
    h = encoder.stem(images[:1])
    for transition in encoder.transitions:
        h = transition(h)
    return h.shape[-2], h.shape[-1]
