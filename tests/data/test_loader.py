"""Epochs of batches: what they hold, how ranks share them, how a stopped run goes on."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from continua import ConfigError, ContinuaWarning, DataError
from continua.data.augment import Augmentation
from continua.data.crop import ResizedCrop
from continua.data.dataset import MemorySplit
from continua.data.draws import permutation
from continua.data.image_folder import ImageFolder, load_image_folder
from continua.data.loader import Batch, Loader

AUGMENTATION = Augmentation(crop_padding=1, flip=True, saturation=0.4)
FOLDER_AUGMENTATION = Augmentation(resized_crop=ResizedCrop(), flip=True, brightness=0.4, contrast=0.4, pca=0.1)


def memory(n: int) -> MemorySplit:
    generator = torch.Generator().manual_seed(n)
    return MemorySplit(torch.randint(0, 256, (n, 3, 4, 5), dtype=torch.uint8, generator=generator), torch.arange(n) % 7)


def counted(batches) -> list[int]:
    return [index for batch in batches for index in batch.indices[batch.valid].tolist()]


def same(one: Batch, other: Batch) -> bool:
    return all(
        torch.equal(a, b)
        for a, b in zip(
            (one.images, one.labels, one.indices, one.valid), (other.images, other.labels, other.indices, other.valid), strict=True
        )
    )


SIZES = {"n": st.integers(1, 30), "batch_size": st.integers(3, 40), "world": st.integers(1, 4), "epoch": st.integers(0, 1000)}


@given(**SIZES, shuffle=st.booleans())
def test_each_sample_counts_exactly_once_over_all_ranks(n, batch_size, world, epoch, shuffle):
    loaders = [Loader(memory(n), batch_size, shuffle=shuffle, rank=rank, world_size=world) for rank in range(world)]
    assert sorted(index for loader in loaders for index in counted(loader.epoch(epoch))) == list(range(n))


@settings(max_examples=40)
@given(**SIZES, drop_last=st.booleans(), seed=st.integers(0, 2**40))
def test_ranks_kth_batches_together_are_the_single_process_kth_batch(n, batch_size, world, epoch, drop_last, seed):
    if drop_last:
        batch_size = min(n, batch_size)
    options = {"shuffle": True, "drop_last": drop_last, "seed": seed, "augmentation": AUGMENTATION}
    alone = list(Loader(memory(n), batch_size, **options).epoch(epoch))
    ranks = [list(Loader(memory(n), batch_size, rank=rank, world_size=world, **options).epoch(epoch)) for rank in range(world)]
    assert {len(batches) for batches in ranks} == {len(alone)}
    for k, whole in enumerate(alone):
        parts = [batches[k] for batches in ranks]
        assert len({part.images.shape for part in parts}) == 1
        images = {int(i): image for part in parts for i, image in zip(part.indices[part.valid], part.images[part.valid], strict=True)}
        assert sorted(images) == sorted(whole.indices.tolist())
        assert sum(int(part.valid.sum()) for part in parts) == len(whole.indices)
        assert torch.equal(torch.stack([images[int(i)] for i in whole.indices]), whole.images)


@settings(max_examples=40)
@given(**SIZES, data=st.data(), drop_last=st.booleans())
def test_a_run_stopped_anywhere_goes_on_exactly(n, batch_size, world, epoch, data, drop_last):
    if drop_last:
        batch_size = min(n, batch_size)
    options = {"shuffle": True, "drop_last": drop_last, "augmentation": AUGMENTATION, "rank": world - 1, "world_size": world}
    loader = Loader(memory(n), batch_size, **options)
    start = data.draw(st.integers(0, len(loader)))
    expected = list(loader.epoch(epoch))[start:]
    resumed = list(Loader(memory(n), batch_size, **options).epoch(epoch, start=start))
    assert len(resumed) == len(loader) - start
    assert all(same(one, other) for one, other in zip(expected, resumed, strict=True))


def test_order_is_the_documented_permutation_and_labels_follow():
    split = memory(20)
    batches = list(Loader(split, 8, shuffle=True, seed=4).epoch(2))
    assert counted(batches) == permutation(20, seed=4, epoch=2).tolist()
    for batch in batches:
        assert torch.equal(batch.labels, split.labels[batch.indices])
        assert torch.equal(batch.images, split.images[batch.indices])
    assert counted(Loader(split, 8).epoch(2)) == list(range(20))


def test_drop_last_leaves_out_the_smaller_batch():
    assert [len(b.labels) for b in Loader(memory(20), 8).epoch(0)] == [8, 8, 4]
    assert [len(b.labels) for b in Loader(memory(20), 8, drop_last=True).epoch(0)] == [8, 8]


def test_samples_that_fill_up_a_rank_are_marked():
    shares = [next(Loader(memory(5), 5, rank=rank, world_size=3).epoch(0)) for rank in range(3)]
    assert [share.indices.tolist() for share in shares] == [[0, 3], [1, 4], [2, 0]]
    assert [share.valid.tolist() for share in shares] == [[True, True], [True, True], [True, False]]


def test_images_are_uint8_without_an_augmentation_and_float_with(device):
    raw = next(Loader(memory(6), 6, device=device).epoch(0))
    assert raw.images.dtype == torch.uint8
    assert {part.device.type for part in (raw.images, raw.labels, raw.indices, raw.valid)} == {device.type}
    augmented = next(Loader(memory(6), 6, device=device, augmentation=AUGMENTATION).epoch(0))
    assert augmented.images.dtype == torch.float32
    assert torch.allclose(augmented.images.cpu(), AUGMENTATION.apply(memory(6).images, 0, 0, torch.arange(6)), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"batch_size": 0}, "batch_size 0"),
        ({"batch_size": 4, "rank": 2, "world_size": 2}, "rank 2 of 2"),
        ({"batch_size": 50, "drop_last": True}, "no batch of 50"),
        ({"batch_size": 4, "workers": -1}, "workers"),
    ],
)
def test_impossible_settings_are_refused(options, word):
    with pytest.raises(ConfigError, match=word):
        Loader(memory(6), **options)


@pytest.mark.parametrize("start", [-1, 3])
def test_starting_outside_the_epoch_is_refused_at_once(start):
    with pytest.raises(ConfigError, match="2 batches"):
        Loader(memory(6), 3).epoch(0, start=start)


def test_an_empty_split_is_refused():
    with pytest.raises(ConfigError, match="0 images"):
        Loader(memory(0), 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand small images in two classes, one of them damaged: the 321st of class a."""
    root = tmp_path_factory.mktemp("thousand")
    pixels = np.random.default_rng(0).integers(0, 256, (1000, 10, 12, 3), dtype=np.uint8)
    for name in ("a", "b"):
        (root / name).mkdir()
    for i in range(1000):
        Image.fromarray(pixels[i]).save(root / ("a" if i < 500 else "b") / f"{i % 500:03}.png", compress_level=0)
    (root / "a" / "320.png").write_bytes(b"not an image")
    return root


def good_images(folder: Path, count: int) -> ImageFolder:
    return load_image_folder(folder, size=8)["train"].select(torch.arange(count) + 480)


def test_workers_change_nothing(folder):
    split = good_images(folder, 40)
    options = {"shuffle": True, "augmentation": FOLDER_AUGMENTATION, "seed": 3}
    here = list(Loader(split, 7, workers=0, **options).epoch(5))
    for workers in (1, 2):
        there = list(Loader(split, 7, workers=workers, **options).epoch(5, start=2))
        assert all(same(one, other) for one, other in zip(here[2:], there, strict=True))


@pytest.mark.parametrize(("batch_size", "world"), [(5, 1), (40, 3)])
def test_decoded_images_are_the_same_for_any_batch_size_and_ranks(folder, batch_size, world):
    split = good_images(folder, 40)
    options = {"shuffle": True, "augmentation": FOLDER_AUGMENTATION, "workers": 0}
    whole = next(Loader(split, 40, **options).epoch(1))
    expected = dict(zip(whole.indices.tolist(), whole.images, strict=True))
    for rank in range(world):
        for batch in Loader(split, batch_size, rank=rank, world_size=world, **options).epoch(1):
            for index, image, label in zip(batch.indices.tolist(), batch.images, batch.labels, strict=True):
                assert torch.equal(image, expected[index])
                assert label == split.labels[index]


def test_evaluation_of_a_folder_gives_its_decoded_images(folder):
    split = good_images(folder, 6)
    batch = next(Loader(split, 6, workers=0).epoch(0))
    assert torch.equal(batch.images, torch.stack([split.decode(i) for i in range(6)]))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_undecodable_image_among_a_thousand_is_named(folder, workers):
    split = load_image_folder(folder, size=8)["train"]
    with pytest.raises(DataError, match=r"^cannot decode .*320\.png: found 12 bytes .*on_bad_image='skip'$"):
        list(Loader(split, 100, workers=workers).epoch(0))


def test_undecodable_images_are_skipped_and_counted_when_told_so(folder):
    split = load_image_folder(folder, size=8, on_bad_image="skip")["train"]
    loader = Loader(split, 100, workers=0)
    with pytest.warns(ContinuaWarning, match=r"1 of 1000 images .* were skipped; cannot decode .*320\.png"):
        batches = list(loader.epoch(0))
    assert sorted(counted(batches)) == [i for i in range(1000) if i != 320]
    assert list(loader.skipped) == [320]
    list(loader.epoch(1))  # known by now: not warned of again


def test_a_file_that_has_gone_is_never_skipped(folder, tmp_path):
    split = load_image_folder(folder, size=8, on_bad_image="skip")["train"]
    gone = ImageFolder(tmp_path, split.files[:4], split.labels[:4], 8, None, "skip")
    with pytest.raises(DataError, match="cannot read"):
        list(Loader(gone, 4, workers=0).epoch(0))


def test_loading_leaves_the_global_random_state_alone(folder):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    list(Loader(good_images(folder, 10), 5, shuffle=True, augmentation=FOLDER_AUGMENTATION, workers=1).epoch(0))
    list(Loader(memory(10), 5, shuffle=True, augmentation=AUGMENTATION).epoch(0))
    assert torch.equal(torch.rand(3), expected)
