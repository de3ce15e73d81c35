"""A policy speaks the words of the table that it came from."""

import numpy as np
import pandas as pd

from capi import CAPI, Transitions
from capi.evaluators import FittedQ
from capi.policy_spaces import Thresholds, Trees


def trial(n=400):
    """Women gain by the drug, men do not; those who came later gain a little less."""
    rng = np.random.default_rng(0)
    sex = np.where(rng.random(n) < 0.5, "female", "male")
    sex = pd.Series(sex).where(rng.random(n) > 0.05)
    arm = rng.choice(["drug", "placebo"], size=n)
    gain = np.where((sex == "female") & (arm == "drug"), 2.0, 0.0) + np.where(
        (sex == "male") & (arm == "placebo"), 2.0, 0.0
    )
    return pd.DataFrame({"sex": sex, "admitted": pd.date_range("2020-01-01", periods=n), "arm": arm, "gain": gain})


def test_rules_are_in_the_words_of_the_table_and_predict_takes_a_table():
    frame = trial()
    batch = Transitions.from_frame(frame, state=["sex", "admitted"], action="arm", reward="gain", discount=0)
    for space in (Trees(max_depth=1), Thresholds(feature=0)):
        complete = ~np.isnan(batch.states).any(axis=1)
        known = batch.subset(complete) if isinstance(space, Thresholds) else batch
        learner = CAPI(
            FittedQ(n_trees=10, min_samples_split=20), space, discount=0.0, n_iterations=2, random_state=0
        ).fit(known)
        first = learner.policy_.rules().splitlines()[0]
        assert first.startswith(("if sex is not female", "if sex is not male")), first
        new = pd.DataFrame({"sex": ["female", "male"], "admitted": pd.to_datetime(["2021-05-01", "2021-05-01"])})
        assert learner.predict(new).tolist() == ["drug", "placebo"]
