"""The page with all figures, claims and verdicts."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from capi.experiments import overview as overviews
from capi.experiments import write_poster
from capi.experiments.comparison import Difference
from capi.experiments.experiment import Claim
from capi.experiments.overview import overview
from capi.experiments.poster import poster_of

REPRODUCTION = Path(__file__).parents[2] / "docs" / "reproduction"
needs_records = pytest.mark.skipif(not REPRODUCTION.exists(), reason="the records come with the repository only")


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in {"meta", "link", "img", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@needs_records
def test_it_has_every_figure_and_verdict_and_needs_nothing_else(tmp_path):
    names = ("chain", "pole")
    path = write_poster({name: REPRODUCTION / name for name in names}, tmp_path / "poster.html")
    page = Elements(path.read_text(encoding="utf-8"))
    assert page.open == []
    found = [overview(name, REPRODUCTION / name) for name in names]
    pictures = [attributes for tag, attributes in page.found if tag == "img"]
    assert len(pictures) == sum(len(one.figures()) for one in found)
    assert all(each["src"].startswith("data:image/png;base64,") and each["alt"] for each in pictures)
    words = " ".join(page.words)
    for one in found:
        for each in one.judgements:
            assert each.sentence.says in words
    addresses = [value for _, attributes in page.found for key, value in attributes.items() if key in {"src", "href"}]
    assert all(value.startswith(("data:", "#")) for value in addresses)
    assert not [tag for tag, _ in page.found if tag == "script"]
    targets = {attributes.get("id") for _, attributes in page.found}
    assert {value[1:] for value in addresses if value.startswith("#")} <= targets


@needs_records
def test_the_same_records_give_the_same_bytes(tmp_path):
    pages = [write_poster({"chain": REPRODUCTION / "chain"}, tmp_path / f"{i}.html").read_bytes() for i in range(2)]
    assert pages[0] == pages[1]


def test_without_a_finished_run_there_is_none(tmp_path):
    assert write_poster({"chain": tmp_path}, tmp_path / "poster.html") is None
    assert list(tmp_path.iterdir()) == []


def test_text_is_escaped_and_missing_intervals_are_empty():
    alone = Difference(1.5, None, None, None, 1, None)
    clear = Difference(2.5, 0.1, 2.25, 2.75, 9, True, "above 2", (2.3, 2.7))
    claim = Claim("<b>bold</b> with `code`", "", None, {}, {"one <seed>": alone, "many": clear})
    direct = Claim("Compared directly.", "", True, {"loss": {"capi": 0.5, "vi": None}})
    cost = overviews.Cost(1, 0.5, 1.0, 50, 25.0, ("a/b",))
    judged = overviews.judgements("theory", {"later": claim, "direct": direct})
    summary = ("Numbers", ["case"], [["<i>"]])
    group = overviews.Group("later", 3, 5, (((0, 1), ("x", "y")), ((0,), ("z",))))
    made = overviews.Overview(
        "theory",
        "claims",
        judged,
        {"later": claim},
        [],
        summary,
        [group],
        cost,
        {"capi 1.0 on z80": 5},
        {"numpy": "2.0"},
        ("A note.",),
    )
    object.__setattr__(made, "figures", dict)
    text = poster_of([made])
    assert "<b>bold" not in text
    assert "&lt;b&gt;bold" in text
    rows = re.findall(r"<tr><td class=\"n\">1</td><td class=\"part\">later.*?</tr>", text)
    assert ["2.25 to 2.75" in row and "above 2" in row and "2.3 to 2.7" in row for row in rows] == [False, True]
    assert "with <code>code</code>" in text
    assert "loss: capi 0.5, vi never" in text
    assert "0 to 1 (2 settings); 0 (z)" in text
    for words in (
        "capi 1.0 on z80 (5 runs)",
        "numpy 2.0",
        "A note.",
        "1 settings that never ran: a/b",
        "t interval of the mean",
    ):
        assert words in text
    assert "holds in part" in text
