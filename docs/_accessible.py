"""Make the pages usable with a keyboard and a screen reader where the theme does not."""

from pathlib import Path
from typing import Any

MENDED = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Site">',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    '<div id="search-results">': '<h1>Search</h1><div id="search-results">',
    "<pre>": '<pre tabindex="0">',  # wide ones scroll
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    '<div class="formula">': '<div tabindex="0" class="formula">',
}


def mend(app: Any, error: Exception | None) -> None:
    """Replace these elements in all pages that were written."""
    if error is not None or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        text = mended = page.read_text(encoding="utf-8")
        for old, new in MENDED.items():
            mended = mended.replace(old, new)
        if mended != text:
            page.write_text(mended, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Run after the pages were written."""
    app.connect("build-finished", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
