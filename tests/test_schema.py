import numpy as np
import pytest

from capi.errors import InvalidInput
from capi.schema import Schema


@pytest.mark.parametrize(
    "labels", [("no", "yes"), (0.5, 2.0), (3, 7), (False, True), ("a", 1), ((0, 0), (0, 1)), (None, "x")], ids=repr
)
def test_labels_come_back_as_they_were_given(labels):
    found = Schema.of(1, 2, None, labels).labels_of(np.array([1, 0, 1]))
    assert found.shape == (3,)
    assert found.tolist() == [labels[1], labels[0], labels[1]]


def test_defaults_are_numbered():
    assert Schema.of(2, 3) == Schema(("x0", "x1"), (0, 1, 2))


@pytest.mark.parametrize("bad", ["ab", 5, None.__class__])
def test_names_must_be_a_sequence(bad):
    with pytest.raises(InvalidInput, match="feature_names must be a sequence"):
        Schema.of(2, 2, bad)
