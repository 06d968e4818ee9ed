"""Images per second of the CIFAR training pipelines, against the usual per-image Pillow pipeline, on one core.

Both start from 50,000 images in memory and end with a float batch; both pay for their random numbers. The images are random, as
nothing here depends on what they show.
"""

import itertools
import random
from collections.abc import Iterator

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps

from _common import machine, medians, options, show
from continua.data.augment import Augmentation
from continua.data.dataset import MemorySplit
from continua.data.loader import Batch, Loader

BATCH = 128
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def crop_and_flip(image: Image.Image) -> Image.Image:
    image = ImageOps.expand(image, 4)
    left, top = random.randint(0, 8), random.randint(0, 8)
    image = image.crop((left, top, left + 32, top + 32))
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image


def jitter(image: Image.Image) -> Image.Image:
    image = ImageEnhance.Color(image).enhance(random.uniform(0.95, 1.05))
    hue, saturation, value = image.convert("HSV").split()
    turned = (np.array(hue).astype(np.int16) + round(random.uniform(-0.05, 0.05) * 255)).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")


def to_float(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)


def pillow_batches(images: np.ndarray, batches: int, coloured: bool) -> None:
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    for _ in range(batches):
        batch = []
        for index in random.choices(range(len(images)), k=BATCH):
            image = crop_and_flip(Image.fromarray(images[index]))
            batch.append(to_float(jitter(image)).sub_(mean).div_(std) if coloured else to_float(image))
        torch.stack(batch)


def endless(loader: Loader) -> Iterator[Batch]:
    for epoch in itertools.count():
        yield from loader.epoch(epoch)


def loader_batches(stream: Iterator[Batch], batches: int) -> None:
    for _ in range(batches):
        next(stream)


def main() -> None:
    parser = options(__doc__, repeats=15)
    parser.add_argument("--batches", type=int, default=10, help=f"batches of {BATCH} images per timed round")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)

    generator = torch.Generator().manual_seed(0)
    split = MemorySplit(
        torch.randint(0, 256, (50_000, 3, 32, 32), dtype=torch.uint8, generator=generator), torch.zeros(50_000, dtype=torch.long)
    )
    pixels = split.images.permute(0, 2, 3, 1).contiguous().numpy()
    plain = Loader(split, BATCH, shuffle=True, augmentation=Augmentation(crop_padding=4, flip=True))
    coloured = Loader(
        split, BATCH, shuffle=True, augmentation=Augmentation(crop_padding=4, flip=True, hue=0.05, saturation=0.05, mean=MEAN, std=STD)
    )
    plain_stream, coloured_stream = endless(plain), endless(coloured)
    seconds = medians(
        {
            "crop, flip, to float: Pillow": lambda: pillow_batches(pixels, chosen.batches, coloured=False),
            "crop, flip, to float: Continua": lambda: loader_batches(plain_stream, chosen.batches),
            "crop, jitter, flip, normalise: Pillow": lambda: pillow_batches(pixels, chosen.batches, coloured=True),
            "crop, jitter, flip, normalise: Continua": lambda: loader_batches(coloured_stream, chosen.batches),
        },
        chosen.repeats,
    )
    rows = []
    for name, time in seconds.items():
        pipeline, by = name.split(": ")
        ratio = seconds[f"{pipeline}: Pillow"] / time
        rows.append({"pipeline": pipeline, "by": by, "images per second": chosen.batches * BATCH / time, "times as fast": ratio})
    show("CIFAR training pipelines", rows, machine("pillow", "numpy"), chosen.json)


if __name__ == "__main__":
    main()
