"""Columns that give the outcome away: which are found, and which legitimate ones are not."""

import numpy as np
import pandas as pd
import pytest

from capi import Transitions
from capi.data.summary.leaks import codes_of, share_explained

N = 2000
KINDS = ("fixes-reward", "value-fixes-reward", "equals-reward")


def trial(reward=None, n=N, seed=0, **columns):
    """A trial whose outcome, a score from 0 to 6, depends on the age, the arm and chance; 6 is death."""
    rng = np.random.default_rng(seed)
    age, arm = rng.normal(size=n), rng.integers(2, size=n)
    score = np.clip(np.round(3 + age + 0.3 * arm + 1.5 * rng.normal(size=n)), 0, 6) if reward is None else reward
    return pd.DataFrame({"age": age, "arm": arm, "score": score, **columns})


def leaks(frame, *state, **roles):
    batch = Transitions.from_frame(
        frame, state=["age", *state], action="arm", reward="score", **{"discount": 0, **roles}
    )
    return [caveat for caveat in batch.describe().warnings if caveat.kind in KINDS]


def test_a_death_flag_gives_the_reward_away_for_one_of_its_values():
    frame = trial()
    died = frame["score"] == 6
    (found,) = leaks(frame.assign(died=died), "died")
    n = int(died.sum())
    assert (found.kind, found.severity, found.column, found.count, found.share) == (
        "value-fixes-reward",
        "severe",
        "died",
        n,
        1.0,
    )
    assert f"where died is true, the reward is 6 in {n} of {n} rows (0 % of the others)" in found.text
    assert str(n) not in found.text_without_counts


def test_a_flag_for_a_purchase_fixes_the_revenue_only_where_there_is_none():
    """Rewards that few rows share are not one reward because the column tells them from the common one."""
    rng = np.random.default_rng(2)
    bought = rng.random(N) < 0.5
    revenue = np.where(bought, rng.gamma(3, 4, N).round(2) + 0.5, 0)
    (leak,) = leaks(trial(revenue, bought=bought + 0), "bought")
    assert leak.kind == "value-fixes-reward"
    assert (
        f"where bought is 0, the reward is 0 in {N - bought.sum():,} of {N - bought.sum():,} rows (0 % of" in leak.text
    )
    assert leak.count == N - bought.sum()


def test_a_strong_predictor_of_death_is_not_a_leak():
    """One that knows 95 % of the deaths, and is wrong about 2 % of the others: far better than any real one."""
    rng = np.random.default_rng(1)
    frame = trial()
    died = frame["score"] == 6
    expected = np.where(died, rng.random(N) < 0.95, rng.random(N) < 0.02)
    assert leaks(frame.assign(expected=expected), "expected") == []


def test_a_value_with_one_exception_in_a_thousand_still_gives_the_reward_away():
    frame = trial(n=20_000)
    died = np.array(frame["score"] == 6)
    died[np.flatnonzero(~died)[0]] = True
    (found,) = leaks(frame.assign(died=died), "died")
    assert found.count == died.sum() - 1
    assert found.share == found.count / died.sum()
    assert f"{found.count:,} of {found.count + 1:,} rows" in found.text


def test_an_outcome_measured_later_fixes_the_reward_in_nearly_all_rows():
    frame = trial()
    later = frame["score"].where(np.arange(N) % 1000 != 1, 3).map(lambda score: f"grade {score:g}")
    (found,) = leaks(frame.assign(later=later), "later")
    assert (found.kind, found.severity, found.column) == ("fixes-reward", "severe", "later")
    assert found.count in (N - 2, N - 1, N)
    assert f"{found.count:,} of 2,000 rows" in found.text


@pytest.mark.parametrize("n", [500, 5000])
@pytest.mark.parametrize("kind", ["normal", "binary", "mostly zero", "score"])
@pytest.mark.parametrize("how", ["copied", "missing otherwise", "in other units"])
def test_columns_that_fix_the_reward_in_nine_of_ten_rows(n, kind, how):
    rng = np.random.default_rng(2)
    reward = {
        "normal": rng.normal(size=n),
        "binary": 1.0 * (rng.random(n) < 0.2),
        "mostly zero": np.where(rng.random(n) < 0.3, rng.exponential(size=n), 0),
        "score": np.round(50 + 20 * rng.normal(size=n)),
    }[kind]
    copied = rng.random(n) < 0.9
    column = np.where(copied, reward, np.nan if how == "missing otherwise" else rng.permutation(reward))
    column = 100 - 7 * column if how == "in other units" else column
    (found,) = leaks(trial(reward, n, column=column), "column")
    assert found.column == "column"


def test_a_smooth_function_of_the_reward_gives_it_away():
    gain = np.random.default_rng(3).normal(size=N)
    (found,) = leaks(trial(gain, cubed=(gain - 1) ** 3), "cubed")
    assert (found.kind, found.count) == ("fixes-reward", None)
    noisy = trial(gain, noisy=gain + 0.1 * np.random.default_rng(4).normal(size=N))
    assert leaks(noisy, "noisy") == [], "a correlation of 0.995 is not certainty"


def test_an_effect_that_depends_on_the_column_exactly_is_not_a_leak():
    """Half of the rows are treated, and their gain is the dose; the others gain nothing."""
    rng = np.random.default_rng(8)
    dose, treated = rng.random(N), rng.random(N) < 0.45
    assert leaks(trial(np.where(treated, dose, 0.0), dose=dose, arm=1 * treated), "dose") == []


def test_low_risk_and_rare_events_are_not_leaks():
    rng = np.random.default_rng(5)
    planned = rng.random(N) < 0.5
    died = np.where(planned, 0.0, -1.0 * (rng.random(N) < 0.06))
    assert leaks(trial(died, planned=planned), "planned") == [], "nobody of 1,000 died, but few did anywhere"
    assert leaks(trial(-1.0 * (np.arange(N) < 8), first=np.arange(N) < 8), "first") == [], "eight rows prove nothing"


def test_a_reward_at_the_end_of_episodes_is_not_given_away_by_the_day():
    rng = np.random.default_rng(6)
    day = np.arange(N) % 4
    end = np.where(day == 3, rng.integers(2, size=N), 0.0)
    frame = trial(end, who=np.arange(N) // 4, day=day, died=np.repeat(end[3::4], 4))
    assert leaks(frame, "day", episode="who", discount=0.9) == []
    (found,) = leaks(frame, "day", "died", episode="who", discount=0.9)
    assert (found.column, found.severity, found.count) == ("died", "warning", N // 4)


def test_the_only_column_of_a_process_may_decide_on_the_reward():
    place = np.random.default_rng(7).integers(5, size=N)
    frame = trial(1.0 * (place == 4), who=np.arange(N) // 4, place=place)
    batch = Transitions.from_frame(frame, state="place", action="arm", reward="score", episode="who")
    assert [c for c in batch.describe().warnings if c.kind in KINDS] == []


def test_a_few_rows_prove_nothing():
    assert leaks(trial(n=40).assign(died=lambda f: f["score"] >= 5), "died") == []


def test_the_share_explained_by_hand():
    """Of copies in nine of ten rows it is 0.9 squared; of a function 1; of independent columns 0, after correction."""
    assert share_explained(np.array([[9500, 500], [500, 9500]])) == pytest.approx(0.81, abs=1e-3)
    assert share_explained(np.array([[50, 0, 0], [0, 20, 0], [0, 0, 9]])) == 1
    assert share_explained(np.array([[50, 0, 0], [0, 20, 20]])) < 0.8, (
        "the level is a function of the reward, not vice versa"
    )
    assert share_explained(np.array([[50, 50], [50, 50]])) == pytest.approx(0, abs=0.01)
    assert share_explained(np.array([[50, 50], [0, 0]])) == 0
    rng = np.random.default_rng(0)
    by_chance = [share_explained(rng.multinomial(100, np.full(30, 1 / 30)).reshape(10, 3)) for _ in range(300)]
    assert abs(np.mean(by_chance)) < 4 * np.std(by_chance) / np.sqrt(300)


def test_rewards_are_found_among_the_common_ones():
    codes = codes_of(np.array([3.0, 1.0, 2.0, 9.0, 0.0]), np.array([2.0, 1.0, 3.0]))
    np.testing.assert_array_equal(codes, [2, 1, 0, 3, 3])


@pytest.mark.slow
@pytest.mark.parametrize("n", [500, 5000])
@pytest.mark.parametrize("kind", ["normal", "binary", "mostly zero", "score"])
def test_few_false_alarms_and_few_misses(n, kind):
    """Sixty clean tables with eight columns, some of them strong predictors, and the same ones with a planted column."""
    alarms = misses = 0
    for seed in range(60):
        rng = np.random.default_rng([n, seed])
        z = rng.normal(size=(n, 3))
        columns = {
            "x": z[:, 0],
            "y": np.where(rng.random(n) < 0.2, np.nan, z[:, 1]),
            "count": rng.poisson(1.5, n),
            "years": rng.integers(18, 90, n),
            "sex": rng.choice(["f", "m"], n),
            "ward": rng.choice(list("abcdefgh"), n, p=rng.dirichlet(np.ones(8))),
            "flag": rng.random(n) < 0.1,
        }
        eta = 2 * z[:, 0] + z[:, 1] + 0.5 * columns["flag"]
        happened = rng.random(n) < 1 / (1 + np.exp(1.5 - eta))
        reward = {
            "normal": eta + rng.normal(size=n),
            "binary": 1.0 * happened,
            "mostly zero": happened * rng.exponential(size=n),
            "score": np.round(50 + 10 * eta + 10 * rng.normal(size=n)),
        }[kind]
        planted = np.where(rng.random(n) < 0.9, reward, rng.permutation(reward))
        frame = trial(reward, n, seed, **columns, planted=planted)
        alarms += bool(leaks(frame, *columns))
        misses += "planted" not in [found.column for found in leaks(frame, *columns, "planted")]
    assert alarms <= 0.05 * 60
    assert misses <= 0.05 * 60
