import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capi import CAPI
from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.evaluators import FittedQ
from capi.loss import gap_weighted_loss
from capi.policies import Uniform
from capi.policy_spaces import (
    Constrained,
    Forests,
    LocalAverages,
    Neighbors,
    Partition,
    Thresholds,
    Trees,
    Unrestricted,
)
from capi.policy_spaces.rules import Budget, Cap, Costs, Monotone, Never, Only
from capi.testing import NearestQ, check_policy, check_policy_space, random_batch

SPACES = [
    Trees(max_depth=3),
    Forests(n_trees=5),
    Thresholds(),
    Partition(lambda x: np.floor(2 * x[:, 0])),
    Neighbors(10),
    LocalAverages(),
    Unrestricted(),
]
WORDS = Schema(("age", "blood pressure"), ("none", "low", "high"))


def sample(seed=0, n=80, n_actions=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)), rng.normal(size=(n, n_actions))


def improved(space, states, values, **options):
    return space.improve(states, values, q=NearestQ(states, values), **options)


@pytest.mark.parametrize("space", SPACES, ids=lambda s: type(s).__name__)
def test_without_rules_it_is_the_space_itself(space):
    states, values = sample()
    plain, wrapped = (improved(s, states, values).act(states) for s in (space, Constrained(space, [])))
    np.testing.assert_array_equal(wrapped, plain)


@pytest.mark.parametrize("inner", SPACES[:-1], ids=lambda s: type(s).__name__)
def test_keeps_the_contract(inner):
    check_policy_space(Constrained(inner, [Cap(0, 1.0)]))


conditions = st.one_of(
    st.none(),
    st.builds(
        lambda parts: " and ".join(f"x{j} {sign} {number:.2f}" for j, sign, number in parts),
        st.lists(
            st.tuples(st.integers(0, 1), st.sampled_from(["<", "<=", ">", ">="]), st.floats(-1.5, 1.5)),
            min_size=1,
            max_size=3,
        ),
    ),
)
pointwise = st.one_of(
    st.builds(Never, st.integers(0, 2), conditions, st.booleans()),
    st.builds(Only, st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True), conditions, st.booleans()),
)


def holds_by_hand(when, state, if_missing):
    """Whether a condition holds in one state, comparison by comparison."""
    for part in [] if when is None else when.split(" and "):
        name, sign, number = part.split()
        value = state[int(name[1:])]
        if np.isnan(value):
            if not if_missing:
                return False
        elif not {
            "<": value < float(number),
            "<=": value <= float(number),
            ">": value > float(number),
            ">=": value >= float(number),
        }[sign]:
            return False
    return True


@pytest.mark.parametrize("space", SPACES, ids=lambda s: type(s).__name__)
@given(rules=st.lists(pointwise, min_size=1, max_size=4), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_pointwise_rules_hold_in_every_state(space, rules, seed):
    states, values = sample(seed, n=40)
    unseen = np.random.default_rng(seed + 1).normal(size=(200, 2)) * 2
    if isinstance(space, Trees | Forests):
        unseen[::7, 0] = np.nan
    try:
        policy = improved(Constrained(space, rules), states, values)
        decisions = policy.act(unseen)
    except InvalidInputError as error:
        assert "conflict" in str(error) or "leave none" in str(error)  # noqa: PT017
        return
    for state, action in zip(unseen, decisions, strict=True):
        for rule in rules:
            if holds_by_hand(rule.when, state, rule.if_missing):
                assert action != rule.action if isinstance(rule, Never) else action in rule.actions
    np.testing.assert_array_equal(policy.probabilities(unseen).argmax(axis=1), decisions)


@given(rules=st.lists(pointwise, min_size=2, max_size=4), seed=st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_a_conflict_is_found_exactly_when_there_is_one(rules, seed):
    """On a fine grid around all numbers that the rules name, some state is left without an action, or none is."""
    try:
        Constrained(Thresholds(), rules, Schema.of(2, 3))
        conflict = False
    except InvalidInputError as error:
        assert "conflict" in str(error)  # noqa: PT017
        conflict = True
    numbers = sorted({float(p.split()[2]) for r in rules for p in (r.when or "").split(" and ") if p})
    ticks = sorted({-9.0, 9.0, *numbers, *(np.nextafter(x, s) for x in numbers for s in (-9, 9))})
    clash = False
    for x in ticks:
        for y in ticks:
            fired = [r for r in rules if holds_by_hand(r.when, (x, y), False)]
            left = {0, 1, 2}
            for r in fired:
                left &= set(r.actions) if isinstance(r, Only) else {0, 1, 2} - {r.action}
            clash |= not left
    assert conflict == clash


def test_a_conflict_names_the_pair():
    with pytest.raises(InvalidInputError, match="'never 0 when x0 > 1' and 'never 1 when x0 < 3' conflict"):
        Constrained(Thresholds(), [Never(0, when="x0 > 1"), Never(1, when="x0 < 3")], Schema.of(1, 2))
    Constrained(Thresholds(), [Never(0, when="x0 > 3"), Never(1, when="x0 < 3")], Schema.of(1, 2))
    with pytest.raises(InvalidInputError, match="'only 0' and 'only 2 when x1 <= 0' conflict"):
        Constrained(Thresholds(), [Only(0), Cap(1, 0.5), Only(2, when="x1 <= 0")], Schema.of(2, 3))
    with pytest.raises(InvalidInputError, match="never falls as age rises' and 'monotone: the action never rises"):
        Constrained(Thresholds(), [Monotone("age"), Monotone("age", increasing=False)], WORDS)


def test_rules_and_masks_of_the_data_that_leave_nothing_are_named():
    states, values = sample()
    allowed = np.ones((80, 3), dtype=bool)
    allowed[3, 1:] = False
    space = Constrained(Trees(max_depth=2), [Never(0, when="x0 > -9")])
    with pytest.raises(InvalidInputError, match=r"'never 0 when x0 > -9' and allowed\[3\] leave none"):
        space.improve(states, values, allowed=allowed)
    policy = space.improve(states, values)
    with pytest.raises(InvalidInputError, match="leave none"):
        policy.act(states, allowed)
    taken = policy.act(states, np.arange(3) != 1 + np.zeros((80, 1)))
    np.testing.assert_array_equal(taken, 2)


@pytest.mark.parametrize("space", SPACES, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("weighted", [False, True])
def test_caps_hold_on_the_sample_and_cost_as_little_as_they_can(space, weighted):
    states, values = sample(2)
    values[:, 1] += 1.0
    weights = np.random.default_rng(0).random(80) if weighted else None
    free = improved(space, states, values, weights=weights)
    capped = improved(Constrained(space, [Cap(1, 0.25)]), states, values, weights=weights)
    shares = [np.average(p.act(states) == 1, weights=weights) for p in (free, capped)]
    assert shares[1] <= 0.25 + 1e-9
    if shares[0] > 0.25:
        assert (capped.multipliers > 0).all()
    losses = [gap_weighted_loss(values, p.act(states), weights) for p in (free, capped)]
    never = improved(Constrained(space, [Never(1)]), states, values, weights=weights)
    assert losses[0] - 1e-9 <= losses[1] <= gap_weighted_loss(values, never.act(states), weights) + 1e-9
    [entry] = capped.report(states, weights=weights)
    assert entry["holds"]
    assert entry["mean"] == pytest.approx(shares[1])


def test_with_all_policies_a_cap_takes_the_states_that_gain_most():
    states = np.arange(100.0)[:, None]
    gain = np.random.default_rng(0).permutation(100) + 1.0
    values = np.stack([np.zeros(100), gain], axis=1)
    policy = improved(Constrained(Unrestricted(), [Cap(1, 0.3)]), states, values)
    np.testing.assert_array_equal(policy.act(states) == 1, gain > 70)


def test_a_budget_weighs_gain_against_cost():
    """Action 2 costs twice as much as 1: at the price found, each state takes what gains most after costs."""
    states, values = sample(5, n=400)
    budget = Budget({1: 1.0, 2: 2.0}, at_most=0.4)
    policy = improved(Constrained(Unrestricted(), [budget]), states, values)
    costs = np.array([0.0, 1.0, 2.0])
    actions = policy.act(states)
    assert costs[actions].mean() <= 0.4
    assert costs[actions].mean() > 0.39
    np.testing.assert_array_equal(actions, (values - policy.multipliers[0] * costs).argmax(axis=1))


def test_several_limits_hold_together():
    states, values = sample(6, n=200)
    values += [0.0, 1.0, 1.0]
    rules = [Cap(1, 0.2), Cap(2, 0.3), Budget({1: 1.0, 2: 3.0}, at_most=0.8)]
    policy = improved(Constrained(Trees(max_depth=4), rules), states, values)
    actions = policy.act(states)
    assert (actions == 1).mean() <= 0.2
    assert (actions == 2).mean() <= 0.3
    assert np.array([0, 1, 3])[actions].mean() <= 0.8
    assert [entry["holds"] for entry in policy.report(states)] == [True] * 3


def test_limits_are_reported_on_states_that_were_held_out():
    states = sample(7)[0]
    policy = improved(Constrained(Thresholds(), [Cap(1, 0.5)]), states, np.stack([states[:, 0], -states[:, 0]], axis=1))
    [entry] = policy.report(states - 10.0)
    assert entry == {"rule": "cap: 1 in at most 50 % of the states", "mean": 1.0, "at_most": 0.5, "holds": False}


def test_costs_are_subtracted_from_the_values():
    states, values = sample(8)
    policy = improved(Constrained(Unrestricted(), [Costs({0: 0.3, 2: 1.0})]), states, values)
    np.testing.assert_array_equal(policy.act(states), (values - [0.3, 0.0, 1.0]).argmax(axis=1))


def test_limits_that_cannot_be_kept_are_named_with_the_rule_that_stands_against_them():
    states, values = sample(9)
    rules = [Only(1, when="x0 > 0"), Cap(1, 0.1)]
    with pytest.raises(
        InvalidInputError, match="'cap: 1 in at most 10 % of the states' and 'only 1 when x0 > 0' cannot be satisfied"
    ):
        improved(Constrained(Trees(), rules), states, values)
    with pytest.raises(InvalidInputError, match=r"'budget: mean cost .* cannot be satisfied"):
        improved(Constrained(Trees(), [Budget({0: 1.0, 1: 1.0, 2: 1.0}, 0.5)]), states, values)


def test_a_space_that_is_too_poor_is_told_apart_from_rules_that_cannot_be_kept():
    values = np.stack([np.zeros(10), np.ones(10)], axis=1)
    space = Constrained(Partition(lambda x: np.zeros(len(x)), default=1), [Cap(1, 0.0), Cap(0, 0.5)])
    with pytest.raises(InvalidInputError, match=r"cannot be satisfied|no policy of the space"):
        improved(space, np.zeros((10, 1)), values)


@pytest.mark.parametrize("direction", [True, False])
def test_monotone_rules_go_to_the_space(direction):
    states, values = sample(10)
    policy = improved(Constrained(Thresholds(), [Monotone("x0", direction)]), states, values)
    line = np.column_stack([np.linspace(-3, 3, 50), np.zeros(50)])
    steps = np.diff(policy.act(line))
    assert (steps * (1 if direction else -1) >= 0).all()


def test_the_words_of_the_table_are_understood_and_printed():
    states, values = sample(11)
    rules = [
        Never("high", when="blood pressure <= 0.5 and age > 0"),
        Cap("low", 0.4),
        Only(["none", "low"], when="age == 3"),
    ]
    policy = improved(Constrained(Trees(max_depth=1), rules, WORDS), states, values)
    assert (policy.act(np.array([[1.0, 0.0], [3.0, 9.0]])) != 2).all()
    text = policy.rules().splitlines()
    assert text[-4:] == [
        "keeping to:",
        "  never high when blood pressure <= 0.5 and age > 0",
        "  cap: low in at most 40 % of the states",
        "  only none or low when age == 3",
    ]
    assert policy.to_dict()["rules"][1] == "cap: low in at most 40 % of the states"


def test_in_the_loop_from_a_batch():
    batch = random_batch(n_episodes=60)
    rules = [Never(2, when="x0 > 0"), Cap(1, 0.5)]
    space = Constrained(Trees(max_depth=2), rules, batch.schema)
    learner = CAPI(FittedQ(n_trees=5), space, discount=0.9, n_iterations=5, random_state=0).fit(batch)
    actions = learner.policy_.act(batch.states)
    assert (actions[batch.states[:, 0] > 0] != 2).all()
    assert (actions == 1).mean() <= 0.5
    check_policy(learner.policy_, batch.states, 3)
    assert "never 2 when x0 > 0" in learner.policy_.rules()
    again = CAPI(FittedQ(n_trees=5), space, discount=0.9, n_iterations=5, random_state=0).fit(batch)
    np.testing.assert_array_equal(again.policy_.act(batch.states), actions)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constrained(Trees, []), "space must be a policy space"),
        (lambda: Constrained(Trees(), ["never 1"]), "rules must be Never"),
        (lambda: Constrained(Forests(), [Monotone(0)]), "Forests cannot guarantee monotone policies"),
        (lambda: Constrained(Thresholds(), [Monotone(0), Never(1)]), "cannot be guaranteed together"),
        (
            lambda: Constrained(Trees(), [Never("both")], WORDS),
            "unknown action 'both'; the actions are none, low, high",
        ),
        (lambda: Constrained(Trees(), [Never(1, "T1 > 5")], Schema.of(2, 3)), "unknown feature 'T1'.*batch.schema"),
        (
            lambda: Constrained(Trees(), [Never(1, "x0 above 5")], Schema.of(2, 3)),
            "'x0 above 5' in 'x0 above 5' is not a comparison",
        ),
        (lambda: Constrained(Trees(), [Never(1, "5 < x0")], Schema.of(2, 3)), "a number on the right"),
        (lambda: Constrained(Trees(), [Never(1, "x0 > nan")], Schema.of(2, 3)), "is not a comparison"),
        (lambda: Cap(1, 1.5), "at_most must be a number in"),
        (lambda: Budget({}, 1.0), "costs must map actions to numbers"),
        (lambda: Budget({1: -2.0}, 1.0), "the cost of 1 must be a number, at least 0"),
        (lambda: Budget({1: 1.0}, "much"), "at_most must be a number"),
        (lambda: Costs([1.0]), "costs must map"),
        (lambda: Constrained(Trees(), [], WORDS).improve(*sample(n_actions=2)), "schema must match the data"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_a_stochastic_start_policy_is_no_obstacle():
    batch = random_batch()
    space = Constrained(Trees(max_depth=2), [Cap(1, 0.5)])
    learner = CAPI(FittedQ(n_trees=3), space, 0.9, 2, initial_policy=Uniform(3), random_state=0).fit(batch)
    assert (learner.policy_.act(batch.states) == 1).mean() <= 0.5


def test_rules_cannot_be_lost():
    states, values = sample(12)
    rules = [Never(1)]
    from_list, from_generator = Constrained(Trees(), rules), Constrained(Trees(), (rule for rule in [Never(1)]))
    rules.clear()
    for space in (from_list, from_generator):
        assert (space.improve(states, values).act(states) != 1).all()


def test_many_rules_are_checked_in_no_time():
    states, values = sample(13, n_actions=9)
    many = [Never(a, when=f"x0 > {j}") for a in range(8) for j in range(8)]
    assert (Constrained(Trees(max_depth=2), many).improve(states, values).act(np.full((1, 2), 9.0)) == 8).all()
    crossing = [Never(a, when=f"x0 > {j} and x0 < {j + 0.5} and x1 > {a}") for a in range(9) for j in range(9)]
    with pytest.raises(InvalidInputError, match="conflict"):
        Constrained(Trees(), crossing, Schema.of(2, 9))


def test_rules_that_touch_in_one_point_conflict_there():
    with pytest.raises(InvalidInputError, match="conflict"):
        Constrained(Trees(), [Never(0, "x0 <= 1"), Never(1, "x0 >= 1")], Schema.of(1, 2))
    Constrained(Trees(), [Never(0, "x0 < 1"), Never(1, "x0 >= 1")], Schema.of(1, 2))


def test_a_missing_value_fires_a_rule_only_if_that_is_said():
    states, values = sample(14)
    values[:, 1] += 5.0
    unknown = np.array([[np.nan, 0.0]])
    quiet, careful = (Constrained(Trees(max_depth=1), [Never(1, "x0 > 0", if_missing=m)]) for m in (False, True))
    assert quiet.improve(states, values).act(unknown)[0] == 1
    assert careful.improve(states, values).act(unknown)[0] != 1


def test_a_budget_is_kept_whatever_the_largest_cost():
    states = np.arange(10.0)[:, None]
    values = np.tile([0.0, 1.0, 0.5], (10, 1))
    policy = Constrained(Thresholds(), [Budget({0: 1e9, 1: 1.0}, at_most=0.1)]).improve(states, values)
    assert (policy.act(states) == 2).all()


def test_random_spaces_draw_alike_at_every_price():
    states, values = sample(15, n=200)
    values[:, 1] += 0.5
    space = Constrained(Forests(n_trees=3, min_samples_split=20), [Cap(1, 0.4)])
    one, other = (space.improve(states, values, rng=np.random.default_rng(3)).act(states) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert (one == 1).mean() <= 0.4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constrained(Trees(), None), "rules must be a sequence"),
        (lambda: Constrained(Trees(), Never(0)), "rules must be a sequence"),
        (lambda: Constrained(Trees(), [], schema=5), "schema must be a Schema"),
        (lambda: Never(0, when=5), "when must be text"),
        (lambda: Never(0, if_missing="yes"), "if_missing must be one of"),
        (lambda: Never(np.array([0, 1])), "one label or number"),
        (lambda: Budget({0: 1.0}, np.nan), "at_most must be a number"),
    ],
)
def test_more_bad_input_is_named(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()
