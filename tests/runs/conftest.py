import numpy as np
import pandas as pd
import pytest

from capi.testing import random_batch


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    batch = random_batch(3, n_episodes=60)
    frame = pd.DataFrame(batch.states, columns=["age", "dose"])
    frame["drug"], frame["gain"] = np.array(["none", "low", "high"])[batch.actions], batch.rewards
    frame["id"], frame["dead"] = batch.episodes, batch.terminated
    path = tmp_path_factory.mktemp("data") / "table.csv"
    frame.to_csv(path, index=False)
    return str(path)
