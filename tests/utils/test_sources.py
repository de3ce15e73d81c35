"""The digest of a run's code covers every module of the package that the run loads."""

import subprocess
import sys

import pytest

from capi._utils.sources import digest_of, file_of, sources_of

RUNS = [f"capi.experiments.{name}.run" for name in ("chain", "hiv", "mountain_car", "pole")]
LOADED = """
import sys
from importlib import import_module
module = import_module(sys.argv[1])
getattr(module, "prepare", lambda: None)()
print(*(name for name in sys.modules if name.startswith("capi.") and not hasattr(sys.modules[name], "__path__")))
"""


@pytest.mark.parametrize("module", RUNS)
def test_all_modules_that_a_run_loads_are_sources(module):
    done = subprocess.run([sys.executable, "-c", LOADED, module], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if not name.startswith("capi.experiments")}
    assert len(loaded) > 30
    unused = {"capi.policies.composite"}  # loaded by its package, although most runs import nothing from it
    assert loaded - unused <= sources_of(module)


def test_a_name_of_a_package_leads_to_the_module_that_defines_it():
    sources = sources_of("capi.experiments.hiv.run")
    assert {"capi.evaluators.fitted_q", "capi.trees._kernels.grow", "capi.experiments.hiv.settings"} <= sources
    assert not {"capi.evaluators", "capi.evaluators.lasso_td", "capi.cli", "capi.experiments.driver"} & sources


def test_every_source_has_a_file_and_unknown_modules_have_none():
    assert all(file_of(name) for name in sources_of("capi.experiments.hiv.run"))
    assert file_of("capi.no_such_module") == ""


def test_experiments_have_digests_of_their_own():
    assert len({digest_of(module) for module in RUNS}) == len(RUNS)
