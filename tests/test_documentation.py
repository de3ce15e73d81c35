"""The commands in the pages run, in the order in which they stand there; the site lists every page."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from capi.cli import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GENERATED = ("gallery", "reference")  # by make docs
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITH_COMMANDS = [page for page in sorted(DOCS.rglob("*.md")) if BLOCK.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_commands_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = "".join(BLOCK.findall(page.read_text(encoding="utf-8"))).splitlines()
    for line in filter(None, lines):
        program, *arguments = shlex.split(line, comments=True)
        if program == "python":
            subprocess.run([sys.executable, *arguments], check=True)
        else:
            assert program == "capi"
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0, (line, done.output, done.exception)


def test_code_blocks_are_run_or_are_not_code():
    """Python blocks are doctests, sh blocks run here; other blocks have no language, because no one checks them."""
    known = {"", "python", "sh", "toml", "sql", "json", "dockerfile", "{toctree}", "{include} ../../CHANGELOG.md"}
    for page in sorted(DOCS.rglob("*.md")):
        if page.parent.name in GENERATED:
            continue
        text = page.read_text(encoding="utf-8")
        assert all(">>> " in block for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)), (
            page
        )
        fences = re.findall(r"^```(.*)$", text, re.MULTILINE)
        assert {fence.strip() for fence in fences} <= known, page


def test_the_readme_is_short_and_its_picture_small():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
    assert (DOCS / "_static" / "report.png").stat().st_size < 150_000


def test_links_to_files_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]:
        for target in re.findall(
            r"\]\(([^)#\s]+)", re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        ):
            if not target.startswith(("http:", "https:", "mailto:")) and page.parent.name not in GENERATED:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
