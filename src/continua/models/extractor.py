"""`create_model(..., features_only=True)`: a network that gives its states as a list of maps, for detection, segmentation and the like.

Arguments and results are timm's, so code that takes a timm backbone takes this one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from continua.models.network import Network


class FeatureInfo:
    """What is known of each map: its channels, how many times smaller than the image it is, and which module made it."""

    def __init__(self, info: Sequence[Mapping[str, Any]], out_indices: Sequence[int]) -> None:
        self.info = [dict(level, index=index) for index, level in enumerate(info)]
        self.out_indices = tuple(out_indices)

    def get(self, key: str, idx: "int | Sequence[int] | None" = None) -> Any:
        """One fact of the chosen maps (None), of one level, or of several levels."""
        if isinstance(idx, int):
            return self.info[idx][key]
        return [self.info[index][key] for index in (self.out_indices if idx is None else idx)]

    def get_dicts(self, keys: Sequence[str] | None = None, idx: "int | Sequence[int] | None" = None) -> Any:
        """All facts, or those of `keys`, of the chosen maps (None), of one level, or of several levels."""
        if isinstance(idx, int):
            return {key: value for key, value in self.info[idx].items() if keys is None or key in keys}
        return [self.get_dicts(keys, index) for index in (self.out_indices if idx is None else idx)]

    def channels(self, idx: "int | Sequence[int] | None" = None) -> Any:
        """Channels of the maps."""
        return self.get("num_chs", idx)

    def reduction(self, idx: "int | Sequence[int] | None" = None) -> Any:
        """How many times smaller than the image the maps are."""
        return self.get("reduction", idx)

    def module_name(self, idx: "int | Sequence[int] | None" = None) -> Any:
        """The modules that made the maps."""
        return self.get("module", idx)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.info[index]

    def __len__(self) -> int:
        return len(self.info)

    def __repr__(self) -> str:
        return f"FeatureInfo(channels={self.channels()}, reduction={self.reduction()}, modules={self.module_name()})"


class FeatureExtractor(nn.Module):
    """images → a list of maps, the states after the blocks of `out_indices` (default: all).

    Blocks after the last one asked for and the head are left out, so every parameter has a gradient. `model` is what remains of the
    network, with its solver statistics and everything else.
    """

    def __init__(self, net: Network, out_indices: "int | Sequence[int] | None" = None) -> None:
        super().__init__()
        self.out_indices = tuple(net.block_indices(out_indices))
        self.feature_info = FeatureInfo(net.feature_info, self.out_indices)
        last = max(self.out_indices)
        net.blocks, net.transitions, net.head = net.blocks[: last + 1], net.transitions[:last], nn.Identity()
        net.name, net.multiscale = "", False  # no longer what its name would build
        self.model = net

    def forward(self, x: Tensor) -> list[Tensor]:
        states = self.model.forward_scales(x)
        return [states[index] for index in self.out_indices]
