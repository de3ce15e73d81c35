"""What every test and doctest has at hand."""

import os

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile(
    "same", derandomize=True
)  # the same examples each time, so that a failure says something about the change
settings.register_profile("other", derandomize=False)  # HYPOTHESIS=other looks elsewhere
settings.load_profile(os.environ.get("HYPOTHESIS", "same"))


@pytest.fixture(autouse=True)
def _names_in_doctests(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["np"] = np
