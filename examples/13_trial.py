"""Which patient should get which drug? A tree from a randomised trial on real patients, and its estimated value: ACTG 175.

2,139 HIV patients were randomly assigned one of four treatments; the outcome here is the CD4 count after 20 weeks. A
decision has no consequences beyond its outcome, so the discount is 0 and every row is its own episode. The table is part
of the package lifelines. Columns measured after the treatment began must not be features: `describe` detects two of them.

The tree is compared with the best single treatment. Both are learned without each fifth of the patients and evaluated on it.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from capi import CAPI, Transitions
from capi.data import describe
from capi.evaluators import FittedQ
from capi.offline import cross_evaluate
from capi.policy_spaces import OptimalTrees, Partition

ARMS = {0: "ZDV", 1: "ZDV+ddI", 2: "ZDV+Zal", 3: "ddI"}  # zidovudine, didanosine, zalcitabine
BEFORE = [
    "age",
    "wtkg",
    "hemo",
    "homo",
    "drugs",
    "karnof",
    "oprior",
    "z30",
    "preanti",
    "race",
    "gender",
    "symptom",
    "cd40",
    "cd80",
]

package = find_spec("lifelines")
if package is None:
    raise SystemExit("this example needs the table ACTG 175, which is part of another package: pip install lifelines")
table = pd.read_csv(Path(package.origin).parent / "datasets" / "ACTG175.csv")
table["arm"], table["chance"] = table["arms"].map(ARMS), 0.25
roles = {"action": "arm", "reward": "cd420", "propensity": "chance", "discount": 0}

careless = Transitions.from_frame(table.assign(week20=table["cd420"]), state=[*BEFORE, "treat", "week20"], **roles)
print("\n".join(f"warning: {warning}" for warning in describe(careless).warnings))

batch = Transitions.from_frame(table, state=BEFORE, **roles)
values = FittedQ(n_trees=100, min_samples_leaf=20, n_jobs=-1)
common = {"discount": 0.0, "n_iterations": 1, "random_state": 0}
tree = CAPI(values, OptimalTrees(max_depth=2, min_samples_leaf=100), **common)
one_arm = CAPI(values, Partition(lambda states: np.zeros(len(states))), **common)  # one cell: the same for all
print(tree.fit(batch).policy_.rules())

found = cross_evaluate({"the tree": tree, "the best arm": one_arm}, batch, n_resamples=1000, n_jobs=-1)
print(found)
