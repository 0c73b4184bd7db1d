"""Properties of local draws, partitions and masks, for any labels and any image."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pycocotools import mask as coco

from fedmuscle_lib.data.coco_checks import plain_mask, segmentation_fault
from fedmuscle_lib.data.samples import Samples, draw_local

labels_of = st.integers(1, 6).flatmap(
    lambda classes: arrays(np.int64, st.integers(classes, 60), elements=st.integers(0, classes - 1))
)


@given(labels_of, st.data())
def test_a_local_draw_has_each_sample_once_and_is_even_over_classes(labels, data):
    n = data.draw(st.integers(1, len(labels)))
    drawn = draw_local(
        Samples(torch.arange(len(labels)), torch.from_numpy(labels)),
        n,
        data.draw(st.integers(0, 2**32)),
    )
    assert len(set(drawn.inputs.tolist())) == n and torch.equal(
        torch.from_numpy(labels)[drawn.inputs], drawn.targets
    )
    had, got = (
        np.bincount(part, minlength=labels.max() + 1) for part in (labels, drawn.targets.numpy())
    )
    fewest = min(
        (count for count, there in zip(got, had, strict=True) if count < there), default=n
    )  # of classes that have more to give
    assert got.max() <= fewest + 1


@given(arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 12))))
def test_run_lengths_are_read_as_pycocotools_reads_them(mask):
    height, width = mask.shape
    rle = coco.encode(np.asfortranarray(mask, np.uint8))
    counts = rle["counts"].decode()
    column_by_column = mask.T.ravel()
    edges = np.flatnonzero(
        np.diff(np.concatenate([[False], column_by_column, [not column_by_column[-1]]]))
    )
    lengths = np.diff(np.concatenate([[0], edges])).tolist()
    for segmentation in (
        {"size": [height, width], "counts": counts},
        {"size": [height, width], "counts": lengths},
    ):
        assert segmentation_fault(segmentation, height, width) == ""
        assert np.array_equal(plain_mask(segmentation, height, width), mask)
    longer = {"size": [height, width], "counts": [*lengths, 1]}
    assert "add up" in segmentation_fault(longer, height, width)
