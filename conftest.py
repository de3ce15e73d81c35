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

JIT = not int(os.environ.get("NUMBA_DISABLE_JIT") or 0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what would take Python minutes, or is about machine code, if kernels are not compiled."""
    if not JIT:
        for item in items:
            if item.get_closest_marker("compiled"):
                item.add_marker(pytest.mark.skip(reason="needs compiled kernels, and NUMBA_DISABLE_JIT is set"))


@pytest.fixture(autouse=True)
def _names_in_doctests(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["np"] = np
