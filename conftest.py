"""Configuration shared by all tests and doctests."""

import os

import numpy as np
import pytest
from hypothesis import settings

# By default property tests use the same examples each time, so a failure points to the change under test.
settings.register_profile("same", derandomize=True)
settings.register_profile("other", derandomize=False)  # HYPOTHESIS=other tries new examples
settings.load_profile(os.environ.get("HYPOTHESIS", "same"))

JIT = not int(os.environ.get("NUMBA_DISABLE_JIT") or 0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a compiler, skip tests that would take minutes in Python or that test machine code."""
    if not JIT:
        for item in items:
            if item.get_closest_marker("compiled"):
                item.add_marker(pytest.mark.skip(reason="needs compiled kernels, but NUMBA_DISABLE_JIT is set"))


@pytest.fixture(autouse=True)
def _names_in_doctests(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["np"] = np


@pytest.fixture(autouse=True)
def _own_folder_for_pages(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Examples in pages may write files, such as policy.capi: not into the project."""
    if request.node.path.suffix == ".md":
        monkeypatch.chdir(tmp_path_factory.mktemp("page"))
