from importlib import metadata

import numpy as np

import capi
from capi import save_policy
from capi._utils.versions import versions
from capi.files.policy_file import read_header
from capi.learning.learner import training_of
from capi.policies import Constant


def test_versions_are_those_that_are_installed_and_capi_comes_first():
    found = versions()
    assert list(found) == ["capi", "numpy", "scipy", "scikit-learn", "numba"]
    assert found["capi"] == capi.__version__
    assert found["numpy"] == np.__version__
    assert found["scikit-learn"] == metadata.version("scikit-learn")


def test_who_changes_what_was_returned_changes_nothing_else():
    versions()["capi"] = "changed"
    assert versions()["capi"] == capi.__version__


def test_policies_and_their_files_record_the_same_versions(tmp_path):
    save_policy(Constant(0, n_actions=2), tmp_path / "policy.capi")
    assert read_header(tmp_path / "policy.capi")["libraries"] == versions()
    assert training_of(None, 0.9, 1).versions == versions()
