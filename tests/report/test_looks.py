"""The page with names of 60 characters, 12 actions, 40 columns and trees of depth 3 to 6, on screens of four widths and on paper."""

import numpy as np
import pandas as pd
import pytest

from capi.policy_spaces.trees.greedy import Trees
from capi.runs import RunSettings
from report.tables import fitted, with_policy

WIDTHS = (390, 768, 1280, 1920)
NAME = "Serum concentration of an inflammatory marker, sample no. {:02d}"
ACTION = "Combination therapy {:02d} with the dose escalation of scheme {}"


@pytest.fixture(scope="module")
def long_names(tmp_path_factory):
    """A function from the depth of a tree to a run with long names."""
    rng, n, place = np.random.default_rng(0), 1500, tmp_path_factory.mktemp("long")
    frame = pd.DataFrame({NAME.format(j): rng.normal(size=n) * 10.0 ** (j % 4) for j in range(38)})
    frame["Ward to which the patient was admitted on arrival at hospital"] = rng.choice(
        [f"Department of internal medicine, ward {i}" for i in range(6)], n
    )
    frame["Known smoker according to the self-reported questionnaire"] = rng.random(n) < 0.4
    states = list(frame.columns)
    frame["action"] = rng.choice([ACTION.format(i, "ABCDEFGHIJKL"[i]) for i in range(12)], n)
    frame["gain"] = rng.normal(size=n)
    run = fitted(place, frame, {"state": states, "action": "action", "reward": "gain"}, max_depth=2)
    batch = RunSettings.from_toml(run / "settings.toml").batch()
    z = (batch.states - batch.states.mean(axis=0)) / batch.states.std(axis=0)
    values = np.stack(
        [sum(np.sin((k + 1) * z[:, (5 * a + k) % z.shape[1]]) for k in range(4)) for a in range(12)], axis=1
    )
    made = {}

    def of_depth(depth):
        if depth not in made:
            policy = Trees(max_depth=depth).improve(batch.states, values, rng=np.random.default_rng(0))
            made[depth] = with_policy(run, place / f"depth-{depth}", policy, batch)
        return made[depth]

    return of_depth


@pytest.mark.parametrize("depth", [3, 4])
def test_boxes_keep_comparison_and_threshold_and_tell_leaves_apart(depth, long_names, open_page, written):
    page = open_page(written(long_names(depth)))
    for box in page.locator(".tree .node.split").all():
        title = box.locator("title").text_content()
        shown = " ".join(box.locator("text").all_text_contents())
        name, sign, threshold = title.partition(" ≤ ")
        assert sign, title
        assert shown.endswith(f"≤ {threshold}")
        assert name[-2:] in shown, "names that differ at the end can be told apart"
    texts = {}
    for box in page.locator(".tree .node.leaf").all():
        title = box.locator("title").text_content().partition(" (")[0]
        texts.setdefault(title, " ".join(box.locator("text.strong").all_text_contents()))
    assert len(set(texts.values())) == len(texts) > 3
    inside = page.evaluate(
        """[...document.querySelectorAll('.tree .node')].every(node => {
            const box = node.querySelector('rect').getBoundingClientRect();
            return [...node.querySelectorAll('text')].every(t => {
                const r = t.getBoundingClientRect();
                return r.left >= box.left - 2 && r.right <= box.right + 2 && r.top >= box.top - 2 && r.bottom <= box.bottom + 2;
            });
        })"""
    )
    assert inside


@pytest.mark.parametrize("depth", [3, 4, 6])
def test_trees_and_tables_stay_within_the_page(depth, long_names, open_page, written):
    page = open_page(written(long_names(depth)))
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        drawn = depth < 5 and width > 1000
        assert page.locator(".tree").is_visible() if drawn else page.locator(".outline").is_visible()
        beyond = page.evaluate(
            """[...document.querySelectorAll('.picture, .outline')].filter(e => e.checkVisibility())
            .filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"""
        )
        assert beyond == 0, "no picture is cut"
    assert page.locator(".outline .leaf").count() == page.locator("#matters tbody tr").count()
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 700, "height": 900})
    right = page.evaluate(
        "Math.max(...[...document.querySelectorAll('table, .picture, .outline')].map(t => t.getBoundingClientRect().right))"
    )
    assert right <= 701


def test_conditions_of_leaves_are_shown_whole(long_names, open_page, written):
    page = open_page(written(long_names(4)))
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        cut = page.evaluate(
            "[...document.querySelectorAll('td.where .lines, .clip')].filter(e => e.scrollHeight > e.clientHeight + 1).length"
        )
        assert cut == 0
    texts = page.locator("#matters td.where").all_inner_texts()
    assert len(set(texts)) == len(texts)


def test_twelve_actions_have_twelve_colours_and_numbers(long_names, open_page, written):
    page = open_page(written(long_names(3)))
    colours = page.evaluate(
        "[...document.querySelectorAll('#data tbody .chip')].map(e => getComputedStyle(e).borderLeftColor)"
    )
    assert len(set(colours)) == len(colours) == 12
    assert page.locator("#data tbody .chip").all_inner_texts() == [str(i + 1) for i in range(12)]


def test_the_outline_follows_the_panel(long_names, open_page, written):
    page = open_page(written(long_names(6)))
    page.click("#next")
    assert page.locator(".outline .leaf.on").count() == 1
    first = page.locator(".outline .leaf.on").inner_text()
    assert page.inner_text("#decision .words").strip() in first
    page.locator(".outline summary").first.click()
    assert page.locator(".outline .leaf").first.is_hidden()


@pytest.mark.parametrize(
    ("kind", "scheme"), [("long names", "light"), ("long names", "dark"), ("forest", "dark"), ("tree", "light")]
)
def test_axe_finds_nothing_serious(kind, scheme, long_names, run_of, open_page, written, accessibility):
    run = long_names(4) if kind == "long names" else run_of(kind)[0]
    page = open_page(written(run, include_cases=kind == "tree"), color_scheme=scheme)
    for width in (1280, 390) if scheme == "light" else (390,):
        page.set_viewport_size({"width": width, "height": 900})
        assert accessibility(page) == []


def test_the_page_says_what_to_do_next(run_of, open_page, written):
    page = open_page(written(run_of("tree")[0]))
    text = page.inner_text("#next-steps")
    assert "capi evaluate RUN OTHER_TABLE" in text
    assert "capi predict RUN NEW_TABLE --out decisions.csv" in text
