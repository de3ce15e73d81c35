import numpy as np
import pytest

from capi._utils.compile import compiled
from capi.trees._optimal import lanes
from capi.trees._optimal.records import LANES


def rows_of_a_node(seed, n, n_actions):
    rng = np.random.default_rng(seed)
    order = rng.permutation(n).astype(np.int32)
    place = rng.integers(0, LANES + 1, size=n).astype(np.uint8)
    losses = rng.integers(-9, 10, size=(n, n_actions)).astype(float)
    return order, place, losses, rng.random(n) < 0.7, n, np.triu(np.ones((LANES + 1, LANES)))


@compiled
def differences(order, place, losses, ends, n, masks, extremes):
    lanes.scan_differences(order, place, losses, ends, n, masks, extremes)


@compiled
def sums_of_losses(order, place, losses, ends, n, masks, totals, run, sums, best):
    lanes.scan_losses(order, place, losses, ends, n, masks, totals, run, sums, best)


@pytest.mark.parametrize("n", [1, 2, 50])
def test_extreme_sums_of_all_lanes_match_those_of_one_lane_at_a_time(n):
    order, place, losses, ends, n, masks = rows_of_a_node(n, n, 1)
    extremes = np.array([np.inf, -np.inf, np.inf, -np.inf])[:, None].repeat(LANES, axis=1)
    differences(order, place, losses, ends, n, masks, extremes)
    for lane in range(LANES):
        left = np.cumsum(np.where(place[order] <= lane, losses[:, 0], 0.0))[:-1][ends[:-1]]
        right = np.cumsum(np.where(place[order] <= lane, 0.0, losses[:, 0]))[:-1][ends[:-1]]
        expected = [
            left.min(initial=np.inf),
            left.max(initial=-np.inf),
            right.min(initial=np.inf),
            right.max(initial=-np.inf),
        ]
        np.testing.assert_array_equal(extremes[:, lane], expected)


@pytest.mark.parametrize("n_others", [0, 1, 2, 3, 6])
def test_costs_of_all_lanes_match_those_of_one_lane_at_a_time(n_others):
    order, place, losses, ends, n, masks = rows_of_a_node(n_others, 60, n_others)
    is_left = place[order][:, None] <= np.arange(LANES)  # (n, lanes)
    totals = losses.T @ is_left
    run, best = np.stack([np.zeros(n_others), losses.sum(axis=0)]), np.full((2, LANES), np.inf)
    sums_of_losses(order, place, losses, ends, n, masks, totals, run, np.empty((n_others, LANES)), best)
    for lane in range(LANES):
        for side, chosen in enumerate((is_left[:, lane], ~is_left[:, lane])):
            below = np.cumsum(np.where(chosen[:, None], losses, 0.0), axis=0)
            both = below.min(axis=1, initial=0.0) + (below[-1] - below).min(axis=1, initial=0.0)
            assert best[side, lane] == both[:-1][ends[:-1]].min()
