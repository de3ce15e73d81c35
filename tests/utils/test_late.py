"""Late imports: nothing before it is needed, and everything that type checkers are told."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

import capi
from capi._utils.late import late, lazy_exports

ROOT = Path(capi.__file__).parent
NOTHING = "nothing"
LAZY = [path for path in sorted(ROOT.rglob("__init__.py")) if "lazy_exports(" in path.read_text()]


def test_a_late_module_is_imported_with_its_first_attribute(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    module = late("colorsys")
    assert not hasattr(module, "__wrapped__")  # what doctest asks of everything
    assert "colorsys" not in sys.modules
    assert module.rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)
    assert "colorsys" in sys.modules


def test_submodules_of_a_late_module_are_imported_too(monkeypatch):
    monkeypatch.delitem(sys.modules, "xml.sax.saxutils", raising=False)
    assert late("xml.sax").saxutils.escape("<") == "&lt;"


def test_what_a_late_module_does_not_have_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        getattr(late("colorsys"), NOTHING)
    with pytest.raises(AttributeError, match="nothing"):
        getattr(late("xml"), NOTHING)


def test_a_late_module_that_is_not_installed_is_an_import_error():
    with pytest.raises(ImportError, match="no_such_library"):
        getattr(late("no_such_library"), NOTHING)


def test_lazy_exports_find_names_and_parts_and_list_them():
    names, found, listed = lazy_exports("capi", {"CAPI": "learning.capi"}, ["loss"])
    assert names == ["CAPI"]
    assert found("CAPI") is capi.CAPI
    assert found("loss") is importlib.import_module("capi.loss")
    assert {"CAPI", "loss", "__version__"} <= set(listed())
    assert all(name in ("CAPI", "loss") or name.startswith("__") for name in listed())
    with pytest.raises(AttributeError, match="module 'capi' has no attribute 'nothing'"):
        found("nothing")


def told_to_type_checkers(path):
    """Return the names that are imported under TYPE_CHECKING, with the modules that they come from."""
    block = next(node for node in ast.parse(path.read_text()).body if isinstance(node, ast.If))
    return {alias.asname: node.module for node in block.body for alias in node.names}


def exported(path):
    """Return the names that `lazy_exports` is given, with the modules that they come from."""
    package = ".".join(path.parent.relative_to(ROOT.parent).parts)
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    call = next(call for call in calls if getattr(call.func, "id", "") == "lazy_exports")
    homes = {name: f"{package}.{home}" for name, home in ast.literal_eval(call.args[1]).items()}
    parts = [ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg == "parts"]
    return homes | {name: package for names in parts for name in names}


@pytest.mark.parametrize("path", LAZY, ids=lambda path: path.parent.name)
def test_type_checkers_are_told_what_is_exported(path):
    assert told_to_type_checkers(path) == exported(path)
    module = importlib.import_module(".".join(path.parent.relative_to(ROOT.parent).parts))
    for name in exported(path):
        assert getattr(module, name) is not None
    assert not {home.rsplit(".")[-1] for home in exported(path).values()} & set(module.__all__), "a module hides a name"


def test_the_packages_are_the_ones_that_are_lazy():
    names = {path.parent.name for path in LAZY}
    assert {"capi", "baselines", "domains", "evaluators", "files", "policy_spaces", "runs"} <= names


def test_no_function_imports():
    """One way of importing late; whoever reaches up is registered from above."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = [part for part in ast.walk(node) if isinstance(part, ast.Import | ast.ImportFrom)]
                assert not inner, f"{path}: {node.name}"
