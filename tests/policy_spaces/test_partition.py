import numpy as np
import pytest

from capi.errors import InvalidInputError
from capi.policy_spaces import Partition
from capi.testing import check_policy_space


def first_digit(states):
    return np.floor(states[:, 0])


def test_keeps_the_contract():
    check_policy_space(Partition(first_digit))
    check_policy_space(Partition(lambda states: np.zeros(len(states), dtype=int)))


@pytest.mark.parametrize("seed", range(5))
def test_every_cell_plays_the_action_with_the_largest_summed_value(seed):
    rng = np.random.default_rng(seed)
    states, q, weights = rng.uniform(0, 5, size=(40, 1)), rng.normal(size=(40, 3)), rng.random(40)
    policy = Partition(first_digit).improve(states, q, weights=weights)
    for cell in range(5):
        inside = first_digit(states) == cell
        expected = (weights[inside, None] * q[inside]).sum(axis=0).argmax()
        assert (policy.act(states[inside]) == expected).all()


def test_one_state_that_matters_outvotes_two_that_do_not():
    policy = Partition(first_digit).improve([[0.1], [0.2], [0.3]], [[0.1, 0.0], [0.1, 0.0], [0.0, 9.0]])
    assert policy.act(np.array([[0.5]]))[0] == 1


def test_cells_without_data_play_the_default():
    policy = Partition(first_digit, default=2).improve([[5.0]], [[1.0, 0.0, 0.0]])
    np.testing.assert_array_equal(policy.act(np.array([[5.5], [4.0], [6.0], [-1e9]])), [0, 2, 2, 2])


def test_masks_play_the_best_that_is_allowed():
    allowed = np.array([[True, True, True], [True, True, False]])
    policy = Partition(first_digit).improve([[0.0], [0.5]], [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]], allowed=allowed)
    masks = np.array([[True, True, True], [False, True, True], [False, False, True]])
    np.testing.assert_array_equal(policy.act(np.zeros((3, 1)), masks), [0, 1, 2])
    with pytest.raises(InvalidInputError, match="pass allowed"):
        policy.act(np.zeros((3, 1)))


def test_actions_that_are_not_allowed_do_not_count():
    """The third action looks best, but only where nobody may take it."""
    allowed = np.array([[True, True, False], [True, True, False], [True, True, True]])
    q = np.array([[1.0, 0.0, 99.0], [1.0, 0.0, 99.0], [0.0, 0.5, -1.0]])
    policy = Partition(first_digit).improve([[0.1], [0.2], [0.3]], q, allowed=allowed)
    np.testing.assert_array_equal(policy.act(np.full((3, 1), 0.1), allowed), [0, 0, 0])


def test_weights_count_among_masks():
    """Both states forbid action 2; by weight the second decides between the others."""
    allowed = np.array([[True, True, False], [True, True, False]])
    q = np.array([[1.0, 0.0, 9.0], [0.0, 0.9, 9.0]])
    for weights, best in (([1.0, 1.0], 0), ([1.0, 2.0], 1)):
        policy = Partition(first_digit).improve([[0.1], [0.2]], q, allowed=allowed, weights=weights)
        assert policy.act(np.array([[0.5]]), allowed[:1])[0] == best


def test_cells_without_data_play_the_lowest_allowed_action_if_not_the_default():
    allowed = np.array([[True, False, True]])
    policy = Partition(first_digit, default=1).improve([[5.0]], [[1.0, 0.0, 2.0]], allowed=allowed)
    np.testing.assert_array_equal(
        policy.act(np.array([[7.0], [7.0]]), np.array([[True, True, True], [True, False, True]])), [1, 0]
    )


def test_masks_that_allow_everything_are_no_masks():
    policy = Partition(first_digit).improve([[0.0]], [[1.0, 2.0]], allowed=[[True, True]])
    assert policy.act(np.zeros((1, 1)))[0] == 1


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (Partition(lambda states: states), r"cell_of\(states\) must have one dimension"),
        (Partition(lambda states: [0]), r"cell_of\(states\) must have shape \(2,\)"),
        (Partition(lambda states: states[:, 0] + 0.5), r"cell_of\(states\) must be whole numbers"),
        (Partition(first_digit, default=5), r"default must lie in 0..1"),
    ],
)
def test_bad_partitions_are_refused(space, words):
    with pytest.raises(InvalidInputError, match=words):
        space.improve([[0.0], [1.0]], [[0.0, 1.0], [1.0, 0.0]])


def test_bad_settings_are_refused():
    with pytest.raises(InvalidInputError, match="cell_of must be a function"):
        Partition("abc")
    with pytest.raises(InvalidInputError, match="default must be an integer"):
        Partition(first_digit, default=-1)


def test_rules_list_the_cells_of_each_action():
    states = np.arange(60.0)[:, None]
    policy = Partition(lambda x: x[:, 0], default=1).improve(states, np.eye(2)[(states[:, 0] < 30).astype(int)])
    low, high, default = policy.rules().splitlines()
    assert low == "in cells 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, ... (30 in all): 1"
    assert high.startswith("in cells 30, 31")
    assert default == "elsewhere: 1"
    assert policy.to_dict()["cells"][59] == 0
    allowed = np.ones((60, 2), dtype=bool)
    allowed[0, 1] = False
    masked = Partition(lambda x: x[:, 0]).improve(states, np.eye(2)[(states[:, 0] < 30).astype(int)], allowed=allowed)
    assert "elsewhere: 0, else 1" in masked.rules()
