"""Check a built documentation site: it asks nothing of the network, its links lead somewhere, and it has every public name.

python scripts/check_site.py docs/_build/html
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.util.inventory import InventoryFile

ROOT = Path(__file__).parent.parent
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("video", "src")}


class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.places = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Collect links, sources and ids."""
        given = dict(attrs)
        self.places |= {value for key, value in given.items() if key in ("id", "name") and value}
        self.links += [given["href"]] if tag == "a" and given.get("href") else []
        self.loaded += [
            given[key] for of, key in LOADED if tag == of and given.get(key) and given.get("rel") != "canonical"
        ]


def problems(site):
    """Return a sentence for each problem."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        here = path.relative_to(site)
        found += [f"{here} loads {url} from the network" for url in page.loaded if urlsplit(url).netloc]
        for url in [*page.links, *page.loaded]:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                found.append(f"{here} links to {url}, which does not exist")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                found.append(f"{here} links to {url}, a place that does not exist")
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        found += [
            f"{style.relative_to(site)} loads something from the network"
            for mark in ("url(http", "url(//", "@import")
            if mark in text
        ]
    return found + missing_names(site)


def missing_names(site):
    """Return a sentence for each public name that the reference lacks."""
    sys.path.insert(0, str(ROOT / "docs"))
    import _reference  # noqa: PLC0415  a module of the site

    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    known = {name for kind in inventory.data.values() for name in kind}
    names = [f"{module}.{name}" for module, listed in _reference.documented().items() for name in listed]
    return [f"the reference lacks {name}" for name in names if name not in known]


if __name__ == "__main__":
    found = problems(Path(sys.argv[1]).resolve())
    print("\n".join(found) or "the site is complete")
    sys.exit(bool(found))
