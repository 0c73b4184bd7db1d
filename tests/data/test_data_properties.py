"""Properties of local draws, partitions and masks, for any labels and any image."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pycocotools import mask as coco

from fedmuscle_lib.data.coco import plain_mask
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
def test_run_lengths_of_either_kind_are_the_mask(mask):
    height, width = mask.shape
    column_by_column = mask.T.ravel()
    edges = np.flatnonzero(np.diff(column_by_column, prepend=False))
    lengths = np.diff(edges, prepend=0, append=mask.size).tolist()
    for counts in (coco.encode(np.asfortranarray(mask, np.uint8))["counts"].decode(), lengths):
        segmentation = {"size": [height, width], "counts": counts}
        assert np.array_equal(plain_mask(segmentation, height, width), mask)
    with pytest.raises(ValueError, match="add up"):
        plain_mask({"size": [height, width], "counts": [*lengths, 1]}, height, width)


@given(st.integers(1, 12), st.integers(1, 12))
def test_a_polygon_around_an_image_covers_it_and_one_far_outside_is_refused(height, width):
    around = np.array([0, 0, width, 0, width, height, 0, height])
    assert plain_mask([around.tolist()], height, width).all()
    assert plain_mask([[0, 0, width, height], around.tolist()], height, width).all()
    assert not plain_mask([[0, 0, width, height]], height, width).any()
    with pytest.raises(ValueError, match="a polygon is far outside"):
        plain_mask([(around + 3 * max(height, width)).tolist()], height, width)
