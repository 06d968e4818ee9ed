"""Numbers of an evaluation against sums written out by hand."""

import numpy as np
import pytest
import torch

from continua.runs.evaluation import BINS, classification


@pytest.fixture
def predictions() -> tuple[torch.Tensor, torch.Tensor]:
    return 2 * torch.randn(500, 7), torch.randint(0, 7, (500,))


def test_top_1_top_5_and_confusion_are_counts(predictions: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, labels = predictions
    found = classification(logits, labels, tuple("abcdefg"), 510)
    order = np.argsort(-logits.numpy(), axis=1)
    assert found["top1"] == pytest.approx((order[:, 0] == labels.numpy()).sum() / 510), "ten images that failed count as wrong"
    assert found["top5"] == pytest.approx((order[:, :5] == labels.numpy()[:, None]).any(1).sum() / 510)
    confusion = np.zeros((7, 7), dtype=int)
    np.add.at(confusion, (labels.numpy(), order[:, 0]), 1)
    assert found["confusion"] == confusion.tolist()
    one = found["per_class"]["c"]
    assert (one["images"], one["accuracy"]) == (confusion[2].sum(), pytest.approx(confusion[2, 2] / confusion[2].sum()))
    wrong = confusion[2].copy()
    wrong[2] = 0
    assert one["confused_with"] == "abcdefg"[int(wrong.argmax())]


def test_the_calibration_error_is_the_mean_gap_between_confidence_and_accuracy(predictions: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, labels = predictions
    confidence, guess = (part.numpy() for part in logits.softmax(1).max(1))
    right = guess == labels.numpy()
    expected = 0.0
    for low in np.arange(BINS) / BINS:
        inside = (confidence > low) & (confidence <= low + 1 / BINS)
        if inside.any():
            expected += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    assert classification(logits, labels, tuple("abcdefg"), 500)["calibration_error"] == pytest.approx(expected, rel=1e-4)


def test_sure_and_right_is_perfect() -> None:
    labels = torch.arange(6) % 3
    found = classification(100.0 * torch.nn.functional.one_hot(labels).float(), labels, ("x", "y", "z"), 6)
    assert (found["top1"], found["top5"]) == (1.0, 1.0)
    assert found["calibration_error"] == pytest.approx(0.0, abs=1e-6)
    assert all(one["confused_with"] is None for one in found["per_class"].values())
