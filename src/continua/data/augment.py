"""From uint8 batches to the floats a network sees: what is varied at random, and how it is normalised."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from continua.data.crop import ResizedCrop, crop_and_resize, shift_and_flip
from continua.data.draws import Draws, Stream
from continua.errors import ConfigError, DataError
from continua.options import option

# Principal components of the colours of ImageNet's training images, in [0, 1], as distributed with many recipes.
IMAGENET_EIGENVALUES = (0.2175, 0.0188, 0.0045)
IMAGENET_EIGENVECTORS = ((-0.5675, -0.5808, -0.5836), (0.7192, -0.0045, -0.6948), (0.4009, -0.8140, 0.4203))


@dataclass(frozen=True)
class Augmentation:
    """What happens to an image on its way to the network. All of it off: only scaled to [0, 1].

    In this order:

    1. `resized_crop`: a random rectangle, resized to the image's size (image folders do this while decoding);
       or `crop_padding` = p: a window of the image's size at random in the image padded by p zeros on each side.
    2. `brightness`, `contrast`, `saturation` = s: a factor uniform in [1 − s, 1 + s] (from 0 if s > 1) each, in random order.
    3. `hue` = s: the hue turned by a share of the circle uniform in [−s, s] (at most 0.5).
    4. `pca` = s: noise along the principal components of colour, strengths normal with standard deviation s.
    5. `flip`: mirrored left to right, every other image on average.
    6. divided by 255, then minus `mean`, divided by `std`, per channel, where given.

    A flip commutes with steps 2 to 4, and flip-then-crop has the same distribution as crop-then-flip, as the window's
    position is symmetric: so this one order serves every paper. Numbers depend on (seed, epoch, sample index) only.
    """

    crop_padding: int = option(0, "a window at random in the image padded by this many zeros")
    flip: bool = option(False, "mirror each image with probability 1/2")
    resized_crop: ResizedCrop | None = option(None, "a random rectangle, resized; for example {area: [0.08, 1]}")
    brightness: float = option(0.0, "changed at random by up to this share")
    contrast: float = option(0.0, "changed at random by up to this share")
    saturation: float = option(0.0, "changed at random by up to this share")
    hue: float = option(0.0, "turned at random by up to this share of the circle")
    pca: float = option(0.0, "standard deviation of noise along the principal components of colour")
    pca_eigenvalues: tuple[float, ...] = option(IMAGENET_EIGENVALUES, "of those components")
    pca_eigenvectors: tuple[tuple[float, ...], ...] = option(IMAGENET_EIGENVECTORS, "those components")
    mean: tuple[float, ...] | None = option(None, "subtracted from images in [0, 1], per channel")
    std: tuple[float, ...] | None = option(None, "then divided by, per channel")

    def __post_init__(self) -> None:
        for name in ("mean", "std", "pca_eigenvalues"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(map(float, getattr(self, name))))
        object.__setattr__(self, "pca_eigenvectors", tuple(map(tuple, self.pca_eigenvectors)))
        self._check()

    def _check(self) -> None:
        for name in ("crop_padding", "brightness", "contrast", "saturation", "hue", "pca"):
            if getattr(self, name) < 0:
                raise ConfigError(f"augmentation: {name} is {getattr(self, name)}; expected 0 (off) or more")
        if self.hue > 0.5:
            raise ConfigError(f"augmentation: hue is {self.hue}; expected at most 0.5, half a turn either way")
        if self.crop_padding and self.resized_crop:
            raise ConfigError("augmentation: crop_padding and resized_crop are both set; choose one way to crop")
        if (self.mean is None) != (self.std is None):
            raise ConfigError(f"augmentation: mean is {self.mean} and std is {self.std}; give both or neither")
        if self.std is not None and (len(self.std) != len(self.mean or ()) or min(self.std) <= 0):
            raise ConfigError(f"augmentation: mean {self.mean} and std {self.std}; expected as many of each, std above 0")
        if len(self.pca_eigenvalues) != 3 or [len(vector) for vector in self.pca_eigenvectors] != [3, 3, 3]:
            raise ConfigError("augmentation: PCA noise needs three eigenvalues and three eigenvectors of three numbers each")

    def evaluation(self) -> "Augmentation":
        """The same normalisation and nothing random: what test images get."""
        return Augmentation(mean=self.mean, std=self.std)

    def after_decoding(self) -> "Augmentation":
        """What is left to do when the resized crop was taken while decoding."""
        return replace(self, resized_crop=None)

    def apply(self, images: Tensor, seed: int, epoch: int, indices: Tensor) -> Float32[Tensor, "n channels height width"]:
        """A uint8 batch (n, channels, height, width) as this (seed, epoch) sees it; `indices` are the images' places in their split."""
        self._check_batch(images, indices)
        draws = Draws(seed, epoch, indices.to(images.device))
        if self.resized_crop:
            images = crop_and_resize(images, self.resized_crop.boxes(draws, *images.shape[-2:]))
        return self._normalise(self._colour(self._shift_and_flip(images, draws), draws))

    def _check_batch(self, images: Tensor, indices: Tensor) -> None:
        shape = tuple(images.shape)
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise DataError(
                f"augmentation: got {images.dtype} of shape {shape}; expected torch.uint8 of shape (n, channels, height, width)"
            )
        if indices.shape != shape[:1]:
            raise DataError(
                f"augmentation: got {shape[0]} images with indices of shape {tuple(indices.shape)}; expected one index per image"
            )
        if self.crop_padding >= min(shape[-2:]):
            raise ConfigError(
                f"augmentation: crop_padding {self.crop_padding} on images of {shape[-2]}×{shape[-1]} could crop nothing but padding; "
                "make it smaller than the images"
            )
        if shape[1] != 3 and (self.saturation or self.hue or self.pca):
            raise ConfigError(f"augmentation: saturation, hue and pca need 3 colour channels, the images have {shape[1]}; set them to 0")
        if self.mean is not None and len(self.mean) not in (1, shape[1]):
            raise ConfigError(
                f"augmentation: mean and std have {len(self.mean)} values, the images {shape[1]} channels; give one value per channel, "
                "one for all, or null for neither"
            )

    def _shift_and_flip(self, images: Tensor, draws: Draws) -> Tensor:
        mirrored = draws.uniform(Stream.FLIP)[:, 0] < 0.5 if self.flip else None
        if self.crop_padding:
            rows, columns = draws.integers(Stream.CROP, 2 * self.crop_padding + 1, lanes=2).unbind(1)
            if mirrored is None:
                mirrored = torch.zeros_like(rows, dtype=torch.bool)
            return shift_and_flip(images, rows, columns, mirrored, self.crop_padding)
        if mirrored is not None:
            return torch.where(mirrored[:, None, None, None], images.flip(-1), images)
        return images

    def _colour(self, images: Tensor, draws: Draws) -> Float32[Tensor, "n channels height width"]:
        images = images.float()
        strengths = ((Stream.BRIGHTNESS, self.brightness), (Stream.CONTRAST, self.contrast), (Stream.SATURATION, self.saturation))
        factors = [draws.between(stream, max(0.0, 1 - s), 1 + s) if s else None for stream, s in strengths]
        kinds = sum(factor is not None for factor in factors)
        if kinds:
            order = draws.bits(Stream.COLOUR_ORDER, lanes=kinds).argsort(stable=True, dim=1)
            images = distort(images, factors[0], factors[1], factors[2], order)
        if self.hue:
            images = rotate_hue(images, draws.between(Stream.HUE, -self.hue, self.hue))
        if self.pca:
            strength = self.pca * draws.normal(Stream.PCA_RADIUS, Stream.PCA_ANGLE, lanes=3)
            images = add_pca_noise(images, strength, self.pca_eigenvalues, self.pca_eigenvectors)
        return images

    def _normalise(self, images: Float32[Tensor, "n channels height width"]) -> Float32[Tensor, "n channels height width"]:
        if self.mean is None or self.std is None:
            return images.div_(255)
        mean, std = (255 * images.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return images.sub_(mean).div_(std)


# --- colour, on whole batches of floats 0 … 255 with one strength per image; every sum over pixels is one of whole numbers, so an image's
# result does not depend on the images that share its batch

Images = Float[Tensor, "n channels height width"]
PerImage = Float[Tensor, "n"]


def distort(
    images: Images, brightness: PerImage | None, contrast: PerImage | None, saturation: PerImage | None, order: Int64[Tensor, "n kinds"]
) -> Images:
    """Photometric distortions (Howard 2014), applied to each image in its own order and clipped to 0 … 255 each time.

    A factor f blends an image with what lacks the quality: f · image + (1 − f) · target, where the target is black for
    brightness, the mean grey for contrast, the grey image for saturation. `order` permutes the factors that are given.
    """
    given = [(kind, f) for kind, f in enumerate((brightness, contrast, saturation)) if f is not None]
    kinds = torch.tensor([kind for kind, _ in given], device=images.device)[order]
    factors = torch.stack([f for _, f in given], 1).gather(1, order).to(images.dtype)
    for step in range(len(given)):
        kind, f = kinds[:, step, None, None, None], factors[:, step, None, None, None]
        target = torch.zeros_like(f)
        if saturation is not None:
            target = target + greyscale(images) * (kind == 2)
        if contrast is not None:
            target = target + mean_grey(images) * (kind == 1)
        images = (images * f + target * (1 - f)).clamp_(0, 255)
    return images


def mean_grey(images: Images) -> Float[Tensor, "n 1 1 1"]:
    """Each image's mean luma, as a whole number; of whole numbers, as Pillow: their sum is exact in whatever order it is taken."""
    grey = greyscale(images).round()
    return (grey.mean((1, 2, 3), keepdim=True, dtype=torch.float64) + 0.5).floor().to(images.dtype)


def greyscale(images: Images) -> Float[Tensor, "n 1 height width"]:
    """Luma of ITU-R 601: 0.299 R + 0.587 G + 0.114 B."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, 1)
    return red * 0.299 + green * 0.587 + blue * 0.114


def rotate_hue(images: Float[Tensor, "n 3 height width"], turn: PerImage) -> Float[Tensor, "n 3 height width"]:
    """Turn the hue of the hexcone (HSV) model by `turn` full turns; value and chroma stay."""
    red, green, blue = images.unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    lowest = torch.minimum(torch.minimum(red, green), blue)
    chroma = value - lowest
    ahead = torch.where(
        value == red,
        green - blue,
        torch.where(value == green, blue - red + 2 * chroma, red - green + 4 * chroma),
    )
    sixths = ahead / chroma.clamp(min=1e-30) + (6 * turn).to(images.dtype)[:, None, None]  # greys: 0 / 1e-30
    sixths = sixths - 6 * (sixths / 6).floor()
    rises = ((sixths - 3).abs() - 1, 2 - (sixths - 2).abs(), 2 - (sixths - 4).abs())
    return torch.stack([lowest + chroma * rise.clamp(0, 1) for rise in rises], 1)


def add_pca_noise(
    images: Float[Tensor, "n 3 height width"],
    strengths: Float[Tensor, "n 3"],
    eigenvalues: tuple[float, ...],
    eigenvectors: tuple[tuple[float, ...], ...],
) -> Float[Tensor, "n 3 height width"]:
    """Add Σ_i strength_i λ_i p_i to every pixel of an image (Krizhevsky et al. 2012); λ, p belong to colours in [0, 1]."""
    noise = torch.zeros_like(strengths)
    for i, (eigenvalue, vector) in enumerate(zip(eigenvalues, eigenvectors, strict=True)):
        noise = noise + (strengths[:, i] * eigenvalue)[:, None] * strengths.new_tensor(vector)
    return images + (255 * noise).to(images.dtype)[:, :, None, None]
