"""The harness of benchmarks/selection.py: candidates that refuse a log are left out of the hindsight, as selection leaves them out."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from capi import CAPI, Transitions
from capi.evaluators import LSTDQ, FittedQ
from capi.features.bases import Polynomial
from capi.policy_spaces import OptimalTrees
from capi.selection import Candidate

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
try:
    import selection
finally:
    sys.path.remove(str(BENCHMARKS))

pytestmark = pytest.mark.filterwarnings("ignore::capi.errors.RareActionWarning")
TREE, LINEAR = "tree", "linear values"


@pytest.fixture
def log():
    """Single decisions, in which the first action is right, the second one is wrong, and the third one is never taken."""
    rng = np.random.default_rng(0)
    actions = rng.integers(2, size=300)
    x = rng.random((300, 1))
    return Transitions(x, actions, 1.0 * (actions == 0), x, np.ones(300, dtype=bool), n_actions=3)


@pytest.fixture
def candidates():
    space = OptimalTrees(max_depth=1)
    fitted_q, linear = FittedQ(n_trees=5, min_samples_split=20), LSTDQ(Polynomial(1), ridge=1e-3)
    return [
        Candidate(TREE, CAPI(fitted_q, space, 0.0, 1, random_state=0), 1),
        Candidate(LINEAR, CAPI(linear, space, 0.0, 1, random_state=0), 2),
    ]


def share_right(policy):
    return float(policy.probabilities(np.linspace(0, 1, 5)[:, None])[:, 0].mean())


def test_hindsight_leaves_out_candidates_that_refuse_the_episodes(log, candidates):
    worths, refused = selection.hindsight(candidates, log, share_right)
    assert worths == {TREE: 1.0}
    assert list(refused) == [LINEAR]
    assert refused[LINEAR].startswith("InvalidInputError: ")


def test_errors_of_the_problem_itself_are_raised(log, candidates):
    def broken(policy):
        raise ValueError("the true return is unknown")

    with pytest.raises(ValueError, match="true return"):
        selection.hindsight(candidates[:1], log, broken)


def test_a_record_says_which_candidates_refused(log, candidates, tmp_path, monkeypatch):
    """The selection fails for the same candidate, and the table says how often that was so."""
    problem = SimpleNamespace(
        discount=0.0,
        data=lambda seed: SimpleNamespace(batch=log),
        worth=share_right,
        log_worth=lambda data: 0.5,
    )
    monkeypatch.setattr(selection, "problems", lambda: {"tiny": problem})
    monkeypatch.setattr(selection, "candidates_of", lambda *arguments: candidates)
    records = selection.Records(tmp_path)
    selection.run("tiny", 0, records)
    [record] = records
    results = record["results"]
    fates = {one["name"]: one["fate"] for one in results["selection"]["tried"]}
    assert fates[LINEAR].startswith("failed: InvalidInputError")
    assert results["selection"]["chosen"] == TREE
    assert results["worths"] == {TREE: 1.0}
    assert list(results["refused"]) == [LINEAR]
    assert f"tiny: {LINEAR} refused the learning episodes of 1 of 1 seeds" in selection.table(records)


def test_records_without_refusals_need_no_note(tmp_path):
    """Records of earlier versions do not say what was refused, because nothing was."""
    results = {
        "worths": {"a": 1.0, "b": 2.0},
        "log": 0.5,
        "returned": 2.0,
        "selection": {"chosen": "b", "gate": {"verdict": "better"}},
        "cpu_seconds": 1.0,
    }
    records = selection.Records(tmp_path)
    records.add(selection.values_of("chain"), 0, results, {})
    assert selection.table(records).splitlines()[-1].startswith("| chain | 1 | 1.00, 1.00 | 0 | 1, 0, 0 |")


def test_records_of_earlier_rules_and_learners_have_rows_of_their_own(tmp_path):
    results = {
        "worths": {"a": 1.0, "b": 2.0},
        "log": 0.5,
        "returned": 2.0,
        "selection": {"chosen": "b", "gate": {"verdict": "better"}},
        "cpu_seconds": 1.0,
    }
    records = selection.Records(tmp_path)
    now = selection.values_of("pole")
    assert "learners" not in selection.values_of("chain")
    for values in (now, {"problem": "pole", "rule": selection.RULE}, {"problem": "pole"}):
        records.add(values, 0, results, {})
    rows = [line.split(" |")[0] for line in selection.table(records).splitlines()[2:]]
    assert rows == ["| pole", "| pole (earlier learners)", "| pole (earlier rule)"]


def test_settings_are_chosen_among_different_learners():
    """The names say what differs, and each learner has it."""
    batch = selection.problems()["kernel"].data(0).batch
    for name in ("noise-0", "hiv-sizes", "kernel"):
        given = selection.candidates_of(name, batch, 0.98, 0)
        assert len({candidate.name for candidate in given}) == len(given) > 4
        assert len({(repr(c.learner.evaluator), repr(c.learner.space)) for c in given}) == len(given)
