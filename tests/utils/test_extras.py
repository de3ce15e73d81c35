"""Optional packages: learning, evaluation and the report do without them, and what needs them says how to install them."""

import subprocess
import sys

WITHOUT = "import sys; sys.modules['matplotlib'] = sys.modules['gymnasium'] = None\n"
LEARN = """
import shutil
from capi.cli import app
from capi.datasets import clinic_table
shutil.copy(clinic_table(), "visits.csv")
for line in ("init visits.csv --reward wellbeing", "fit", "report run"):
    try:
        app(line.split())
    except SystemExit as end:
        assert not end.code, line
from capi import load_policy
from capi.errors import MissingPackageError
for use in (lambda: load_policy("run/policy.capi").plot(), lambda: __import__("capi.simulation.environments")):
    try:
        use()
    except (MissingPackageError, ImportError) as error:
        print(type(error).__name__, error)
"""


def test_a_run_needs_neither_figures_nor_environments(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + LEARN], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (
        "MissingPackageError figures need the package matplotlib, which is not installed. Run pip install 'capi[plot]'."
        in done.stdout
    )
    assert "Run pip install 'capi[gymnasium]'." in done.stdout
    assert (tmp_path / "run" / "report.html").exists()
