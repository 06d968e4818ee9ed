"""Images back from features: a decoder trained on a frozen encoder (DCN §4.3)."""

import copy
from collections.abc import Collection
from dataclasses import dataclass
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from continua.blocks import Activation, group_norm
from continua.errors import ConfigError
from continua.models.config import ModelConfig, Options, Solved
from continua.models.dcn import DCN
from continua.models.network import EndTimes, Network
from continua.models.registry import create_model, model_config, register_model
from continua.ode import SolverConfig
from continua.options import option


@dataclass(frozen=True, kw_only=True)
class ReconstructionConfig(ModelConfig):
    """The encoder by name and options; the decoder follows from it."""

    encoder: str = option("dcn_ode", "model of the DCN family whose features are read")
    encoder_options: Options | None = option(None, "options of that model, which the decoder's blocks take too")

    def check(self) -> None:
        super().check()
        self._settle("encoder_options", self.encoder_config().plain())

    def vary(self, **options: object) -> Self:
        """Another encoder has options of its own."""
        if options.get("encoder", self.encoder) != self.encoder and "encoder_options" not in options:
            options["encoder_options"] = None
        return super().vary(**options)

    def encoder_config(self) -> ModelConfig:
        """The encoder's own configuration."""
        return model_config(self.encoder, **(self.encoder_options or {}))

    def with_solver(self, solver: SolverConfig, changed: Collection[str] | None = None) -> Self:
        config = self.encoder_config()
        return self.vary(encoder_options=config.with_solver(solver, changed).plain()) if isinstance(config, Solved) else self


class Reconstructor(Network):
    """encoder → block → upscale → 1×1 → block → upscale → norm → act → 1×1, the paper's order.

    The encoder is a frozen copy of the given network: it stays in evaluation mode and gets no gradients. The decoder is fresh, with blocks
    of the encoder's kind. `loss = mse_loss(r(images), r.target(images))`. As a `Network`, its stem is the encoder, its blocks are the
    decoder's, and its head makes the image.
    """

    def __init__(self, encoder: Network) -> None:
        super().__init__()
        if not isinstance(encoder, DCN) or len(encoder.channels) < 2:
            given = f"one with channels={encoder.channels}" if isinstance(encoder, DCN) else type(encoder).__name__
            raise ConfigError(f"a Reconstructor takes a network of the DCN family with at least two blocks as its encoder; got {given}")
        if encoder.name:
            self.name = "reconstruction"
            self.options = ReconstructionConfig(encoder=encoder.name, encoder_options=encoder.config["options"])
        *_, narrow, wide = encoder.channels
        self.solver = encoder.solver
        self.stem = Encoder(copy.deepcopy(encoder))
        self.blocks = nn.ModuleList([encoder.make_block(wide, -1), encoder.make_block(narrow, -2)])
        self.transitions = nn.ModuleList([Squeeze(wide, narrow)])
        self.head = ImageHead(narrow, encoder)

    @property
    def encoder(self) -> DCN:
        """The frozen network whose features are read."""
        return cast(Encoder, self.stem).network

    @property
    def in_channels(self) -> int:
        return self.encoder.in_channels

    def forward(self, images: Tensor, *, t1: EndTimes | None = None, input_scale: "float | Tensor | None" = None) -> Tensor:
        """The reconstruction, four times the size of the features and at most that of the images."""
        return _centre(super().forward(images, t1=t1, input_scale=input_scale), *images.shape[-2:])

    def decode(self, h: Tensor) -> Tensor:
        """An image from the state after the encoder's last block."""
        return self.head(self.blocks[1](self.transitions[0](self.blocks[0](h))))

    def target(self, images: Tensor) -> Tensor:
        """What the reconstruction should be: the images cropped around their centre to its size."""
        with torch.no_grad():
            height, width = _feature_size(self.encoder, images)
        return _centre(images, 4 * height, 4 * width)


class Encoder(nn.Module):
    """The features of a network that no longer learns."""

    def __init__(self, network: DCN) -> None:
        super().__init__()
        self.network = network.requires_grad_(False).eval()

    def forward(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            return self.network.forward_features(images)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.network.eval()
        return self


class Squeeze(nn.Module):
    """upscale → 1×1 convolution to fewer channels."""

    def __init__(self, wide: int, narrow: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(wide, narrow, 1)

    def forward(self, h: Tensor) -> Tensor:
        return self.conv(_upscale(h))


class ImageHead(nn.Module):
    """upscale → norm → act → 1×1 convolution to the channels of an image."""

    def __init__(self, channels: int, encoder: DCN) -> None:
        super().__init__()
        self.norm = group_norm(channels, encoder.norm_groups)
        self.act = Activation(encoder.activation)
        self.conv = nn.Conv2d(channels, encoder.in_channels, 1)

    def forward(self, h: Tensor) -> Tensor:
        return self.conv(self.act(self.norm(_upscale(h)), overwrite=True))


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


@register_model(
    config=ReconstructionConfig,
    paper="DCN",
    row="Table 2b, DCN-ODE and its decoder",
    parameters=686_551,
    printed="—",
    tiny=dict(encoder_options=dict(channels=(4, 8, 8))),
    task="reconstruct",
)
def reconstruction(config: ReconstructionConfig) -> Reconstructor:
    """A decoder on a frozen encoder."""
    return Reconstructor(create_model(config.encoder, **(config.encoder_options or {})))
