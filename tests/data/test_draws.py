"""Random numbers that depend on what they are for."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from continua.data.draws import Draws, Stream, permutation

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
