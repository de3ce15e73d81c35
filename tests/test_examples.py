import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))

EXPECTED = {  # a line that a reader can check
    "01_quickstart.py": "if state <= 11.5: right",
    "02_fresh_states.py": "40 fresh states per round: cut at 10.0, loses 0.1965",
    "03_own_evaluator.py": "loses 0",
    "04_states_the_policy_visits.py": "loses 1.336",
    "05_more_later.py": "more later: 66 sweeps and 660 states, loses 3.704",
    "06_oscillation.py": "best: loses 2.06",
    "08_trees_from_data.py": "always pump: -1.963 per hour",
    "10_mountain_car.py": "KNN-CAPI: 6",
    "11_modified_policy_iteration.py": "m = 5: optimal after 19 rounds",
    "12_rules.py": "cap: RTI in at most 20 % of the states: 20.",
    "13_trial.py": "There is no significant difference between the tree and the best arm",
    "15_serve_fastapi.py": "{'decisions': ['high', 'low'], 'warnings': []}",
    "16_batch_job.py": "column 'ward' has 'maternity' (63 of 200 rows, first in row 1 counted from 0)",
    "18_growing_dictionary.py": "growing dictionary: loses 0 after 10 rounds, 0 after 30",
    "19_from_an_expert.py": "zero-one loss, visited states: loses 1.336\nzero-one loss, all states: loses 22.98",
    "17_near_the_log.py": "returns: free -151, near the log -45",
    "14_grid_search.py": "depth 1, at least   5 rows per leaf: score 0.832, true loss 0.031",
    "09_gymnasium.py": "the tree: 491 steps; 7 of 50 episodes ended before the limit",
    "20_cluster.py": "the same on the cluster: True",
    "07_own_policy_space.py": "IntervalPolicy(low=41.0, high=96.0, inside=0, outside=1, n_actions=2) loses 0",
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(path):
    done = subprocess.run([sys.executable, "-W", "error", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert EXPECTED[path.name] in done.stdout


def test_examples_are_short():
    assert len(EXAMPLES) == len(EXPECTED)
    for path in EXAMPLES:
        assert len(path.read_text().splitlines()) <= 60
