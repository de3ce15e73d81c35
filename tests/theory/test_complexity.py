"""Rademacher averages, the fixed point r* and growth functions."""

from itertools import product

import numpy as np
import pytest

from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.loss import regrets
from capi.policy_spaces import Forests, Linear, OptimalTrees, Thresholds, Trees, Unrestricted
from capi.theory import fixed_point, half_spaces, log_growth, rademacher, vc_radius
from capi.theory._fronts import ByImprovement, Cuts, Listed, StarHulls, members_of, rising
from capi.theory._small_trees import SmallTrees

EXACT = {20: (0.19602127, 0.15560198), 50: (0.12944104, 0.10339792), 200: (0.06713313, 0.05398935)}


def one_orientation(n):
    """Return the n + 1 policies that play 0 below a cut and 1 above it."""
    return np.concatenate([np.ones((1, n), dtype=int), half_spaces(n)[:n]])


@pytest.mark.parametrize("n", EXACT)
def test_averages_of_thresholds_with_unit_gaps(n):
    """They do not depend on which action is better where."""
    states, rng = np.arange(float(n))[:, None], np.random.default_rng(n)
    q = np.zeros((n, 2))
    q[np.arange(n), rng.integers(2, size=n)] = 1.0
    for space, exact in zip((Thresholds(), one_orientation(n)), EXACT[n], strict=True):
        found = rademacher(space, states, q, n_draws=4000, random_state=n)
        assert abs(found.value - exact) < 3 * found.standard_error
        assert found.is_exact


def test_the_average_is_that_of_all_sign_vectors():
    rng = np.random.default_rng(0)
    states, q = np.arange(8.0)[:, None], rng.normal(size=(8, 2))
    lost = regrets(q)
    losses = np.array([lost[np.arange(8), actions] for actions in half_spaces(8)])
    everything = [(losses @ signs).max() / 8 for signs in product((-1.0, 1.0), repeat=8)]
    found = rademacher(Thresholds(), states, q, n_draws=3000)
    assert abs(found.value - np.mean(everything)) < 3 * found.standard_error


def star(losses, nu, signs, radius):
    """Return the supremum over the star hull, member by member."""
    best = 0.0
    for loss in losses:
        square = nu @ loss**2
        best = max(best, min(1.0, np.sqrt(radius / square) if square > 0 else 1.0) * (signs @ loss))
    return best


@pytest.mark.parametrize("n_actions", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_fronts_give_the_suprema_over_star_hulls(seed, n_actions):
    rng = np.random.default_rng(seed)
    states = rng.integers(6, size=(15, 2)).astype(float)
    lost, nu = regrets(rng.normal(size=(15, n_actions))), rng.random(15)
    nu /= nu.sum()
    members = [
        np.where(states[:, j] <= cut, low, high)
        for j in range(2)
        for cut in range(-1, 6)
        for low in range(n_actions)
        for high in range(n_actions)
    ]
    losses = np.array([lost[np.arange(15), actions] for actions in members])
    signs = rng.choice([-1.0, 1.0], 15) * nu
    kinds = [Listed(losses, nu), Cuts(states, lost, nu), ByImprovement(OptimalTrees(max_depth=1), states, lost, nu)]
    for kind in kinds:
        hulls = StarHulls.of(iter([kind.front(signs)]), kind.is_hull)
        assert kind.largest(signs) == pytest.approx((losses @ signs).max())
        for radius in (1e-4, 0.01, 0.1, 1.0, 100.0):
            expected = star(losses, nu, signs, radius)
            if kind.is_hull:
                assert expected - 1e-9 <= hulls.at(radius)[0] <= max((losses @ signs).max(), 0) + 1e-9
            else:
                assert hulls.at(radius)[0] == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(6))
def test_improvement_finds_all_vertices_of_the_concave_hull(seed):
    rng = np.random.default_rng(seed)
    states, lost = rng.random((14, 2)), regrets(rng.normal(size=(14, 2)))
    nu = rng.dirichlet(np.ones(14))
    signs = rng.choice([-1.0, 1.0], 14) * nu
    squares, sums = ByImprovement(OptimalTrees(max_depth=2, min_samples_leaf=1), states, lost, nu).front(signs)
    members = np.array(decisions_of_trees(states, np.arange(14), 2, 2))
    losses = lost[np.arange(14), members]
    v, c = np.append(losses**2 @ nu, 0.0), np.append(losses @ signs, 0.0)
    for price in np.geomspace(1e-3, 1e3, 60):  # the hull is where lines touch from above
        assert (sums - price * squares).max() == pytest.approx((c - price * v).max(), abs=1e-12)


def decisions_of_trees(states, rows, n_actions, depth):
    """Return all decisions (m, len(rows)) of trees of a depth on some rows, by recursion over their cuts."""
    found = {(a,) * len(rows) for a in range(n_actions)}
    if depth:
        for column in states[rows].T:
            for cut in np.unique(column)[:-1]:
                low = column <= cut
                for left in decisions_of_trees(states, rows[low], n_actions, depth - 1):
                    for right in decisions_of_trees(states, rows[~low], n_actions, depth - 1):
                        both = np.empty(len(rows), dtype=int)
                        both[low], both[~low] = left, right
                        found.add(tuple(both.tolist()))
    return sorted(found)


@pytest.mark.parametrize(
    ("n", "n_features", "depth", "n_actions"), [(1, 1, 2, 2), (9, 2, 2, 2), (6, 2, 2, 3), (6, 1, 3, 2), (4, 2, 0, 3)]
)
def test_small_trees_are_all_trees(n, n_features, depth, n_actions):
    rng = np.random.default_rng(n)
    states = rng.integers(6, size=(n, n_features)).astype(float)
    q, nu = np.round(rng.normal(size=(n, n_actions)), 1), rng.dirichlet(np.ones(n))
    everything = np.array(decisions_of_trees(states, np.arange(n), n_actions, depth))
    space = OptimalTrees(
        max_depth=depth, leaf_penalty=0.2, min_samples_leaf=2
    )  # preferences on a sample, not other trees
    members = members_of(space, states, regrets(q), nu)
    assert isinstance(members, SmallTrees)
    listed = Listed(np.array([regrets(q)[np.arange(n), actions] for actions in everything]), nu)
    for _ in range(5):
        signs = rng.choice([-1.0, 1.0], n) * nu
        assert members.largest(signs) == pytest.approx(listed.largest(signs))
        both = [StarHulls.of(iter([each.front(signs)]), is_hull=False) for each in (members, listed)]
        for radius in (1e-3, 0.03, 1.0):
            assert both[0].at(radius)[0] == pytest.approx(both[1].at(radius)[0])
    for n_drawn in (None, 30):
        found = [fixed_point(each, states, q, n=n_drawn, nu=nu, n_draws=20).radius for each in (space, everything)]
        assert found[0] == pytest.approx(found[1])


def test_trees_on_many_states_are_found_by_improvement_whatever_their_leaves_cost():
    rng = np.random.default_rng(1)
    states, q = rng.random((300, 2)), rng.normal(size=(300, 2))
    cheap, dear = (
        rademacher(OptimalTrees(max_depth=2, leaf_penalty=price), states, q, n_draws=3) for price in (0.0, 0.5)
    )
    assert cheap == dear
    assert cheap.is_exact
    states[0, 0] = np.nan
    assert isinstance(members_of(OptimalTrees(max_depth=1), states, regrets(q), np.full(300, 1 / 300)), ByImprovement)


def test_the_front_keeps_what_no_other_member_beats():
    squares, sums = rising(np.array([0.0, 1.0, 2.0, 3.0]), np.array([-1.0, 2.0, 1.0, 5.0]))
    np.testing.assert_array_equal(squares, [1.0, 3.0])
    np.testing.assert_array_equal(sums, [2.0, 5.0])


# -- the fixed point -------------------------------------------------------------------------------

REFERENCE = {  # n: (B = 200 and its error, B = largest gap, B = 200 for all left and its error, growth function)
    200: (12.53, 0.18, 0.0454, 3.39, 0.06, 48.4),
    2000: (3.94, 0.06, 0.00511, 1.10, 0.02, 6.69),
    20000: (1.265, 0.018, 0.000515, 0.351, 0.006, 0.854),
}


@pytest.mark.parametrize("n", REFERENCE)
def test_the_reference_numbers_of_the_chain(n):
    mdp, space = ChainWalk(variant=2).mdp, half_spaces(200)
    q, left = mdp.optimal_action_values, mdp.action_values(np.zeros(200, dtype=int))
    paper, its_error, by_gap, of_left, left_error, by_growth = REFERENCE[n]

    def found(values, scale):
        return fixed_point(space, mdp.states, values, n=n, scale=scale, n_draws=1000, random_state=n)

    for values, scale, expected, error in ((q, 200.0, paper, its_error), (left, 200.0, of_left, left_error)):
        point = found(values, scale)
        assert abs(point.radius - expected) < 3 * np.hypot(point.standard_error, error)
    point = found(q, "gap")
    assert abs(point.radius - by_gap) < 3 * np.hypot(point.standard_error, 0.02 * by_gap)
    assert vc_radius(log_growth(Thresholds(), n), n, point.scale) == pytest.approx(by_growth, rel=1e-3)
    assert point.radius < vc_radius(log_growth(Thresholds(), n), n, point.scale)


def test_the_fixed_point_falls_with_n_and_rises_with_depth():
    rng = np.random.default_rng(0)
    states = rng.random((16, 2))
    q = np.stack([np.zeros(16), np.sin(6 * states[:, 0]) + np.cos(5 * states[:, 1])], axis=1)

    def radius(space, n):
        return fixed_point(space, states, q, n=n, n_draws=12).radius

    assert radius(Thresholds(), 50) > radius(Thresholds(), 200) > radius(Thresholds(), 1000)
    assert radius(OptimalTrees(max_depth=1), 200) < radius(OptimalTrees(max_depth=2), 200) < radius(Unrestricted(), 200)


def test_the_fixed_point_solves_its_equation():
    mdp = ChainWalk(variant=2).mdp
    q = mdp.optimal_action_values
    point = fixed_point(half_spaces(200), mdp.states, q, n=500, n_draws=200, random_state=3)
    local = rademacher(half_spaces(200), mdp.states, q, n=500, radius=point.radius, n_draws=200, random_state=3)
    assert point.scale * local.value == pytest.approx(point.radius, rel=1e-8)
    wider = rademacher(half_spaces(200), mdp.states, q, n=500, radius=4 * point.radius, n_draws=200, random_state=3)
    assert local.value <= wider.value <= 2 * local.value  # sub-root


def test_thresholds_and_the_table_of_their_decisions_agree():
    mdp = ChainWalk(variant=2).mdp
    both = [
        fixed_point(space, mdp.states, mdp.optimal_action_values, n=300, n_draws=50).radius
        for space in (Thresholds(), half_spaces(200))
    ]
    assert both[0] == pytest.approx(both[1], rel=1e-9)


def test_degenerate_problems_have_radius_zero():
    states = np.arange(5.0)[:, None]
    assert fixed_point(Thresholds(), states, np.ones((5, 2))).radius == 0.0
    one = np.zeros((1, 5), dtype=int)
    assert fixed_point(one, states, np.tile([1.0, 0.0], (5, 1))).radius == 0.0  # the only policy loses nothing
    assert rademacher(one, states, np.ones((5, 2)), radius=0.1).value == 0.0


def test_spaces_without_an_exact_minimiser_say_so():
    rng = np.random.default_rng(0)
    states, q = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
    for space in (Trees(), Forests(n_trees=3), Linear()):
        assert not rademacher(space, states, q, n_draws=2).is_exact
    assert rademacher(OptimalTrees(max_depth=2), states, q, n_draws=2).is_exact
    stopped = OptimalTrees(max_depth=3, node_limit=1)
    assert not rademacher(stopped, states, q, n_draws=2).is_exact
    greedy = rademacher(Trees(max_depth=2, min_samples_leaf=1), states, q, n_draws=20).value
    assert greedy <= rademacher(OptimalTrees(max_depth=2), states, q, n_draws=20).value + 1e-12


# -- growth ----------------------------------------------------------------------------------------


def test_growth_functions_count_decisions():
    for n in (1, 2, 5):
        found = {tuple(row) for row in half_spaces(n)}
        assert len(found) == round(np.exp(log_growth(Thresholds(), n)))
    assert log_growth(4, 10, n_actions=3) == pytest.approx(4 * np.log(3))
    assert log_growth(20, 10, n_actions=3) == pytest.approx(10 * np.log(3))
    assert log_growth(Linear(), 4, n_features=2) == pytest.approx(np.log(14))  # all but the two of exclusive or
    assert log_growth(Linear(), 10, n_actions=3) == pytest.approx(3 * np.log(20))  # three pairs of actions
    assert log_growth(OptimalTrees(max_depth=1), 50, n_cuts=7) == pytest.approx(np.log(7 * 4))
    assert log_growth(Trees(max_depth=None), 10) == pytest.approx(10 * np.log(2))
    depths = [log_growth(OptimalTrees(max_depth=d), 1000, n_features=3) for d in (1, 2, 3)]
    assert depths == sorted(depths)
    with pytest.raises(InvalidInputError, match="growth function of Forests is not known"):
        log_growth(Forests(), 10)


def test_the_radius_by_growth_falls_with_n_and_scales_with_the_gap():
    radii = [vc_radius(np.log(2 * n), n, 1.0) for n in (10, 100, 1000, 10_000)]
    assert radii == sorted(radii, reverse=True)
    assert vc_radius(3.0, 100, 2.0) == pytest.approx(4 * vc_radius(3.0, 100, 1.0))
    assert vc_radius(3.0, 100, 0.0) == 0.0


def test_bad_spaces_are_refused():
    states, q = np.zeros((3, 1)), np.zeros((3, 2))
    for space in ([[0, 1]], [[0, 1, 2]], "thresholds", [[0.5, 0, 0]]):
        with pytest.raises(InvalidInputError, match="space must be a policy space, or actions"):
            rademacher(space, states, q)
