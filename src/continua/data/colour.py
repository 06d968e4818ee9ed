"""Colour distortions of whole batches of float images with values 0 … 255, one random strength per image.

Each pixel's arithmetic is element by element and every sum over pixels is a sum of whole numbers, so an image's result
does not depend on the images that share its batch.
"""

import torch
from jaxtyping import Float, Int64
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


def principal_colours(images: Tensor) -> tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]:
    """Eigenvalues (largest first) and eigenvectors of the covariance of all pixels' colours in [0, 1]."""
    pixels = images.transpose(0, 1).flatten(1).double() / 255
    eigenvalues, vectors = torch.linalg.eigh(torch.cov(pixels))
    return tuple(eigenvalues.flip(0).tolist()), tuple(tuple(vector) for vector in vectors.mT.flip(0).tolist())
