"""The page in a browser: its panel decides as the policy does, nothing hostile runs, and it fits on small screens."""

import datetime

import numpy as np
import pandas as pd
import pytest

from capi.report import report_record, write_report
from report.tables import fitted, states

EXACT = [
    "tree",
    "large tree",
    "forest",
    "thresholds",
    "linear",
    "constrained",
    "constrained forest",
    "constrained linear",
]
WITHOUT_GAPS = ("thresholds", "linear", "neighbors", "constrained linear")
DECIDE = "rows => rows.map(row => capiReport.decide(row).index)"
HOSTILE = {
    "script": "</script><script>window.hacked=1</script>",
    "image": '"><img src=x onerror=window.hacked=1>',
    "braces": "{{7*7}}",
    "prototype": "__proto__",
    "long": "a very long name " * 30,
    "marks": "\u202eright to left\u2028 \u2029 🙂 '\"`${1}<!--",
}


def plain(value):
    """Return a cell as the page's entry takes it."""
    if value is None or value is pd.NaT or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    if isinstance(value, datetime.date | datetime.datetime):
        return value.isoformat()
    return value.item() if isinstance(value, np.generic) else value


def rows_for(page, frame):
    """Return the rows of a table in the order of the page's columns."""
    names = page.evaluate("capiReport.columns")
    return [[plain(value) for value in row] for row in frame[names].astype(object).itertuples(index=False)]


@pytest.mark.parametrize("kind", EXACT)
def test_the_panel_decides_as_the_policy(kind, run_of, open_page, tmp_path):
    """Through the documented entry, for hundreds of states: missing values, categories, booleans and dates among them."""
    run, policy, batch = run_of(kind)
    page = open_page(write_report(run, tmp_path / "r.html"))
    frame = states(300, 99, missing=kind not in WITHOUT_GAPS)
    expected = policy.act(batch.schema.encode(frame))
    assert len(set(expected.tolist())) > 1
    assert page.evaluate("capiReport.exact")
    np.testing.assert_array_equal(page.evaluate(DECIDE, rows_for(page, frame)), expected)


def test_an_imitated_policy_is_labelled_and_decides_as_its_tree(run_of, open_page, tmp_path):
    from capi.report.sources import read_sources

    run, _, batch = run_of("neighbors")
    page = open_page(write_report(run, tmp_path / "r.html"))
    told = read_sources(run).told
    frame = states(300, 99, missing=False)
    leaves = told.tree.leaf_of(batch.schema.encode(frame))
    assert page.evaluate(DECIDE, rows_for(page, frame)) == [told.tree.actions[leaf][0] for leaf in leaves]
    assert not page.evaluate("capiReport.exact")
    assert f"{100 * told.fidelity:.1f} %" in page.inner_text("#panel")
    assert 0.5 < told.fidelity < 1


def set_through_controls(page, record, row):
    """Set the panel's real controls to a row of a table."""
    for i, column in enumerate(record["columns"]):
        value = plain(row[column["name"]])
        if column["missing"]:
            page.set_checked(f"#c{i}-missing", value is None)
        if value is None:
            continue
        if column["kind"] == "boolean":
            page.set_checked(f"#c{i}-value", value)
        elif "values" in column:
            page.select_option(f"#c{i}-value", label=str(value))
        else:
            text = repr(value) if column["kind"] == "number" else str(value)[: 10 if column["whole_days"] else 19]
            page.fill(f"#c{i}-value", text)


@pytest.mark.parametrize("kind", ["tree", "linear"])
def test_the_real_controls_lead_to_the_same_decisions(kind, run_of, open_page, tmp_path):
    run, policy, batch = run_of(kind)
    record = report_record(run)["panel"]
    page = open_page(write_report(run, tmp_path / "r.html"))
    frame = states(4, 5, missing=kind not in WITHOUT_GAPS)
    expected = batch.schema.labels_of(policy.act(batch.schema.encode(frame)))
    for (_, row), label in zip(frame.iterrows(), expected, strict=True):
        set_through_controls(page, record, row)
        assert page.inner_text("#decision").strip() == label


def test_sliders_keys_examples_and_the_drawn_path(run_of, open_page, tmp_path):
    run, _, _ = run_of("tree")
    record = report_record(run)["panel"]
    page = open_page(write_report(run, tmp_path / "r.html"))
    i = next(i for i, column in enumerate(record["columns"]) if column["kind"] == "number")
    page.focus(f"#c{i}-range")
    page.keyboard.press("End")
    assert float(page.input_value(f"#c{i}-value")) == record["columns"][i]["high"]
    page.keyboard.press("Home")
    assert float(page.input_value(f"#c{i}-value")) == record["columns"][i]["low"]
    seen = set()
    for _ in record["examples"]:
        page.click("#next")
        seen.add(page.inner_text("#decision").strip())
        assert page.locator(".tree .node.leaf.on").count() == 1
        assert page.locator("#why .path li").count() == page.locator(".tree .node.on").count()
    assert len(seen) > 1
    page.click("#typical")
    assert page.inner_text("#decision").strip() in record["actions"]
    page.fill(f"#c{i}-value", "")
    assert "Set " in page.inner_text("#why")


def test_votes_and_scores_are_shown(run_of, open_page, tmp_path):
    for kind, words in (("forest", "Votes of the 9 trees"), ("linear", "Scores: the largest wins")):
        page = open_page(write_report(run_of(kind)[0], tmp_path / "r.html"))
        assert words in page.inner_text("#why")
        assert page.locator("#why .bars li").count() == 3


def test_a_cut_says_what_it_needs(run_of, open_page, tmp_path):
    page = open_page(write_report(run_of("thresholds")[0], tmp_path / "r.html"))
    assert "age is missing" in page.evaluate("capiReport.decide([null]).error")


def test_the_nearest_cases_are_those_of_the_table(run_of, open_page, tmp_path):
    run, _, batch = run_of("linear")
    page = open_page(write_report(run, tmp_path / "r.html", include_cases=True))
    state = batch.schema.decode(batch.states[17:18])
    record = report_record(run, include_cases=True)["panel"]
    row = {name: pd.Timestamp(column[0]) if column.dtype.kind == "M" else column[0] for name, column in state.items()}
    set_through_controls(page, record, row)
    cells = page.locator("#case-table tbody tr").first.locator("td").all_inner_texts()
    assert cells[-2] == batch.schema.action_labels[batch.actions[17]]
    assert float(cells[-1].replace(",", "")) == pytest.approx(batch.rewards[17], rel=1e-3)
    assert page.locator("#case-table tbody tr").count() == 5


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A run in which everything that can have a name has a hostile one."""
    rng = np.random.default_rng(0)
    n, names = 600, list(HOSTILE.values())
    frame = pd.DataFrame({name: rng.normal(size=n) for name in names})
    frame["kind {{7*7}}"] = rng.choice(names, n)
    frame[HOSTILE["image"] + " action"] = rng.choice(names, n)
    frame["gain"] = frame[names[0]] * (frame.iloc[:, -1] == names[1]) + rng.normal(size=n) / 9
    frame["gain"] += (frame["kind {{7*7}}"] == names[2]) * (frame.iloc[:, -2] == names[3])
    roles = {"state": [*names, "kind {{7*7}}"], "action": HOSTILE["image"] + " action", "reward": "gain"}
    return fitted(tmp_path_factory.mktemp("hostile"), frame, roles, "forests", n_trees=3, min_samples_leaf=5)


def test_hostile_names_do_nothing_and_can_be_read(hostile, open_page, tmp_path):
    page = open_page(write_report(hostile, tmp_path / "r.html", include_cases=True))
    page.click("#next")
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.images.length") == 0
    assert page.evaluate("document.scripts.length") == 2
    text = page.inner_text("body")
    for name in ("script", "image", "braces", "prototype"):
        assert HOSTILE[name] in text
    assert "49" not in page.inner_text("#h-panel + p")
    names = page.evaluate("capiReport.columns")
    assert set(names) <= {*HOSTILE.values(), "kind {{7*7}}"}
    assert page.evaluate("({}).polluted") is None
    assert page.evaluate("capiReport.decide(JSON.parse('{\"__proto__\": 3}')).action") in HOSTILE.values()


@pytest.mark.parametrize("kind", ["hostile", "tree"])
@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_is_wider_than_the_screen(kind, width, hostile, run_of, open_page, tmp_path):
    run = hostile if kind == "hostile" else run_of(kind)[0]
    page = open_page(
        write_report(run, tmp_path / "r.html", include_cases=True), viewport={"width": width, "height": 700}
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def brightness(page):
    colours = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    return sum(colours[:3]) / 3


def test_light_dark_and_paper(run_of, open_page, tmp_path):
    path = write_report(run_of("tree")[0], tmp_path / "r.html")
    assert brightness(open_page(path, color_scheme="light")) > 240
    page = open_page(path, color_scheme="dark")
    assert brightness(page) < 60
    page.click("#theme")
    assert brightness(page) > 240
    page.click("#theme")
    assert brightness(page) < 60
    page.emulate_media(media="print")
    assert brightness(page) > 240
    assert not page.is_visible("#panel")
    assert page.is_visible("#learned")
    assert page.pdf().startswith(b"%PDF")


def test_without_javascript_the_rest_can_be_read(run_of, browser, tmp_path):
    page = browser.new_page(java_script_enabled=False)
    page.goto(write_report(run_of("tree")[0], tmp_path / "r.html").as_uri())
    assert "What was learned" in page.inner_text("body")
    assert "needs JavaScript" in page.inner_text("#panel")
    page.close()


def test_every_control_has_a_name(run_of, open_page, tmp_path):
    page = open_page(write_report(run_of("forest")[0], tmp_path / "r.html"))
    unnamed = page.evaluate(
        """[...document.querySelectorAll('input, select, button, svg[role=img]')]
        .filter(e => !(e.ariaLabel || e.textContent.trim() || (e.labels && e.labels.length))).length"""
    )
    assert unnamed == 0
