"""A table whose reward is a cost: readers see costs."""

import numpy as np
import pandas as pd
import pytest

from capi.report import report_record, write_report
from capi.report.costs import evaluation_of_costs, negated
from capi.report.wording import MINUS
from capi.runs import RunSettings, evaluate_run, fit_run, load_run


def test_costs_are_positive_numbers_and_smaller_ones_are_better(tmp_path):
    rng = np.random.default_rng(0)
    age, treated = rng.normal(50, 10, 400), rng.random(400) < 0.5
    cost = 20 - 5 * (treated == (age > 50)) + rng.normal(size=400)
    frame = pd.DataFrame({"age": age, "do": np.where(treated, "treat", "wait"), "cost": cost})
    frame.to_csv(tmp_path / "table.csv", index=False)
    roles = {"state": ["age"], "action": "do", "cost": "cost"}
    chosen = RunSettings(str(tmp_path / "table.csv"), roles, discount=0.0, n_iterations=2, hold_out=0.5)
    run = fit_run(chosen, tmp_path / "run").folder
    found = evaluate_run(run)
    assert found.estimate < 0  # numbers for programs stay rewards
    record = report_record(run)
    assert record["data"]["rewards"]["mean"] == pytest.approx(-load_run(run).batch().rewards.mean())
    assert record["data"]["rewards"]["low"] <= record["data"]["rewards"]["mean"] <= record["data"]["rewards"]["high"]
    head = record["head"]
    assert head["estimate"] == -found.estimate
    assert head["interval"] == [-found.interval[1], -found.interval[0]]
    assert head["logged"]["estimate"] == -found.behaviour.value
    gain = record["evaluation"]["gain"]
    assert (gain["estimate"], gain["low"]) == (-found.difference.value, -found.difference.bootstrap[1])
    assert {row["estimate"] > 0 for row in record["evaluation"]["rows"] if row["estimate"] is not None} == {True}
    assert all(value > 0 for value in record["convergence"]["value"])
    page = write_report(run, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "estimated cost of following it (smaller is better)" in page
    assert f'<span class="figure">{MINUS}' not in page
    text = str(found)
    assert f"the policy: {-found.estimate:.4g}, " in text
    assert "values are costs: smaller is better" in text
    assert "the policy is better than the logged behaviour: its cost is lower by " in text


def test_ranges_are_turned_and_other_values_stay():
    assert negated({"low": 1.0, "high": 2.0, "name": "x"}) == {"low": -2.0, "high": -1.0, "name": "x"}
    assert negated({"low": None, "high": 0.0, "standard_error": 1.0}) == {
        "low": 0.0,
        "high": None,
        "standard_error": 1.0,
    }
    assert negated(None) is None
    strange = {"estimates": [3, {"estimate": True, "low": 10**400}], "interval": ["a", None], "best_action": 3}
    found = evaluation_of_costs(strange)
    assert found["estimates"] == [3, {"estimate": True, "low": None, "high": -(10**400)}]
    assert found["interval"] == [None, "a"]
