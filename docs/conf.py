"""How the documentation site is built: make docs."""

import re
import sys
from pathlib import Path

from capi.experiments import NAMES, write_poster

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(Path(__file__).parent))  # for the extensions that begin with an underscore

project = "capi"
author = "The capi authors"
copyright = author
release = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)[1]

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "_accessible", "_gallery", "_mathml", "_reference"]
exclude_patterns = ["_build", "reproduction/*/records"]
suppress_warnings = ["myst.header"]  # pages that begin with a second-level heading

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
default_role = "py:obj"  # `Name` in a docstring is a link if the name is documented
autodoc_typehints = "none"  # the docstrings say it in words
autodoc_member_order = "groupwise"
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False
html_math_renderer = "mathml"

html_theme = "furo"  # system fonts, nothing from the network
html_title = f"capi {release}"
html_static_path = ["_static"]
html_css_files = ["capi.css"]
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None


POSTER = "poster.html"


def setup(app):
    """List pages of this folder that the index does not name under "Understand", so that a new page is never lost.

    Also write the poster of the committed records, which exists on the site alone, and link to it.
    """

    def add_unlisted(_, name, source):
        if name == "index":
            listed = set(re.findall(r"^[\w/-]+$", source[0], re.M))
            others = sorted({path.stem for path in Path(__file__).parent.glob("*.md")} - listed - {"index"})
            source[0] = source[0].replace("@unlisted", "\n".join(others))

    def link_poster(_, name, source):
        if name == "reproduction":
            link = f'`{POSTER}` (<a href="{POSTER}">that of the committed records</a>)'
            source[0] = source[0].replace(f"`{POSTER}`", link, 1)

    def add_poster(app, error):
        if error is None and app.builder.format == "html":
            write_poster({each: ROOT / "docs" / "reproduction" / each for each in NAMES}, Path(app.outdir) / POSTER)

    app.connect("source-read", add_unlisted)
    app.connect("source-read", link_poster)
    app.connect("build-finished", add_poster)
