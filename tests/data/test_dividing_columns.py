"""Columns that tell whether the reward exceeds a bound, has one value, or what the episode's rewards add up to; and others that may."""

import numpy as np
import pandas as pd
import pytest

from capi import Transitions
from capi.data.summary.cuts import sums_of
from capi.datasets import clinic_table

KINDS = ("divides-reward", "fixes-return", "fixes-reward", "value-fixes-reward", "equals-reward")
N = 1500


def customers(n=N, seed=0):
    """One offer per customer, and the profit: continuous, with a share of chance."""
    rng = np.random.default_rng(seed)
    spent, offer = rng.gamma(2, 50, n), rng.integers(2, size=n)
    profit = (0.1 * spent + offer * (2 * (spent > 100) - 1) + rng.normal(0, 4, n)).round(2)
    return pd.DataFrame({"spent": spent.round(2), "age": rng.integers(18, 80, n), "offer": offer, "profit": profit})


def machines(seed=0, n_machines=120):
    """Inspections of machines: wear decides on failures, which cost 2,500, unless the machine is serviced."""
    rng = np.random.default_rng(seed)
    rows = []
    for machine in range(n_machines):
        wear = 2 * rng.random()
        for week in range(int(rng.integers(8, 26))):
            action = rng.choice(["run", "service"], p=[0.75, 0.25])
            fail = action == "run" and rng.random() < 1 / (1 + np.exp(-2 * (wear - 3)))
            rows.append(
                (machine, week, round(wear + rng.normal(0, 0.25), 2), action, 120 * (action == "service") + 2500 * fail)
            )
            wear = 0.0 if fail else max(0.0, wear - 1) if action == "service" else wear
            wear += rng.gamma(1, 0.4)
    frame = pd.DataFrame(rows, columns=["machine", "week", "vibration", "action", "cost"])
    return frame.assign(downtime=(8 * (frame["cost"] >= 2500) + rng.random(len(frame))).round(1))


def found(frame, **roles):
    batch = Transitions.from_frame(frame, **roles)
    return [(c.kind, c.column, c.severity) for c in batch.describe().warnings if c.kind in KINDS]


def of_customers(frame):
    states = [name for name in frame if name not in ("offer", "profit")]
    return found(frame, state=states, action="offer", reward="profit", discount=0)


def of_machines(frame):
    states = [name for name in frame if name not in ("machine", "action", "cost")]
    return found(frame, state=states, action="action", cost="cost", episode="machine", time="week")


@pytest.mark.parametrize("bound", [3, 10, 15])
@pytest.mark.parametrize("words", [False, True])
def test_a_flag_for_rewards_above_a_bound_is_found(bound, words):
    frame = customers()
    ordered = frame["profit"] > bound
    flag = ordered.map({True: "yes", False: "no"}) if words else 1 * ordered
    assert of_customers(frame.assign(ordered=flag)) == [("divides-reward", "ordered", "severe")]
    assert of_customers(frame.assign(ordered=~ordered)) == [("divides-reward", "ordered", "severe")]
    classes = pd.cut(frame["profit"], [-99, bound - 2, bound + 2, 999], labels=["low", "medium", "high"]).astype(str)
    assert of_customers(frame.assign(result=classes)) == [("divides-reward", "result", "severe")]


def test_the_text_says_where():
    frame = customers()
    batch = Transitions.from_frame(
        frame.assign(ordered=1 * (frame["profit"] > 10)),
        state=["age", "ordered"],
        action="offer",
        reward="profit",
        discount=0,
    )
    (caveat,) = (c for c in batch.describe().warnings if c.kind == "divides-reward")
    above = frame["profit"][frame["profit"] > 10]
    n = len(above)
    assert (
        f"where ordered is 1, the reward is at least {above.min():.4g}, in {n} rows, and in almost no others"
        in caveat.text
    )
    assert caveat.count == n
    assert str(n) not in caveat.text_without_counts


def test_groups_that_predict_the_reward_are_not_found():
    """Flags of the state, flags with one error in fifty, and groups so far apart that no reward lies in between."""
    rng = np.random.default_rng(1)
    frame = customers()
    frame["large"] = frame["spent"] > 100
    frame["nearly"] = np.where(rng.random(N) < 0.02, frame["profit"] <= 10, frame["profit"] > 10)
    assert of_customers(frame) == []
    apart = frame.assign(profit=frame["profit"] + 500 * frame["large"])[["spent", "large", "offer", "profit"]]
    assert of_customers(apart) == []


def test_a_number_that_is_high_where_a_cost_arises_is_found_in_few_rows_of_many_episodes():
    frame = machines()
    assert 20 <= (frame["cost"] >= 2500).sum() <= 250
    assert of_machines(frame) == [("divides-reward", "downtime", "warning")]
    assert of_machines(frame.drop(columns="downtime")) == []
    assert ("divides-reward", "minus", "warning") in of_machines(frame.assign(minus=-frame["downtime"]))


def test_a_state_that_persists_may_decide_on_the_reward():
    """The cost arises wherever the stock is low, as the stock of the row before lets expect."""
    rng = np.random.default_rng(2)
    steps = rng.normal(0, 0.3, size=(200, 20))
    stock = np.cumsum(steps, axis=1).ravel()
    frame = pd.DataFrame(
        {
            "unit": np.repeat(np.arange(200), 20),
            "day": np.tile(np.arange(20), 200),
            "stock": stock,
            "noise": rng.normal(size=4000),
        }
    )
    frame = frame.assign(action=rng.integers(2, size=4000), reward=-1.0 * (stock < -1))
    roles = {"state": ["stock", "noise"], "action": "action", "reward": "reward", "episode": "unit", "time": "day"}
    assert found(frame, **roles) == []


@pytest.mark.parametrize("what", ["sum", "mean", "rest", "in other units"])
def test_what_the_rewards_of_an_episode_add_up_to_is_found(what):
    frame = pd.read_csv(clinic_table()).iloc[1:]  # episodes of three and four rows
    gain = frame.groupby("patient")["wellbeing"]
    frame["final"] = {
        "sum": gain.transform("sum"),
        "mean": gain.transform("mean"),
        "rest": gain.transform("sum") - gain.cumsum() + frame["wellbeing"],
        "in other units": 3 - 7 * gain.transform("sum"),
    }[what]
    roles = {"action": "treatment", "reward": "wellbeing", "episode": "patient", "time": "week"}
    assert found(frame, state=["week", "age", "severity", "final"], **roles) == [("fixes-return", "final", "severe")]
    assert found(frame, state=["week", "age", "sex", "severity", "liver"], **roles) == []
    noisy = frame.assign(final=frame["final"] + np.random.default_rng(0).normal(0, 0.1, len(frame)))
    assert found(noisy, state=["week", "severity", "final"], **roles) == []


def test_the_rows_that_remain_are_not_the_outcome():
    """Each row costs one, so the day is a straight line in what is still to come."""
    frame = pd.DataFrame({"who": np.repeat(np.arange(200), 5), "day": np.tile(np.arange(5), 200)})
    rng = np.random.default_rng(3)
    frame = frame.assign(x=rng.normal(size=1000), action=rng.integers(2, size=1000), reward=-1.0 * (frame["day"] < 4))
    assert found(frame, state=["day", "x"], action="action", reward="reward", episode="who", time="day") == []


def test_what_is_left_after_the_last_reward_is_exactly_nothing():
    """Differences of long sums are not: such noise looked like many different outcomes, most of them on one line."""
    rng = np.random.default_rng(4)
    rewards = np.where(rng.random((600, 5)) < 0.1, rng.normal(2, 1, (600, 5)), 0.0)
    owner = np.repeat(np.arange(600), 5)
    x, ends = rng.normal(size=(3000, 2)), np.diff(owner, append=600) > 0
    batch = Transitions(x, rng.integers(2, size=3000), rewards.ravel(), x, ends, episodes=owner)
    left = sums_of(batch)["the sum of the rewards that are still to come in its episode"].reshape(600, 5)
    expected = np.cumsum(rewards[:, ::-1], axis=1)[:, ::-1]
    np.testing.assert_allclose(left, expected, atol=1e-8)
    np.testing.assert_array_equal(left == 0, expected == 0)
