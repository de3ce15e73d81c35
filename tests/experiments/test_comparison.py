import numpy as np
import pytest

from capi.experiments.comparison import changed, differences, paired, positive, verdict_of
from capi.experiments.experiment import Claim

UP = np.array([1.0, 2.0, 1.5, 1.2, 1.8])


def test_few_seeds_decide_nothing():
    assert positive(UP[:4]) is None
    assert positive(UP) is True
    assert positive(-UP) is False
    assert positive(UP - UP.mean()) is None
    assert changed(-UP) is True
    assert changed(UP - UP.mean()) is None


def test_only_seeds_that_both_have_are_paired():
    np.testing.assert_array_equal(paired({3: 5.0, 1: 2.0, 7: 1.0}, {1: 1.0, 3: 1.0}), [1.0, 4.0])


def test_differences_have_an_error_and_an_interval():
    found = differences({"all": UP, "one": UP[:1], "none": UP[:0]})
    assert list(found) == ["all", "one"]
    every = found["all"]
    assert every.mean == pytest.approx(1.5)
    assert every.standard_error == pytest.approx(UP.std(ddof=1) / np.sqrt(5))
    assert 1.0 < every.low < 1.5 < every.high < 2.0
    assert (every.n_seeds, every.supports) == (5, True)
    assert (found["one"].standard_error, found["one"].low, found["one"].supports) == (None, None, None)
    assert differences({"all": UP}, lambda values: positive(values - 9))["all"].supports is False


@pytest.mark.parametrize(
    ("holds", "parts", "verdict"),
    [
        (True, {}, "holds"),
        (False, {"a": -UP}, "fails"),
        (False, {"a": -UP, "b": UP}, "holds in part"),
        (None, {"a": UP, "b": UP[:2]}, "holds in part"),
        (None, {"a": UP[:2]}, "open"),
        (None, {}, "open"),
    ],
)
def test_a_claim_holds_in_part_if_some_of_its_differences_support_it(holds, parts, verdict):
    assert Claim("", "", holds, {}, differences(parts)).verdict == verdict


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "fails"], "holds in part"),
        (["holds in part", "holds in part"], "holds in part"),
        (["fails", "fails"], "fails"),
        (["fails", "open"], "open"),
        ([], "open"),
    ],
)
def test_a_sentence_is_judged_by_its_parts(parts, verdict):
    assert verdict_of(parts) == verdict
