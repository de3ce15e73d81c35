import numpy as np
import pytest

from capi.experiments.comparison import Between, changed, claim_of, differences, paired, positive, verdict_of
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
    half = 2.776 * UP.std(ddof=1) / np.sqrt(5)
    assert (every.low, every.high) == pytest.approx((1.5 - half, 1.5 + half), abs=1e-3)
    assert every.low < every.bootstrap[0] < 1.5 < every.bootstrap[1] < every.high
    assert (every.n_seeds, every.supports) == (5, True)
    assert (found["one"].standard_error, found["one"].low, found["one"].supports) == (None, None, None)
    assert differences({"all": UP}, Between(9.0))["all"].supports is False


@pytest.mark.parametrize(
    ("limits", "supports", "needed"),
    [
        ((0.0, None), True, "above 0"),
        ((1.4, None), None, "above 1.4"),
        ((None, 0.9), False, "below 0.9"),
        ((0.9, 2.1), True, "0.9 to 2.1"),
        ((1.4, 3.0), None, "1.4 to 3"),
        ((2.1, 3.0), False, "2.1 to 3"),
    ],
)
def test_a_difference_is_shown_with_the_limits_that_decide(limits, supports, needed):
    found = differences({"all": UP}, Between(*limits))["all"]
    assert (found.supports, found.needed) == (supports, needed)
    assert differences({"all": UP}, changed)["all"].needed == "not 0"


def test_parts_without_a_run_keep_a_claim_open():
    found = claim_of("", "", {"a": UP, "b": UP[:0]})
    assert (found.holds, found.parts, found.missing, found.verdict) == (
        None,
        ("holds", "open"),
        ("b",),
        "holds in part",
    )
    assert claim_of("", "", {"a": UP[:0]}).verdict == "open"
    assert claim_of("", "", {"a": UP}, Between(3.0)).verdict == "fails"


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
