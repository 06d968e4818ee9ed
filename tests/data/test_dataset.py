"""A split is images with labels, one each."""

import pytest
import torch

from continua import DataError
from continua.data import DataSet, MemorySplit

IMAGES, LABELS = torch.arange(48, dtype=torch.uint8).reshape(4, 3, 2, 2), torch.tensor([0, 1, 2, 1])


def test_select_takes_images_with_their_labels_in_the_order_given() -> None:
    chosen = MemorySplit(IMAGES, LABELS).select(torch.tensor([2, 0]))
    assert torch.equal(chosen.images, IMAGES[[2, 0]])
    assert chosen.labels.tolist() == [2, 0]
    assert len(chosen) == 2


def test_a_split_that_is_not_there_is_an_error_with_the_reason() -> None:
    found = DataSet("set", ("a", "b", "c"), {"val": MemorySplit(IMAGES, LABELS)}, {"train": "this copy lacks it"})
    assert len(found["val"]) == 4
    with pytest.raises(DataError, match="this copy lacks it"):
        found["train"]
    with pytest.raises(DataError, match="unknown split of set 'test'; known: val"):
        found["test"]
