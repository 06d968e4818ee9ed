"""Receptive fields: what a unit reads, from gradients, from noise and from spots. Maps are (units, channels, height, width)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from continua.errors import ConfigError
from continua.neuro.cells import Responses, checked, respond
from continua.report import Maps


@dataclass(frozen=True, eq=False)
class ReceptiveField:
    """A map of each unit, (units, channels, height, width), and how it was made."""

    kind: str
    maps: Tensor

    def centre(self) -> Float[Tensor, "units 2"]:
        """Row and column of the middle of each map's energy."""
        energy = self._energy()
        rows, columns = (torch.arange(size, dtype=energy.dtype) for size in energy.shape[-2:])
        return torch.stack([(energy.sum(2) * rows).sum(1), (energy.sum(1) * columns).sum(1)], dim=1)

    def radius(self) -> Float[Tensor, "units"]:
        """The root mean square distance, in pixels, of each map's energy from its middle, along one axis."""
        energy, middle = self._energy(), self.centre()
        rows, columns = (torch.arange(size, dtype=energy.dtype) for size in energy.shape[-2:])
        distance = (rows[:, None] - middle[:, 0, None, None]) ** 2 + (columns - middle[:, 1, None, None]) ** 2
        return ((energy * distance).sum(dim=(1, 2)) / 2).sqrt()

    def correlation(self, other: Tensor) -> Float[Tensor, "units"]:
        """The correlation of each map with another of the same shape, such as a known filter."""
        one, two = (part.flatten(1).double() - part.flatten(1).double().mean(1, keepdim=True) for part in (self.maps, other.cpu()))
        return (one * two).sum(1) / (one.norm(dim=1) * two.norm(dim=1))

    def picture(self, most: int = 8) -> Maps:
        """The maps of the first units as a picture of `continua.report`; channels are summed."""
        shown = self.maps[:most].sum(1)
        columns = [f"unit {place}" for place in range(len(shown))]
        return Maps(f"receptive-field-{self.kind}", f"Receptive fields ({self.kind})", [""], columns, shown[None].numpy(), "weight")

    def _energy(self) -> Tensor:
        energy = self.maps.double().square().sum(1)
        return energy / energy.sum(dim=(1, 2), keepdim=True)


def gradient_field(responses: Responses, stimulus: Float[Tensor, "1 channels height width"]) -> ReceptiveField:
    """The gradient of each unit's response at one stimulus (grey, say): for a linear unit its filter, exactly.

    Args:
        responses: stimuli -> responses (batch, units).
        stimulus: where the gradient is taken.

    Returns:
        A map for each unit.

    Raises:
        ConfigError: more than one stimulus, or responses without a gradient.

    Examples:
        >>> from continua.neuro import Screen, gradient_field
        >>> fields = gradient_field(lambda x: x.flatten(1)[:, :3], Screen(8, 8, 0.1).grey())
    """
    if len(stimulus) != 1:
        raise ConfigError(f"a gradient is taken at one stimulus; got {len(stimulus)}")
    given = stimulus.detach().clone().requires_grad_()
    with torch.enable_grad():
        answers = checked(responses(given), 1)[0]
        if not answers.requires_grad:
            raise ConfigError(
                "the responses have no gradient to the stimulus: call the network without torch.no_grad and without detaching"
            )
        maps = [torch.autograd.grad(answer, given, retain_graph=True, allow_unused=True)[0] for answer in answers]
    zero = torch.zeros_like(given)
    return ReceptiveField("gradient", torch.cat([zero if part is None else part for part in maps]).detach().cpu())


def spike_triggered_average(
    responses: Responses, noise: Float[Tensor, "count channels height width"], *, batch_size: int = 256, whiten: float | None = None
) -> ReceptiveField:
    """Σ (r − r̄)(x − x̄) / Σ(x − x̄)² per pixel: the mean stimulus weighted by response, in units of response per contrast.

    For white noise and a linear unit it tends to the filter; with n stimuli of P pixels the correlation with the filter is about
    1/√(1 + P/n), above 0.99 for n > 50 P. `whiten`: divide by the covariance of the stimuli plus this share of its mean variance: a (ridge)
    regression, for noise that is not white, and exact for a linear unit where n > P and the share is small.

    Args:
        responses: stimuli -> responses (batch, units).
        noise: the stimuli.
        batch_size: stimuli at a time.
        whiten: share of the mean variance that is added to the covariance; None: no division by it.

    Returns:
        A map for each unit.

    Raises:
        ConfigError: fewer than two stimuli.

    Examples:
        >>> from continua.neuro import Screen, spike_triggered_average, white_noise
        >>> fields = spike_triggered_average(lambda x: x.flatten(1)[:, :3], white_noise(Screen(8, 8, 0.1), 500, seed=0))
    """
    flat = noise.detach().flatten(1).cpu().double()
    answers = respond(responses, noise, batch_size)
    if len(flat) < 2:
        raise ConfigError(f"{len(flat)} stimuli have no average to be triggered; expected at least 2, better 50 per pixel")
    stimuli, rates = flat - flat.mean(0), answers - answers.mean(0)
    product = rates.t() @ stimuli
    if whiten is None:
        maps = product / stimuli.square().sum(0).mean().clamp_min(torch.finfo(torch.float64).tiny)
    else:
        covariance = stimuli.t() @ stimuli
        share = whiten * covariance.diagonal().mean()
        covariance.diagonal().add_(share)
        maps = torch.linalg.solve(covariance, product.t()).t()
    return ReceptiveField("spike-triggered average", maps.unflatten(1, noise.shape[1:]))


def sparse_fields(
    responses: Responses, noise: Float[Tensor, "count channels height width"], *, batch_size: int = 256
) -> tuple[ReceptiveField, ReceptiveField]:
    """Maps of ON and OFF: the mean response while a pixel is brighter, and while it is darker, than grey, minus the mean of all.

    Args:
        responses: stimuli -> responses (batch, units).
        noise: as `sparse_noise` makes it.
        batch_size: stimuli at a time.

    Returns:
        The maps of ON and of OFF.

    Examples:
        >>> from continua.neuro import Screen, sparse_fields, sparse_noise
        >>> on, off = sparse_fields(lambda x: x.flatten(1)[:, :3], sparse_noise(Screen(8, 8, 0.1), 200, seed=0))
    """
    total = respond(responses, noise, batch_size)
    rates = total - total.mean(0)
    maps = []
    for sign in (1, -1):
        seen = (sign * noise.detach().flatten(1).cpu() > 0).double()
        maps.append(((rates.t() @ seen) / seen.sum(0).clamp_min(1)).unflatten(1, noise.shape[1:]))
    return ReceptiveField("on", maps[0]), ReceptiveField("off", maps[1])
