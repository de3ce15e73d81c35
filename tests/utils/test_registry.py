"""Methods of lower layers that upper layers provide."""

import subprocess
import sys

import pytest

from capi._utils import registry
from capi._utils.registry import Slot
from capi.errors import CapiError

SLOTS = {name: slot for name, slot in vars(registry).items() if isinstance(slot, Slot)}


@pytest.mark.parametrize("name", SLOTS)
def test_the_home_of_each_slot_fills_it(name):
    home = SLOTS[name].home
    code = f"import {home}; from capi._utils import registry; print(registry.{name}._function.__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == home


def test_an_empty_slot_imports_its_home():
    code = (
        "import sys, tempfile, pathlib; from capi.policies import Constant; assert 'capi.files.policy_file' not in sys.modules;"
        "path = pathlib.Path(tempfile.mkdtemp(), 'always.capi'); Constant(1, 2).save(path); print(path.exists())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_a_home_that_fills_nothing_is_an_error():
    with pytest.raises(CapiError, match=r"capi.errors must fill the slot"):
        Slot("capi.errors")()
