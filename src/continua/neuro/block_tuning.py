"""A survey of a whole network: every unit of every block, shown gratings of all orientations and frequencies.

One walk through the network gives the states after all its blocks, so that the blocks are compared on the same stimuli.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.filters import NJet
from continua.models import Network
from continua.neuro.cells import Place, batches, read_state
from continua.neuro.curves import TuningCurve, harmonics
from continua.neuro.gratings import grating
from continua.neuro.screen import Screen, to_images
from continua.neuro.selectivity import circular_variance, octaves, orientation_selectivity, peak_frequency


@dataclass(frozen=True, eq=False)
class BlockTuning:
    """Units of one block: how they are tuned to orientation, at each unit's preferred frequency, and to frequency, at its preferred
    orientation."""

    block: int
    orientation: TuningCurve
    frequency: TuningCurve

    @property
    def units(self) -> int:
        """How many units were measured."""
        return self.orientation.units

    def numbers(self) -> dict[str, np.ndarray]:
        """What is read off the curves, one number for each unit; frequencies in cycles per degree of the screen."""
        return {
            "orientation selectivity": orientation_selectivity(self.orientation),
            "circular variance": circular_variance(self.orientation),
            "preferred frequency": peak_frequency(self.frequency),
            "bandwidth": octaves(self.frequency),
            "F1/F0": self.orientation.modulation,
        }


@torch.no_grad()
def survey(
    net: Network,
    screen: Screen,
    *,
    orientations: int = 12,
    frequencies: Sequence[float],
    phases: int = 8,
    contrast: float = 0.5,
    place: Place = "centre",
    blocks: Sequence[int] | None = None,
    prepare: Callable[[Tensor], Tensor] | None = None,
    batch_size: int = 128,
) -> list[BlockTuning]:
    """Tuning of the units of a network to orientation and spatial frequency, block by block, at the end of each block.

    Args:
        net: Any network of the registry, in evaluation mode.
        screen: Where the gratings are drawn; as large as the images the network was trained on.
        orientations: How many, equally spaced over 180°; at least 3.
        frequencies: Cycles per degree, rising.
        phases: Of each grating; at least 3 tell F1 from F0.
        contrast: Of the gratings.
        place: Which units: those in the centre of the map, at a (row, column), or the mean over the map.
        blocks: Which blocks; None: all.
        prepare: From contrasts to what the network reads; None: luminances around 0.5.
        batch_size: Gratings at a time.

    Returns:
        One `BlockTuning` for each block, first to last.

    Raises:
        ConfigError: too few orientations, frequencies or phases.

    Examples:
        >>> from continua import create_model
        >>> from continua.neuro import Screen, survey
        >>> net = create_model("dcn_ode", channels=(4,), norm_groups=2, in_channels=1).eval()
        >>> (block,) = survey(net, Screen(16, 16), orientations=4, frequencies=[1.0, 2.0], phases=3)
    """
    shown = torch.as_tensor(frequencies, dtype=torch.float64)
    if orientations < 3 or phases < 3 or len(shown) < 1:
        raise ConfigError(f"{orientations} orientations, {len(shown)} frequencies, {phases} phases; expected at least 3, 1 and 3 of them")
    chosen = net.block_indices(blocks)
    angles = torch.arange(orientations, dtype=torch.float64) * 180 / orientations
    turns = torch.arange(phases, dtype=torch.float64) * 360 / phases
    grid = torch.cartesian_prod(shown, angles, turns)
    stimuli = grating(screen, frequency=grid[:, 0], orientation=grid[:, 1], phase=grid[:, 2], contrast=contrast)
    read = prepare or (lambda contrasts: to_images(contrasts, net.in_channels or 1))
    parts: list[list[Tensor]] = []
    for part in batches(torch.cat([screen.grey(), stimuli]), batch_size):
        _, states = net.forward_intermediates(read(part), indices=chosen, stop_early=True)
        parts.append([read_state(state, place, None).cpu().double() for state in states])
    found = []
    for index, answers in zip(chosen, zip(*parts, strict=True), strict=True):
        rates = torch.cat(answers).numpy()
        cycles = rates[1:].reshape(len(shown), orientations, phases, -1)
        f0, f1 = harmonics(cycles, turns.numpy() / 360, axis=2)
        found.append(_at_preferred(index, shown.numpy(), angles.numpy(), f0 - rates[0], f1, rates[0], contrast))
    return found


def _at_preferred(
    block: int, frequencies: np.ndarray, angles: np.ndarray, f0: np.ndarray, f1: np.ndarray, baseline: np.ndarray, contrast: float
) -> BlockTuning:
    """The two curves of each unit through its largest response; f0 and f1 are (frequencies, orientations, units)."""
    response = np.where(f1.max((0, 1)) > np.abs(f0).max((0, 1)), f1, f0)
    each = np.arange(response.shape[2])
    best = response.reshape(-1, len(each)).argmax(0)
    row, column = np.unravel_index(best, response.shape[:2])
    fixed = {"contrast": contrast}
    over_angles = TuningCurve("orientation", angles, f0[row, :, each].T, f1[row, :, each].T, baseline, fixed)
    over_frequencies = TuningCurve("frequency", frequencies, f0[:, column, each], f1[:, column, each], baseline, fixed)
    return BlockTuning(block, over_angles, over_frequencies)


def block_sigma(net: Network, block: int) -> float:
    """The geometric mean of the σ of a block's N-jets, in pixels of its map.

    Args:
        net: The network.
        block: Which block.

    Returns:
        σ; NaN where the block has no N-jet.

    Examples:
        >>> from continua import create_model
        >>> from continua.neuro import block_sigma
        >>> sigma = block_sigma(create_model("dcn_ode", channels=(4,), norm_groups=2), 0)
    """
    logs = [float(torch.log2(jet.sigma.detach()).mean()) for jet in net.blocks[block].modules() if isinstance(jet, NJet)]
    return 2 ** (sum(logs) / len(logs)) if logs else math.nan


def rescaled_block(net: Network, block: int, factor: float) -> Network:
    """A copy of a network in which every N-jet of one block has σ · factor, with the same coefficients.

    Args:
        net: The network, which is left as it is.
        block: Which block.
        factor: Of σ; above 1 filters grow.

    Returns:
        The copy.

    Raises:
        ConfigError: the block has no N-jets, or the factor is not positive.

    Examples:
        >>> from continua import create_model
        >>> from continua.neuro import rescaled_block
        >>> wide = rescaled_block(create_model("dcn_ode", channels=(4,), norm_groups=2), 0, 2.0)
    """
    if not 0 < factor < math.inf or math.isnan(block_sigma(net, block)):
        raise ConfigError(f"σ of block {block} of {net.title} times {factor}; expected a block with N-jets and a positive factor")
    changed = copy.deepcopy(net)
    for jet in changed.blocks[block].modules():
        if isinstance(jet, NJet):
            with torch.no_grad():
                jet.load_state_dict(jet.with_values(jet.alpha, jet.sigma * factor).state_dict())
    return changed
