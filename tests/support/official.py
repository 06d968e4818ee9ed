"""Small data sets written in the official layouts, byte for byte as the originals are made."""

import gzip
import io
import pickle
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from continua.data.cifar import CIFAR10, CIFAR100
from continua.data.idx import MNIST
from continua.data.tiny_imagenet import TINY_IMAGENET_200

SMALL_CIFAR10 = replace(CIFAR10, counts={"train": (2,) * 10, "test": (1,) * 10})
SMALL_CIFAR100 = replace(CIFAR100, counts={"train": (2,) * 100, "test": (1,) * 100})
SMALL_MNIST = replace(MNIST, counts={"train": (2,) * 10, "test": (1,) * 10})
SMALL_TINY = replace(TINY_IMAGENET_200, counts={"train": (3,) * 200, "val": (1,) * 200})


def random_bytes(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


# --- pickles as Python 2 wrote them ---------------------------------------------------------------------------------------


def py2(value: object) -> bytes:
    """The instructions with which Python 2's pickle, protocol 2, builds a value: strings are bytes, arrays come from numpy.core."""
    if isinstance(value, str):
        return b"U" + bytes([len(value)]) + value.encode()
    if isinstance(value, int):
        return b"K" + bytes([value]) if value < 256 else b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(py2, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(py2(key) + py2(item) for key, item in value.items()) + b"u"
    if isinstance(value, np.ndarray):
        empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        element = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        raw = b"T" + struct.pack("<i", value.nbytes) + value.tobytes()
        return empty + b"(K\x01" + py2(value.shape[0]) + py2(value.shape[1]) + b"\x86" + element + b"\x89" + raw + b"tb"
    raise TypeError(value)


def py2_pickle(value: object) -> bytes:
    return b"\x80\x02" + py2(value) + b"."


def py3_pickle(value: object) -> bytes:
    return pickle.dumps(value, protocol=2)


# --- whole sets -----------------------------------------------------------------------------------------------------------


def write_cifar10_python(root: Path, pixels: np.ndarray, labels: list[int], dumps=py2_pickle) -> Path:
    """30 images: five training batches of 4, then a test batch of 10."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    (folder / "batches.meta").write_bytes(dumps({"label_names": [f"class {i}" for i in range(10)], "num_cases_per_batch": 4}))
    for name, part in cifar10_parts():
        (folder / name).write_bytes(dumps({"batch_label": name, "labels": labels[part], "data": pixels[part], "filenames": ["a.png"]}))
    return folder


def write_cifar10_binary(root: Path, pixels: np.ndarray, labels: list[int]) -> Path:
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "batches.meta.txt").write_text("".join(f"class {i}\n" for i in range(10)) + "\n")
    for name, part in cifar10_parts():
        rows = np.concatenate([np.array(labels[part], dtype=np.uint8)[:, None], pixels[part]], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    return folder


def cifar10_parts() -> list[tuple[str, slice]]:
    return [*((f"data_batch_{i + 1}", slice(4 * i, 4 * i + 4)) for i in range(5)), ("test_batch", slice(20, 30))]


def write_cifar100(root: Path, pixels: np.ndarray, fine: list[int], coarse: list[int], *, binary: bool) -> Path:
    """300 images: 200 to train, 100 to test."""
    folder = root / ("cifar-100-binary" if binary else "cifar-100-python")
    folder.mkdir(parents=True)
    names = [f"class {i}" for i in range(100)]
    if binary:
        (folder / "fine_label_names.txt").write_text("\n".join(names) + "\n")
        (folder / "coarse_label_names.txt").write_text("\n".join(names[:20]) + "\n")
    else:
        (folder / "meta").write_bytes(py2_pickle({"fine_label_names": names, "coarse_label_names": names[:20]}))
    for split, part in (("train", slice(0, 200)), ("test", slice(200, 300))):
        if binary:
            both = np.array([coarse[part], fine[part]], dtype=np.uint8).T
            (folder / f"{split}.bin").write_bytes(np.concatenate([both, pixels[part]], axis=1).tobytes())
        else:
            found = {"data": pixels[part], "fine_labels": fine[part], "coarse_labels": coarse[part]}
            (folder / split).write_bytes(py2_pickle(found))
    return folder


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(root: Path, images: np.ndarray, labels: np.ndarray, *, packed: bool, folder: str = "mnist") -> Path:
    """30 images: 20 to train, 10 to test."""
    target = root / folder
    target.mkdir(parents=True)
    for prefix, part in (("train", slice(0, 20)), ("t10k", slice(20, 30))):
        for kind, array in (("images-idx3", images[part]), ("labels-idx1", labels[part])):
            name = f"{prefix}-{kind}-ubyte"
            (target / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(idx_bytes(array)) if packed else idx_bytes(array))
    return target


def jpeg(colour: int | tuple[int, int, int], size: tuple[int, int] = (64, 64)) -> bytes:
    """One flat image; a single number makes it a grey JPEG."""
    stream = io.BytesIO()
    Image.new("L" if isinstance(colour, int) else "RGB", size, colour).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def write_tiny(root: Path, splits: tuple[str, ...] = ("train", "val")) -> Path:
    """200 classes in an order that is not sorted; every image has the flat colour `tiny_colour` of its class."""
    folder = root / "tiny-imagenet-200"
    folder.mkdir(parents=True)
    wnids = [f"n{1000 + 7 * i % 200:08d}" for i in range(200)]
    (folder / "wnids.txt").write_text("\n".join(wnids) + "\n")
    (folder / "words.txt").write_text("".join(f"{wnid}\tthing {wnid[-3:]}, another name\n" for wnid in sorted(wnids)) + "n9\tunused\n")
    for wnid in wnids if "train" in splits else ():
        images = folder / "train" / wnid / "images"
        images.mkdir(parents=True)
        for i in range(3):
            (images / f"{wnid}_{i}.JPEG").write_bytes(jpeg(tiny_colour(wnid)))
    if "val" in splits:
        (folder / "val" / "images").mkdir(parents=True)
        lines = []
        for i, wnid in enumerate(reversed(wnids)):
            (folder / "val" / "images" / f"val_{i}.JPEG").write_bytes(jpeg(tiny_colour(wnid)))
            lines.append(f"val_{i}.JPEG\t{wnid}\t0\t0\t63\t63\n")
        (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    return folder


def tiny_colour(wnid: str) -> int | tuple[int, int, int]:
    """The official set has grey JPEGs among the coloured ones: here those of every tenth class."""
    number = int(wnid[-3:])
    return number if number % 10 == 0 else (number, 255 - number, 100)


def tar_gz(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as pack:
        for name, contents in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(contents)
            pack.addfile(entry, io.BytesIO(contents))
    return stream.getvalue()
