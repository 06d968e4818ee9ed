"""Random numbers that depend on what they are for."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from continua import ConfigError
from continua.data import MemorySplit, hold_out, load, take_per_class
from continua.data.draws import Draws, Stream, permutation, stratified

N = 20_000
WORD = 2**64
# Everything here is deterministic, so a threshold this low fails for a bad generator and never by chance.
UNLIKELY = 1e-4


def reference_bits(seed: int, epoch: int, stream: int, index: int, lane: int = 0) -> int:
    """The documented hash in Python's unbounded integers."""
    golden = 0x9E3779B97F4A7C15

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
        return z ^ (z >> 31)

    key = 0
    for word in (seed, epoch, stream):
        key = mix((key + word + golden) % WORD)
    return mix((index * golden + lane * 0xD1342543DE82EF95 + key) % WORD)


def test_tensor_hash_equals_the_same_hash_in_unbounded_integers(device):
    indices = torch.tensor([0, 1, 2, 49_999, 2**40], device=device)
    for seed, epoch, stream in itertools.product((0, 1, 2**62, -3), (0, 7), (Stream.SHUFFLE, Stream.HUE)):
        bits = Draws(seed, epoch, indices).bits(stream, lanes=3).cpu()
        expected = [[reference_bits(seed, epoch, stream, i, lane) for lane in range(3)] for i in indices.tolist()]
        assert [[b % WORD for b in row] for row in bits.tolist()] == expected


def test_reference_mixer_is_splitmix64():
    """The first outputs that are published for seed 1234567."""
    from continua.data.draws import _GOLDEN, _mix, _signed

    outputs = [_mix(_signed(1234567 + k * _GOLDEN)) % WORD for k in (1, 2, 3)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("stream", list(Stream))
def test_numbers_of_all_samples_are_uniform(stream):
    u = Draws(0, 0, torch.arange(N)).uniform(stream)[:, 0].numpy()
    assert u.min() >= 0
    assert u.max() < 1
    assert stats.kstest(u, "uniform").pvalue > UNLIKELY


def test_numbers_of_one_sample_are_uniform_over_epochs_and_over_seeds():
    one = torch.tensor([17])
    over_epochs = [Draws(0, e, one).uniform(Stream.FLIP).item() for e in range(1000)]
    over_seeds = [Draws(s, 0, one).uniform(Stream.FLIP).item() for s in range(1000)]
    assert stats.kstest(over_epochs, "uniform").pvalue > UNLIKELY
    assert stats.kstest(over_seeds, "uniform").pvalue > UNLIKELY


def independent(a: torch.Tensor, b: torch.Tensor) -> bool:
    table, _, _ = np.histogram2d(a.numpy(), b.numpy(), bins=12, range=[[0, 1], [0, 1]])
    return stats.chi2_contingency(table).pvalue > UNLIKELY


def test_neighbouring_streams_epochs_seeds_samples_and_lanes_are_independent():
    samples = torch.arange(N)

    def numbers(seed=0, epoch=0, stream=Stream.CROP, shift=0):
        return Draws(seed, epoch, samples + shift).uniform(stream)[:, 0]

    assert independent(numbers(), numbers(seed=1))
    assert independent(numbers(), numbers(epoch=1))
    assert independent(numbers(seed=1), numbers(epoch=1))
    assert independent(numbers(), numbers(shift=1))
    for one, other in itertools.combinations(Stream, 2):
        assert independent(numbers(stream=one), numbers(stream=other))
    lanes = Draws(0, 0, samples).uniform(Stream.BOX_AREA, lanes=3)
    assert independent(lanes[:, 0], lanes[:, 1])
    assert independent(lanes[:, 1], lanes[:, 2])
    assert independent(lanes[1:, 0], lanes[:-1, 1])
    assert not independent(numbers(), numbers() ** 2)


def test_integers_are_uniform_on_their_range():
    counts = torch.bincount(Draws(3, 1, torch.arange(N)).integers(Stream.CROP, 9)[:, 0], minlength=9)
    assert len(counts) == 9
    assert stats.chisquare(counts.numpy()).pvalue > UNLIKELY


def test_normal_numbers_are_normal_and_their_lanes_independent():
    z = Draws(0, 0, torch.arange(N)).normal(Stream.PCA_RADIUS, Stream.PCA_ANGLE, lanes=3).numpy()
    assert all(stats.kstest(lane, "norm").pvalue > UNLIKELY for lane in z.T)
    assert np.abs(np.corrcoef(z.T) - np.eye(3)).max() < 4 / np.sqrt(N)


def test_permutation_sorts_samples_by_their_signed_bits():
    def signed_bits(index: int) -> int:
        bits = reference_bits(5, 3, Stream.SHUFFLE, index)
        return bits - WORD if bits >= WORD // 2 else bits

    assert permutation(100, seed=5, epoch=3).tolist() == sorted(range(100), key=signed_bits)


def test_permutations_of_different_epochs_and_seeds_share_no_order():
    orders = [permutation(1000, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    for order in orders:
        assert order.sort().values.tolist() == list(range(1000))
    for one, other in itertools.combinations(orders, 2):
        assert abs(stats.spearmanr(one, other).statistic) < 0.15
        assert (one == other).sum() < 10


# --- subsets and hold-outs: balanced, without replacement, the same everywhere, of any kind of split


def split_of(labels: list[int] | torch.Tensor) -> MemorySplit:
    """Every image holds its own index, so that what was selected can be seen."""
    labels = torch.as_tensor(labels, dtype=torch.int64)
    index = torch.arange(len(labels))
    images = torch.stack([index // 256, index % 256], dim=1).to(torch.uint8)[:, :, None, None]
    return MemorySplit(images, labels)


def chosen(split: MemorySplit) -> list[int]:
    return (split.images[:, 0, 0, 0].long() * 256 + split.images[:, 1, 0, 0]).tolist()


SEEDS = st.integers(-(2**63), 2**64)


@given(data=st.data(), per_class=st.integers(1, 6), seed=SEEDS)
def test_a_subset_is_balanced_and_without_replacement(data: st.DataObject, per_class: int, seed: int) -> None:
    counts = data.draw(st.lists(st.integers(per_class, per_class + 12), min_size=1, max_size=5))
    labels = data.draw(st.permutations([label for label, count in enumerate(counts) for _ in range(count)]))
    subset = take_per_class(split_of(labels), per_class, seed)
    indices = chosen(subset)
    assert indices == sorted(set(indices))
    assert subset.labels.bincount().tolist() == [per_class] * (max(labels) + 1)
    assert subset.labels.tolist() == [labels[index] for index in indices]


@given(seed=SEEDS, small=st.integers(1, 19))
def test_of_one_seed_the_smaller_subset_is_part_of_the_larger(seed: int, small: int) -> None:
    split = split_of([i % 3 for i in range(60)])
    assert set(chosen(take_per_class(split, small, seed))) < set(chosen(take_per_class(split, small + 1, seed)))


def test_seeds_give_different_subsets_each_image_as_likely_as_any() -> None:
    split = split_of([i % 2 for i in range(40)])
    subsets = [tuple(chosen(take_per_class(split, 5, seed))) for seed in range(500)]
    assert len(set(subsets)) == 500
    hits = np.bincount(np.concatenate(subsets), minlength=40)
    # Each image is taken with probability 1/4: 500 draws have mean 125 and standard deviation 9.7.
    assert np.abs(hits - 125).max() < 5 * 9.7


def by_hand(count: int, seed: int, purpose: int) -> list[int]:
    """The documented order in plain Python integers."""

    def splitmix64(x: int) -> int:
        z = (x + 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    assert splitmix64(0) == 0xE220A8397B1DCDAF  # the first output of the published generator from state 0
    stream = splitmix64(splitmix64(seed % 2**64) + purpose)
    return sorted(range(count), key=lambda index: (splitmix64((stream + index) % 2**64), index))


@given(seed=SEEDS)
def test_the_order_is_the_documented_one(seed: int) -> None:
    subset = take_per_class(split_of([0] * 50), 7, seed)
    assert chosen(subset) == sorted(by_hand(50, seed, purpose=1)[:7])
    _, held = hold_out(split_of([0] * 50), 0.2, seed)
    assert chosen(held) == sorted(by_hand(50, seed, purpose=2)[:10])


def test_too_few_images_of_a_class_are_named() -> None:
    with pytest.raises(ConfigError, match="per_class=3, but class dog has 2 images"):
        take_per_class(split_of([0, 0, 0, 1, 1]), 3, classes=("cat", "dog"))
    with pytest.raises(ConfigError, match="class bird has 0 images"):
        take_per_class(split_of([0, 1]), 1, classes=("cat", "dog", "bird"))
    with pytest.raises(ConfigError, match="per_class is 0, expected at least 1"):
        take_per_class(split_of([0, 1]), 0)


@given(labels=st.lists(st.integers(0, 4), min_size=10, max_size=80), fraction=st.floats(0.05, 0.9), seed=SEEDS)
def test_a_hold_out_is_a_stratified_share_of_the_whole(labels: list[int], fraction: float, seed: int) -> None:
    split = split_of(labels)
    try:
        kept, held = hold_out(split, fraction, seed)
    except ConfigError:
        counts = [labels.count(label) for label in set(labels)]
        assert round(fraction * len(labels)) == 0 or min(counts) * (1 - fraction) < 1
        return
    assert sorted(chosen(kept) + chosen(held)) == list(range(len(labels)))
    assert len(held) == int(fraction * len(labels) + 0.5)
    for label in set(labels):
        assert abs(int((held.labels == label).sum()) - fraction * labels.count(label)) < 1
        assert (kept.labels == label).any()


def test_a_tenth_of_thirty_per_class_is_three_of_each() -> None:
    """0.1 · 30 is 3.0000000000000004 in floating point, 0.7 · 10 is 6.999…: shares are rounded before they are ranked."""
    for fraction, count, expected in ((0.1, 30, 3), (0.7, 10, 7), (0.3, 10, 3)):
        _, held = hold_out(split_of([i % 4 for i in range(4 * count)]), fraction)
        assert held.labels.bincount().tolist() == [expected] * 4


def test_a_hold_out_is_not_the_beginning_of_the_subset() -> None:
    split = split_of([0] * 1000)
    _, held = hold_out(split, 0.1, seed=0)
    subset = take_per_class(split, 100, seed=0)
    assert len(set(chosen(held)) & set(chosen(subset))) < 30  # 10 expected by chance


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_a_fraction_outside_0_to_1_is_refused(fraction: float) -> None:
    with pytest.raises(ConfigError, match="expected a fraction between 0 and 1"):
        hold_out(split_of([0, 0, 1, 1]), fraction)


def test_a_hold_out_that_is_empty_or_takes_a_whole_class_is_refused() -> None:
    with pytest.raises(ConfigError, match="of 4 images is none"):
        hold_out(split_of([0, 0, 1, 1]), 0.1)
    with pytest.raises(ConfigError, match="leaves a class without training images"):
        stratified(torch.tensor([0, 0, 0, 1]), 0.9, seed=0)


def test_load_draws_the_hold_out_from_the_subset() -> None:
    found = load("digits", per_class=52, seed=3, holdout=0.1)
    assert (len(found["train"]), len(found["holdout"]), len(found["test"])) == (468, 52, 359)
    subset = load("digits", per_class=52, seed=3)["train"]
    together = torch.cat([found["train"].images, found["holdout"].images])
    assert sorted(x.numpy().tobytes() for x in together) == sorted(x.numpy().tobytes() for x in subset.images)
    assert torch.equal(found["test"].images, load("digits")["test"].images)
