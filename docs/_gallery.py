"""The gallery: run the scripts of gallery/ cell by cell, and write a page with outputs and pictures, and a notebook, for each.

A script is in the percent format: "# %% [markdown]" begins a cell of text in comments, "# %%" one of code. A figure that a cell ends
with is its picture, as in a notebook. Scripts whose page is up to date are not run again.
"""

import ast
import contextlib
import hashlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
SCRIPTS = DOCS.parent / "gallery"
FOLDER = DOCS / "gallery"


def cells_of(script: str) -> list[tuple[str, str]]:
    """Return the cells of a script: (kind, text), where kind is "markdown" or "code"."""
    found = []
    for part in re.split(r"^# %%", script, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        if "[markdown]" in head:
            found.append(
                ("markdown", "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()))
            )
        elif body.strip():
            found.append(("code", body.strip()))
    return found


def notebook_of(script: str) -> dict[str, Any]:
    """Return a notebook of a script, without outputs; cells have fixed ids, so that the same script gives the same bytes."""
    cells = []
    for number, (kind, text) in enumerate(cells_of(script)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text}
        cells.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def run(code: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell, and return what it printed and the value of its last expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return printed.getvalue(), value


def page_of(name: str, script: str, folder: Path) -> str:
    """Run a script, write its pictures to a folder, and return its page."""
    parts, names, pictures = [], {"__name__": "__main__"}, 0
    for kind, text in cells_of(script):
        if kind == "markdown":
            parts.append(text)
            continue
        printed, value = run(text, names)
        parts.append(f"```python\n{text}\n```")
        if printed.strip():
            parts.append(f"```text\n{printed.rstrip()}\n```")
        if hasattr(value, "savefig"):
            pictures += 1
            value.savefig(folder / f"{name}-{pictures}.png", dpi=100)
            parts.append(f"![{_alternative(text)}]({name}-{pictures}.png)")
    parts.append(f"{{download}}`The notebook <{name}.ipynb>`")
    return "\n\n".join(parts) + "\n"


def _alternative(code: str) -> str:
    """Return words for a picture, for those who cannot see it: the call that drew it."""
    return f"The figure of {code.strip().splitlines()[-1]}".replace("[", "(").replace("]", ")")


def write(*_: Any) -> None:
    """Write the pages, pictures and notebooks of all scripts that have changed."""
    FOLDER.mkdir(exist_ok=True)
    scripts = sorted(SCRIPTS.glob("*.py"))
    for path in scripts:
        script = path.read_text(encoding="utf-8")
        page, mark = FOLDER / f"{path.stem}.md", FOLDER / f".{path.stem}.sha256"
        digest = hashlib.sha256(script.encode()).hexdigest()
        if page.exists() and mark.exists() and mark.read_text() == digest:
            continue
        notebook = json.dumps(notebook_of(script), indent=1, ensure_ascii=False) + "\n"
        (FOLDER / f"{path.stem}.ipynb").write_text(notebook, encoding="utf-8")
        page.write_text(page_of(path.stem, script, FOLDER), encoding="utf-8")
        mark.write_text(digest)
    (FOLDER / "index.md").write_text(_index(scripts), encoding="utf-8")


def _index(scripts: list[Path]) -> str:
    listed = "\n".join(path.stem for path in scripts)
    words = "Each page is a script of `gallery/`, run when this site was built; the notebook of each can be downloaded from its page."
    return f"# Gallery\n\n{words}\n\n```{{toctree}}\n{listed}\n```\n"


def setup(app: Any) -> dict[str, Any]:
    """Write the pages before Sphinx looks for them."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
