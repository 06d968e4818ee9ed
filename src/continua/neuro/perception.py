"""What a network does not see: metamers, other images with the same response, and eigendistortions, the changes it notices most and least.

    view = Percept(net, block=0, t=1.0)                     h(t) of a block as a frozen module, images in, maps out
    metamer(view, image, seed=0).image                      noise that was changed until the response is that to the image
    eigendistortions(view, image)                           unit vectors e with the largest and smallest |J e|, J the Jacobian at the image

Freeman and Simoncelli (2011) made metamers of a model of the ventral stream; Berardino et al. (2017) eigendistortions of networks. For
blocks with a time, t chooses how deep one looks: what is still the same at h(t) and what is lost. `Percept` satisfies what plenoptic asks
of a model (`plenoptic.validate.validate_model`).
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from continua.blocks import ODEBlock
from continua.errors import ConfigError
from continua.models import Network
from continua.report import Maps

View = Callable[[Tensor], Tensor]
"""Images (batch, channels, height, width) in [0, 1] -> responses of any shape, batch first."""
Image = Float[Tensor, "1 channels height width"]


class Percept(nn.Module):
    """h(t) of a block (or the stem, or the logits) as a module whose weights are constants, in evaluation mode.

    Args:
        net: Any network of the registry. It is copied, and left as it is.
        block: Which block, "stem", or "head" for the logits.
        t: When, on the block's own depth; None: at its end. Blocks without a time have their end only.
        prepare: From images in [0, 1] to what the network reads; None: as they are. A network trained on normalised images needs its own.
    """

    def __init__(self, net: Network, block: "int | str" = 0, t: float | None = None, *, prepare: View | None = None) -> None:
        super().__init__()
        if block not in ("stem", "head") and (isinstance(block, str) or not -len(net.blocks) <= block < len(net.blocks)):
            raise ConfigError(f"there is no block {block!r}; {net.title} has blocks 0 … {len(net.blocks) - 1}, 'stem' and 'head'")
        if t is not None and (isinstance(block, str) or not isinstance(net.blocks[block], ODEBlock)):
            raise ConfigError(f"{block!r} of {net.title} has no time; leave out t")
        self.net, self.block, self.t, self.prepare = copy.deepcopy(net).requires_grad_(False), block, t, prepare
        self.eval()

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Tensor:
        """Maps (batch, channels, height, width); of the head, logits (batch, classes)."""
        images = images if self.prepare is None else self.prepare(images)
        if self.block == "head":
            return self.net(images)
        if isinstance(self.block, str):
            return self.net.stem(images).contiguous()
        return self.net.states(images, self.block, None if self.t is None else [self.t])[-1].contiguous()  # plenoptic takes views of it


@dataclass(frozen=True, eq=False)
class Metamer:
    """An image with the response of another.

    Attributes:
        image: (1, channels, height, width), in [0, 1].
        start: What it was made from.
        target: The image whose response it has.
        losses: ‖r(x) − r(target)‖² / ‖r(start) − r(target)‖² after each step: 1 at first.
    """

    image: Tensor
    start: Tensor
    target: Tensor
    losses: list[float] = field(default_factory=list)

    @property
    def distance(self) -> float:
        """The root mean square difference of the two images: far apart, and yet the same to the network."""
        return float((self.image - self.target).square().mean().sqrt())

    def picture(self) -> Maps:
        """The image, the start and the metamer; channels are averaged."""
        shown = torch.cat([self.target, self.start, self.image]).mean(1).numpy()
        return Maps("metamer", f"Metamer, loss {self.losses[-1]:.1e}", [""], ["image", "start", "metamer"], shown[None], "luminance")


def metamer(
    view: View, image: Image, *, start: Image | None = None, seed: int = 0, steps: int = 400, goal: float = 1e-4, rate: float = 0.02
) -> Metamer:
    """Change noise (or `start`) until its response is that to the image, by Adam on the pixels, kept within [0, 1].

    Args:
        view: Images to responses; a `Percept`, or any differentiable function.
        image: The image whose response is wanted, in [0, 1].
        start: Where to begin; None: noise around grey.
        seed: Of the noise.
        steps: At most so many.
        goal: Stop when the loss, as a share of the first, is below this.
        rate: Of Adam at first; it falls to a tenth towards the last step.

    Returns:
        The image found; `losses[-1]` says how near it came.

    Examples:
        >>> import torch
        >>> from continua import create_model
        >>> from continua.neuro import Percept, metamer
        >>> net = create_model("dcn_ode", channels=(4,), norm_groups=2, in_channels=1, solver=dict(method="rk4", steps=1))
        >>> made = metamer(Percept(net, block=0, t=1.0), torch.rand(1, 1, 8, 8), steps=5)
    """
    target = _luminances(image)
    first = _noise(target, seed) if start is None else _luminances(start)
    (made,) = _descend(view, target, first, steps, goal, rate)
    return made


def _noise(target: Tensor, seed: int) -> Tensor:
    noise = torch.randn(target.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (0.5 + 0.15 * noise).clamp(0, 1).to(target)


def _descend(view: View, targets: Tensor, start: Tensor, steps: int, goal: float, rate: float) -> list[Metamer]:
    """One metamer for each image of a batch, side by side: each has its own loss, and Adam treats pixels one by one."""
    with torch.no_grad():
        wanted = view(targets)
    pixels = start.detach().clone().requires_grad_()
    adam = torch.optim.Adam([pixels], lr=rate)
    schedule = torch.optim.lr_scheduler.ExponentialLR(adam, 0.1 ** (1 / max(1, steps)))
    losses: list[Tensor] = []
    scale: Tensor | None = None
    best, found = torch.full((len(targets),), float("inf"), device=targets.device), start.detach().clone()
    for _ in range(steps):
        adam.zero_grad()
        loss = (view(pixels) - wanted).square().flatten(1).sum(1)
        if scale is None:
            scale = loss.detach().clamp_min(torch.finfo(loss.dtype).tiny)
        loss = loss / scale
        losses.append(loss.detach().cpu())
        better = loss.detach() < best
        best, found = torch.where(better, loss.detach(), best), torch.where(better[:, None, None, None], pixels.detach(), found)
        if bool((best < goal).all()):
            break
        loss.sum().backward()
        adam.step()
        schedule.step()
        with torch.no_grad():
            pixels.clamp_(0, 1)
    courses = torch.stack([*losses, best.cpu()]).tolist()
    return [
        Metamer(found[k : k + 1].cpu(), start[k : k + 1].detach().cpu(), targets[k : k + 1].cpu(), [course[k] for course in courses])
        for k in range(len(targets))
    ]


@dataclass(frozen=True, eq=False)
class Eigendistortions:
    """Directions of images of length 1, the one noticed most first: `vectors` (2, channels, height, width), and |J e|² of each."""

    image: Tensor
    vectors: Tensor
    values: Tensor

    @property
    def ratio(self) -> float:
        """How much farther the response moves for the one noticed most: the square root of the eigenvalues' ratio."""
        return float((self.values[0] / self.values[-1].clamp_min(torch.finfo(self.values.dtype).tiny)).sqrt())

    def picture(self) -> Maps:
        """Both directions; channels are averaged."""
        columns = [f"{name}: {value:.2g}" for name, value in zip(("most", "least"), self.values.tolist(), strict=True)]
        return Maps("eigendistortions", "Changes that are noticed most and least", [""], columns, self.vectors.mean(1)[None].numpy(), "")


def eigendistortions(view: View, image: Image, *, seed: int = 0, steps: int = 100, tolerance: float = 1e-4) -> Eigendistortions:
    """The extreme eigenvectors of J'J, J the Jacobian of the responses at an image (the Fisher information under white noise).

    The largest by power iteration on J'J, the smallest by power iteration on λ_max − J'J: near the bottom of the spectrum, where
    eigenvalues lie close together, it is a direction that is hardly noticed rather than the very last one.

    Args:
        view: Images to responses, differentiable twice: networks with the gradient "checkpoint" (their default), not "direct".
        image: Where.
        seed: Of the first vectors.
        steps: Of each iteration at most.
        tolerance: Stop when the eigenvalue changes by less than this share.

    Returns:
        The two directions, each of length 1, and |J e|² of each.

    Examples:
        >>> import torch
        >>> from continua import create_model
        >>> from continua.neuro import Percept, eigendistortions
        >>> net = create_model("dcn_ode", channels=(4,), norm_groups=2, in_channels=1, solver=dict(method="rk4", steps=1))
        >>> found = eigendistortions(Percept(net, block=0), torch.rand(1, 1, 8, 8), steps=3)
    """
    target = _one(image)
    product = _normal_product(view, target)
    first = torch.randn((2, *target.shape), generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(target)
    most, largest = _power(product, first[0], steps, tolerance)
    least, _ = _power(lambda v: largest * v - product(v), first[1], steps, tolerance * 1e-2)
    smallest = (least * product(least)).sum()
    return Eigendistortions(target.cpu(), torch.cat([most, least]).cpu(), torch.stack([largest, smallest.clamp_min(0)]).cpu())


def metamer_film(
    net: Network,
    image: Image,
    block: int,
    times: Sequence[float],
    *,
    steps: int = 200,
    seed: int = 0,
    goal: float = 1e-4,
    rate: float = 0.02,
    prepare: View | None = None,
) -> tuple[Maps, list[Metamer]]:
    """Metamers of h(t) for each of some times, from the same noise: what the state still holds of an image as it goes through a block.

    Args:
        net: A network whose block has a time.
        image: The image whose responses are wanted.
        block: Which block.
        times: On the block's own depth.
        steps: Of each metamer at most.
        seed: Of the noise.
        goal: They stop when the loss of each is below this share of its first.
        rate: Of Adam at first.
        prepare: From images in [0, 1] to what the network reads; None: as they are.

    Returns:
        A picture of the image and all metamers, and the metamers.

    Examples:
        >>> import torch
        >>> from continua import create_model
        >>> from continua.neuro import metamer_film
        >>> net = create_model("dcn_ode", channels=(4,), norm_groups=2, in_channels=1, solver=dict(method="rk4", steps=1))
        >>> picture, made = metamer_film(net, torch.rand(1, 1, 8, 8), 0, [0.5, 1.0], steps=3)
    """
    target, moments = _luminances(image), torch.unique(torch.tensor([float(t) for t in times], dtype=torch.float64))
    frozen = Percept(net, block, float(moments[0]), prepare=prepare)
    place = torch.searchsorted(moments, torch.tensor([float(t) for t in times], dtype=torch.float64))

    def view(images: Tensor) -> Tensor:
        """Each image at its own time: one solve gives all of them."""
        states = frozen.net.states(images if prepare is None else prepare(images), block, moments.tolist())
        return states[place, torch.arange(len(images))]

    many = target.expand(len(times), *target.shape[1:])
    made = _descend(view, many, _noise(target, seed).expand_as(many).clone(), steps, goal, rate)
    shown = torch.stack([image[0].mean(0).cpu(), *(part.image[0].mean(0) for part in made)]).numpy()
    columns = ["image", *(f"t = {t:g}" for t in times)]
    return Maps("metamers", f"Metamers of block {block + 1}", [""], columns, shown[None], "luminance"), made


def _one(image: Tensor) -> Tensor:
    if image.ndim != 4 or len(image) != 1 or not image.is_floating_point():
        raise ConfigError(
            f"the image is {tuple(image.shape)} of {image.dtype}; expected one image, (1, channels, height, width), of floats"
        )
    return image.detach()


def _luminances(image: Tensor) -> Tensor:
    """One image whose pixels a metamer can have."""
    low, high = float(image.min()), float(image.max())
    if not (low >= -1e-6 and high <= 1 + 1e-6):
        raise ConfigError(
            f"the image has values from {low:.4g} to {high:.4g}, and pixels of a metamer are kept within [0, 1]; expected luminances "
            "(of bytes: image / 255; normalised images: give them before, and prepare= to the view)"
        )
    return _one(image)


def _normal_product(view: View, image: Tensor) -> Callable[[Tensor], Tensor]:
    """v -> J'J v. J'u is a gradient; J v is the gradient of (J'u)·v to u, since that is linear in u."""
    pixels = image.clone().requires_grad_()
    with torch.enable_grad():
        answers = view(pixels)
        weights = torch.zeros_like(answers, requires_grad=True)
        (back,) = torch.autograd.grad(answers, pixels, weights, create_graph=True)

    def product(v: Tensor) -> Tensor:
        (forward,) = torch.autograd.grad(back, weights, v, retain_graph=True)
        return torch.autograd.grad(answers, pixels, forward.detach(), retain_graph=True)[0]

    return product


def _power(product: Callable[[Tensor], Tensor], v: Tensor, steps: int, tolerance: float) -> tuple[Tensor, Tensor]:
    """The eigenvector of the largest eigenvalue of a positive product, and the eigenvalue."""
    v, value = v / v.norm(), v.new_zeros(())
    for _ in range(steps):
        moved = product(v)
        before, value = value, (v * moved).sum()
        if not bool(moved.norm() > 0):
            return v, value
        v = moved / moved.norm()
        if bool((value - before).abs() <= tolerance * value.abs()):
            break
    return v, value
