"""The gallery: its notebooks run from the first cell to the last, show pictures, and say what the data cannot tell."""

import contextlib
import importlib.util
import io
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "gallery").glob("*.py"))
QUICK = {"04_heart_transplants", "06_chain"}  # the others take 5 to 25 seconds; make docs runs all of them
spec = importlib.util.spec_from_file_location("_gallery", ROOT / "docs" / "_gallery.py")
gallery = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gallery)


def runs(path):
    return pytest.param(path, id=path.stem, marks=[] if path.stem in QUICK else [pytest.mark.slow])


@pytest.mark.parametrize("path", [runs(path) for path in SCRIPTS])
def test_a_notebook_runs_and_shows_a_picture(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(json.dumps(gallery.notebook_of(path.read_text(encoding="utf-8"))))
    names, pictures = {"__name__": "__main__"}, 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            pictures += hasattr(gallery.run(cell["source"], names)[1], "savefig")
    assert pictures >= 1


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_where_its_data_come_from_and_what_they_cannot_tell(path):
    words = [text for kind, text in gallery.cells_of(path.read_text(encoding="utf-8")) if kind == "markdown"]
    assert words[0].startswith("# ")
    assert "cannot tell**" in words[-1]
    assert any(word in words[0] for word in ("*Simulated data", "*Real data*", "*A known model.*", "*A simulator.*"))


def test_there_are_ten_and_three_on_real_tables_with_a_licence():
    texts = [path.read_text(encoding="utf-8") for path in SCRIPTS]
    assert len(texts) >= 10
    real = [text for text in texts if "*Real data*" in text]
    assert len(real) >= 3
    assert all("licence" in text for text in real)


def test_a_cell_gives_what_it_prints_and_its_last_value():
    assert gallery.run("x = 2\nprint(x)\nx + 1", {}) == ("2\n", 3)
    with contextlib.redirect_stdout(io.StringIO()) as outside:
        gallery.run("print('inside')", {})
    assert outside.getvalue() == ""
