"""A web service that decides: one policy file, one endpoint (needs fastapi; the last lines, which try it, need httpx).

A request is a list of rows with the columns of the learning table; null is missing. The answer has one label per row, and warnings
of new categories; bad rows are refused with a sentence. ``app = service("policy.capi")`` in service.py: ``uvicorn service:app``.
"""

import asyncio
import tempfile
import warnings

import numpy as np
import pandas as pd
from fastapi import FastAPI, HTTPException
from httpx import ASGITransport, AsyncClient

from capi import CAPI, Transitions, load_policy
from capi.errors import InvalidInputError, UnseenCategoryWarning
from capi.evaluators import FittedQ
from capi.policy_spaces import Trees

REQUESTS = [{"age": 40, "sex": "male"}, {"age": 80, "sex": None}], [{"age": 40, "sex": "x"}], [{"age": 40}]


def service(policy_file):
    """Return a service that answers with the decisions of a policy."""
    policy, app = load_policy(policy_file), FastAPI()

    @app.post("/decide")
    async def decide(rows: list[dict]):  # async: one request at a time, for the process has one record of warnings
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", UnseenCategoryWarning)
            try:
                decisions = policy.predict(rows).tolist()
            except InvalidInputError as error:
                raise HTTPException(status_code=422, detail=str(error)) from error
        return {"decisions": decisions, "warnings": [str(warning.message) for warning in found]}

    return app


def learn(file):
    """Learn a policy from a small table, and save it."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(20, 90, 1000), "sex": rng.choice(["female", "male"], 1000)})
    table["dose"] = rng.choice(["low", "high"], 1000)
    table["benefit"] = np.where((table["age"] < 65) == (table["dose"] == "high"), 1.0, 0.0)
    batch = Transitions.from_frame(table, state=["age", "sex"], action="dose", reward="benefit", discount=0)
    CAPI(FittedQ(), Trees(max_depth=1), discount=0.0, n_iterations=1, random_state=0).fit(batch).policy_.save(file)


async def main(file):
    """Send three requests, without a network."""
    async with AsyncClient(transport=ASGITransport(service(file)), base_url="http://service") as client:
        for rows in REQUESTS:
            print((await client.post("/decide", json=rows)).json())


with tempfile.TemporaryDirectory() as folder:
    learn(f"{folder}/policy.capi")
    asyncio.run(main(f"{folder}/policy.capi"))
