"""Write the pages of the API reference: every public name of the modules that docs/api.md lists, from its docstring."""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
FOLDER = DOCS / "reference"
NOT_OURS = "set_fit_request, set_score_request, set_predict_request, get_metadata_routing"  # scikit-learn's


def modules() -> list[str]:
    """Return the modules that docs/api.md lists in its headings."""
    headings = re.findall(r"^## (.+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    return [name for heading in headings for name in re.findall(r"`(capi[\w.]*)`", heading)]


def names_of(module: str) -> list[str]:
    """Return the public names of a module: those it exports or, if it does not say, those it defines."""
    found = importlib.import_module(module)
    if hasattr(found, "__all__"):
        return sorted(found.__all__)
    homes = {name: str(getattr(thing, "__module__", None)) for name, thing in vars(found).items()}
    return sorted(
        n for n, home in homes.items() if not n.startswith("_") and (home == module or home.startswith(f"{module}."))
    )


def documented() -> dict[str, list[str]]:
    """Return the names that each module's page documents: its public names without those of an earlier page."""
    seen: set[int] = set()
    found: dict[str, list[str]] = {}
    for module in modules():
        things = {name: getattr(importlib.import_module(module), name) for name in names_of(module)}
        found[module] = [
            name for name, thing in things.items() if id(thing) not in seen and not inspect.ismodule(thing)
        ]
        seen |= {id(thing) for thing in things.values() if callable(thing)}
    return found


def _entry(module: str, name: str) -> str:
    thing = getattr(importlib.import_module(module), name)
    kind = "class" if inspect.isclass(thing) else "function" if inspect.isroutine(inspect.unwrap(thing)) else "data"
    if kind == "data":
        return f".. py:data:: {module}.{name}\n   :value: {str(thing)[:200]}\n\n"
    options = f"   :members:\n   :exclude-members: {NOT_OURS}\n" if kind == "class" else ""
    return f".. auto{kind}:: {module}.{name}\n{options}\n"


def _page(module: str, names: list[str]) -> str:
    first = (inspect.getdoc(importlib.import_module(module)) or "").split("\n\n")[0]
    body = "".join(_entry(module, name) for name in names)
    return f"# `{module}`\n\n{first}\n\n```{{eval-rst}}\n{body}```\n"


def _index() -> str:
    listed = "\n".join(modules())
    return f"# All names, from their docstrings\n\n[The short list](../api.md) says in one line what each is for.\n\n```{{toctree}}\n{listed}\n```\n"


def write(*_: Any) -> None:
    """Write one page per module, and the list of them; files that would not change are left alone."""
    FOLDER.mkdir(exist_ok=True)
    pages = {"index": _index(), **{module: _page(module, names) for module, names in documented().items()}}
    for old in FOLDER.glob("*.md"):
        if old.stem not in pages:
            old.unlink()
    for name, text in pages.items():
        path = FOLDER / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Write the pages before Sphinx looks for them."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
