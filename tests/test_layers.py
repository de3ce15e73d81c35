"""The package has eight layers that follow its folder names; each imports only from the layers below."""

import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import capi

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "capi").rglob("*.py"))
MEDIAN, MOST = 200, 500  # lines per module


def picture():
    """Yield the rows of the picture in docs/concepts.md from the top: the siblings, and whether they are independent."""
    text = (ROOT / "docs" / "concepts.md").read_text().split("## Eight layers\n")[1]
    block = re.search(r"\n((?: {4}.+\n)+)", text)[1]
    for line in block.splitlines():
        parts = line.split(maxsplit=1)[1]
        yield re.split(r" [·|] ", parts), "|" in parts


def contract():
    """Yield the same for the import linter's contract."""
    [layers] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    for layer in layers["layers"]:
        yield re.split(r" [:|] ", layer), "|" in layer


def test_the_picture_in_the_documents_matches_the_linters_contract():
    assert list(picture()) == list(contract())


def test_there_are_eight_layers_and_everything_is_in_one():
    rows = [names for names, _ in contract()]
    found = {
        path.stem
        for path in (ROOT / "src" / "capi").iterdir()
        if not path.stem.startswith("__") and path.suffix in ("", ".py")
    }
    assert len(rows) == 8
    assert sorted(name for row in rows for name in row) == sorted(found - {"py"})


def test_a_layer_imports_only_from_those_below():
    """Imports for type checkers and inside functions count as well."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert not settings.get("exclude_type_checking_imports")
    assert not any("ignore_imports" in contract for contract in settings["contracts"])
    linter = Path(sys.executable).with_name("lint-imports")
    if not linter.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run([linter, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_modules_are_short():
    lengths = {
        path.relative_to(ROOT / "src" / "capi").as_posix(): len(path.read_text().splitlines()) for path in SOURCES
    }
    assert statistics.median(lengths.values()) <= MEDIAN
    assert not {name for name, length in lengths.items() if length > MOST}


def test_the_root_shows_only_what_users_type():
    shown = [name for name in dir(capi) if not name.startswith("__")]
    assert {"CAPI", "Transitions", "FiniteMDP", "load_policy", "evaluators", "policy_spaces", "offline"} <= set(shown)
    assert not [name for name in shown if name.startswith("_")]
    for name in shown:
        assert getattr(capi, name) is not None
