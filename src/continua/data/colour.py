"""Colour distortions of whole batches of float images with values 0 … 255, one random strength per image.

Each pixel's arithmetic is element by element and every sum over pixels is a sum of whole numbers, so an image's result
does not depend on the images that share its batch.
"""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

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
        kind, f = _per_image(kinds[:, step]), _per_image(factors[:, step])
        target = _blend_target(images, kind == 1, kind == 2)
        images = (images * f + target * (1 - f)).clamp(0, 255)
    return images


def _blend_target(images: Images, is_contrast: Bool[Tensor, "n 1 1 1"], is_saturation: Bool[Tensor, "n 1 1 1"]) -> Images:
    grey = greyscale(images)
    # Whole numbers before the mean, as Pillow: their sum is exact in whatever order it is taken.
    mean = (grey.round().mean((1, 2, 3), keepdim=True, dtype=torch.float64) + 0.5).floor().to(grey.dtype)
    return grey * is_saturation + mean * is_contrast


def greyscale(images: Images) -> Float[Tensor, "n 1 height width"]:
    """Luma of ITU-R 601: 0.299 R + 0.587 G + 0.114 B."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, 1)
    return red * 0.299 + green * 0.587 + blue * 0.114


def rotate_hue(images: Float[Tensor, "n 3 height width"], turn: PerImage) -> Float[Tensor, "n 3 height width"]:
    """Turn the hue of the hexcone (HSV) model by `turn` full turns; value and chroma stay."""
    red, green, blue = images.unbind(1)
    value = images.amax(1)
    chroma = value - images.amin(1)
    divisor = torch.where(chroma == 0, 1, chroma)
    sixths = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, (blue - red) / divisor + 2, (red - green) / divisor + 4),
    )
    sixths = sixths + (6 * turn).to(images.dtype)[:, None, None]

    def channel(offset: int) -> Tensor:
        k = torch.remainder(sixths + offset, 6)
        return value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)

    return torch.stack([channel(5), channel(3), channel(1)], 1)


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


def principal_colours(images: Tensor) -> tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]:
    """Eigenvalues (largest first) and eigenvectors of the covariance of all pixels' colours in [0, 1]."""
    pixels = images.transpose(0, 1).flatten(1).double() / 255
    eigenvalues, vectors = torch.linalg.eigh(torch.cov(pixels))
    return tuple(eigenvalues.flip(0).tolist()), tuple(tuple(vector) for vector in vectors.mT.flip(0).tolist())


def _per_image(values: Tensor) -> Tensor:
    return values[:, None, None, None]
