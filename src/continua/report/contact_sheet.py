"""A contact sheet: some images of every class, one class per row, to see at a glance what a data set holds."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8

from continua.report.write import written_whole

GAP, MARGIN, TEXT = 4, 16, 15  # pixels
PAPER, INK = (255, 255, 255), (40, 40, 40)


def contact_sheet(
    target: Path,
    images: UInt8[np.ndarray, "n channels height width"],
    labels: Int[np.ndarray, "n"],
    classes: Sequence[str],
    *,
    title: str,
    per_class: int = 16,
    thumb: int = 48,
) -> Path:
    """Write a PNG with the first `per_class` images of each class, each enlarged or reduced to about `thumb` pixels."""
    from PIL import Image, ImageDraw, ImageFont

    font, large = ImageFont.load_default(TEXT), ImageFont.load_default(TEXT + 5)
    ruler = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    left = MARGIN + int(max(ruler.textlength(name, font) for name in classes)) + 2 * GAP
    top = MARGIN + TEXT + 5 + 3 * GAP
    width, height = _thumb_size(images.shape[3], images.shape[2], thumb)
    sheet_width = max(left + per_class * (width + GAP), MARGIN + int(ruler.textlength(title, large))) + MARGIN
    sheet = Image.new("RGB", (sheet_width, top + len(classes) * (height + GAP) + MARGIN), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((MARGIN, MARGIN), title, INK, large)
    for row, name in enumerate(classes):
        y = top + row * (height + GAP)
        draw.text((left - 2 * GAP, y + height // 2), name, INK, font, anchor="rm")
        for column, index in enumerate(np.flatnonzero(labels == row)[:per_class]):
            # Whole enlargements keep pixels square and sharp: what is shown is what the network sees.
            enlarged = width >= images.shape[3]
            picture = _picture(images[index]).resize((width, height), Image.Resampling.NEAREST if enlarged else Image.Resampling.LANCZOS)
            sheet.paste(picture, (left + column * (width + GAP), y))
    with written_whole(target) as temporary:
        sheet.save(temporary, format="PNG")
    return target


def _thumb_size(width: int, height: int, thumb: int) -> tuple[int, int]:
    """About `thumb` pixels on the longer side: a whole multiple of the image where it is smaller."""
    longest = max(width, height)
    if longest <= thumb:
        return width * (thumb // longest), height * (thumb // longest)
    return max(1, width * thumb // longest), max(1, height * thumb // longest)


def _picture(image: np.ndarray):
    from PIL import Image

    if len(image) not in (1, 3):
        raise ValueError(f"an image of shape {image.shape} has {len(image)} channels, expected 1 (grey) or 3 (RGB)")
    return Image.fromarray(image[0] if len(image) == 1 else np.ascontiguousarray(image.transpose(1, 2, 0))).convert("RGB")
