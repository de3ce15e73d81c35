import pytest

from capi import Transitions
from capi._utils.suggestions import closest, did_you_mean
from capi._utils.validation import check_choice
from capi.errors import InvalidInputError


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("agee", "age"), ("AGE", "age"), ("cd_4", "cd-4"), ("pulze", "pulse"), ("zzz", None), ("age", None), (3, None)],
)
def test_the_closest_name_ignores_case_and_separators(typed, meant):
    assert closest(typed, ["age", "cd-4", "pulse", 3, None]) == meant


def test_the_sentence_names_the_choice_or_is_empty():
    assert did_you_mean("optimal_tree", ("optimal-trees", "trees")) == " Did you mean 'optimal-trees'?"
    assert did_you_mean("optimal_tree", ()) == ""


def test_choices_and_columns_use_it():
    with pytest.raises(InvalidInputError, match=r"keep must be one of .*; got 'lats'\. Did you mean 'last'\?"):
        check_choice("lats", "keep", ("last", "best"))
    with pytest.raises(InvalidInputError, match=r"column 'rewrad' does not exist; .* Did you mean 'reward'\?"):
        Transitions.from_frame({"x": [1.0], "a": [0], "reward": [1.0]}, state="x", action="a", reward="rewrad")
