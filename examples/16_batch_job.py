"""A nightly job: read a table, decide for each row with a saved policy, and write the decisions beside the ids.

`predict` takes the columns that it needs from the table, by name, and answers in the labels of the table that the policy was
learned from. It warns of categories that did not occur there, and treats them as missing values. The command line does the
same: ``capi predict policy.capi tonight.csv --out decisions.csv``.
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from capi import CAPI, Transitions, load_policy
from capi.errors import UnseenCategoryWarning
from capi.evaluators import FittedQ
from capi.policy_spaces import Trees


def visits(n, wards, seed):
    """Simulate patients: the drug helps those with a fever, except on the surgical ward."""
    rng = np.random.default_rng(seed)
    temperature, ward = rng.normal(38, 1, n).round(1), rng.choice(wards, n)
    drug = rng.choice(["none", "antipyretic"], n)
    helps = (temperature > 38.5) & (ward != "surgery")
    relief = np.where(drug == "none", 0.0, np.where(helps, 1.0, -0.5)) + rng.normal(0, 0.2, n)
    return pd.DataFrame({"id": np.arange(n), "temperature": temperature, "ward": ward, "drug": drug, "relief": relief})


def learn(file):
    """Learn a policy from last year's visits, and save it."""
    table = visits(1000, ["medicine", "surgery"], seed=0)
    batch = Transitions.from_frame(table, state=["temperature", "ward"], action="drug", reward="relief", discount=0)
    learner = CAPI(FittedQ(), Trees(max_depth=2), discount=0.0, n_iterations=1, random_state=0).fit(batch)
    learner.policy_.save(file)


def decide(policy_file, table_file, decisions_file):
    """Do the job: read, decide, write."""
    table = pd.read_csv(table_file)
    decisions = load_policy(policy_file).predict(table)
    pd.DataFrame({"id": table["id"], "decision": decisions}).to_csv(decisions_file, index=False)


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    learn(folder / "policy.capi")
    tonight = visits(200, ["medicine", "surgery", "maternity"], seed=1).drop(columns=["drug", "relief"])
    tonight.to_csv(folder / "tonight.csv", index=False)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UnseenCategoryWarning)
        decide(folder / "policy.capi", folder / "tonight.csv", folder / "decisions.csv")
    print(load_policy(folder / "policy.capi").rules())
    print("warning:", found[0].message)
    print(pd.read_csv(folder / "decisions.csv")["decision"].value_counts().to_string())
