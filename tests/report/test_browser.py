"""The page in a browser: its panel decides as the policy does, nothing hostile runs, and it fits on small screens."""

import datetime

import numpy as np
import pandas as pd
import pytest

from capi.files.exports.program import program_of
from capi.policy_spaces.trees.greedy import Trees
from capi.report import report_record
from capi.report.sources import read_sources
from capi.runs import RunSettings
from report.tables import fitted, states, with_policy

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
def test_the_panel_decides_as_the_policy(kind, run_of, open_page, written):
    """Through the documented entry, for hundreds of states: missing values, categories, booleans and dates among them."""
    run, policy, batch = run_of(kind)
    page = open_page(written(run))
    frame = states(300, 99, missing=kind not in WITHOUT_GAPS)
    expected = policy.act(batch.schema.encode(frame))
    assert len(set(expected.tolist())) > 1
    assert page.evaluate("capiReport.exact")
    np.testing.assert_array_equal(page.evaluate(DECIDE, rows_for(page, frame)), expected)


def test_an_imitated_policy_is_labelled_and_decides_as_its_tree(run_of, open_page, written):
    run, _, batch = run_of("neighbors")
    page = open_page(written(run))
    shown = read_sources(run).shown
    frame = states(300, 99, missing=False)
    leaves = shown.tree.leaf_of(batch.schema.encode(frame))
    assert page.evaluate(DECIDE, rows_for(page, frame)) == [shown.tree.actions[leaf][0] for leaf in leaves]
    assert not page.evaluate("capiReport.exact")
    assert f"{100 * shown.fidelity:.1f} %" in page.inner_text("#panel")
    assert 0.5 < shown.fidelity < 1


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
def test_the_real_controls_lead_to_the_same_decisions(kind, run_of, open_page, written):
    run, policy, batch = run_of(kind)
    record = report_record(run)["panel"]
    page = open_page(written(run))
    frame = states(4, 5, missing=kind not in WITHOUT_GAPS)
    expected = batch.schema.labels_of(policy.act(batch.schema.encode(frame)))
    for (_, row), label in zip(frame.iterrows(), expected, strict=True):
        set_through_controls(page, record, row)
        assert page.inner_text("#decision").strip() == label


def test_sliders_keys_examples_and_the_drawn_path(run_of, open_page, written):
    run, _, _ = run_of("tree")
    record = report_record(run)["panel"]
    page = open_page(written(run))
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


def test_votes_and_scores_are_shown(run_of, open_page, written):
    for kind, words in (("forest", "Votes of the 9 trees"), ("linear", "Scores: the highest wins")):
        page = open_page(written(run_of(kind)[0]))
        assert words in page.inner_text("#why")
        assert page.locator("#why .bars li").count() == 3


def test_a_cut_says_what_it_needs(run_of, open_page, written):
    page = open_page(written(run_of("thresholds")[0]))
    assert "age is missing" in page.evaluate("capiReport.decide([null]).error")


def test_the_nearest_cases_are_those_of_the_table(run_of, open_page, written):
    run, _, batch = run_of("linear")
    page = open_page(written(run, include_cases=True))
    state = batch.schema.decode(batch.states[17:18])
    record = report_record(run, include_cases=True)["panel"]
    row = {name: pd.Timestamp(column[0]) if column.dtype.kind == "M" else column[0] for name, column in state.items()}
    set_through_controls(page, record, row)
    cells = page.locator("#case-table tbody tr").first.locator("td").all_inner_texts()
    assert cells[-2] == batch.schema.action_labels[batch.actions[17]]
    assert float(cells[-1].replace(",", "").replace("\N{MINUS SIGN}", "-")) == pytest.approx(
        batch.rewards[17], rel=1e-3
    )
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


def test_hostile_names_do_nothing_and_can_be_read(hostile, open_page, written):
    page = open_page(written(hostile, include_cases=True))
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
def test_nothing_is_wider_than_the_screen(kind, hostile, run_of, open_page, written):
    page = open_page(written(hostile if kind == "hostile" else run_of(kind)[0], include_cases=True))
    for width in (1200, 360):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def brightness(page):
    colours = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    return sum(colours[:3]) / 3


def test_light_dark_and_paper(run_of, open_page, written):
    path = written(run_of("tree")[0])
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


def test_without_javascript_the_rest_can_be_read(run_of, browser, written):
    page = browser.new_page(java_script_enabled=False)
    page.goto(written(run_of("tree")[0]).as_uri())
    assert "What was learned" in page.inner_text("body")
    assert "needs JavaScript" in page.inner_text("#panel")
    page.close()


def test_every_control_has_a_name(run_of, open_page, written):
    page = open_page(written(run_of("forest")[0]))
    unnamed = page.evaluate(
        """[...document.querySelectorAll('input, select, button, svg[role=img]')]
        .filter(e => !(e.ariaLabel || e.textContent.trim() || (e.labels && e.labels.length))).length"""
    )
    assert unnamed == 0


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A run on points in time with microseconds, before 1970 too, rare and unseen words, and two scales; all of them matter."""
    rng = np.random.default_rng(3)
    n = 400
    point = pd.Timestamp("1955-03-04 05:06:07") + pd.to_timedelta(rng.integers(0, 10**15, n), "us")
    words = np.array(["", "x" * 299 + "aa", "x" * 299 + "bb", *(f"w{i}" for i in range(24))])
    word = words[rng.integers(0, len(words), n)]
    word[:3] = "Jane Doe"
    frame = pd.DataFrame({"when": point, "word": word, "small": rng.normal(size=n), "large": rng.normal(size=n) * 1e6})
    frame["do"] = rng.choice(["a", "b"], n)
    frame["gain"] = rng.normal(size=n)
    roles = {"state": ["when", "word", "small", "large"], "action": "do", "reward": "gain"}
    run = fitted(tmp_path_factory.mktemp("odd"), frame, roles, max_depth=3)
    batch = RunSettings.from_toml(run / "settings.toml").batch()
    x = batch.states
    values = np.stack(
        [np.sin(x[:, 0]) + np.cos(x[:, 1]) + np.sin(x[:, 2]) + np.sin(x[:, 3] / 1e5), np.zeros(n)], axis=1
    )
    policy = Trees(max_depth=7).improve(x, values)
    return with_policy(run, run.parent / "odd", policy, batch), policy, batch, frame


def test_points_in_time_are_compared_to_the_microsecond(odd, open_page, written):
    run, policy, batch, frame = odd
    page = open_page(written(run))
    tree = program_of(read_sources(run).policy).trees[0]
    cuts = [t for j, t in zip(tree.feature, tree.at_most, strict=True) if j == 0]
    assert cuts
    origin = batch.schema.columns[0].origin_microseconds
    points = [origin + int(np.floor(t * 86_400_000_000)) + d for t in cuts for d in range(-3, 4)]
    rows = pd.concat([frame.iloc[[i % len(frame)]] for i in range(len(points))], ignore_index=True)
    rows["when"] = np.array(points, dtype="datetime64[us]")
    expected = policy.act(batch.schema.encode(rows))
    rows = rows[rows["word"] != "Jane Doe"].copy()
    rows["when"] = [str(np.datetime64(int(p), "us")) for p in np.array(points)[rows.index]]
    names = page.evaluate("capiReport.columns")
    sent = [[plain(value) for value in row] for row in rows[names].astype(object).itertuples(index=False)]
    found = page.evaluate(
        "rows => rows.map(row => { const d = capiReport.decide(row); return d.error ? -1 : d.index; })", sent
    )
    shown = np.array(found) >= 0  # two words of 301 letters cannot be told apart
    assert shown.mean() > 0.8
    np.testing.assert_array_equal(np.array(found)[shown], expected[rows.index][shown])


def test_every_category_can_be_chosen_and_wrong_values_are_errors(odd, open_page, written):
    run, policy, batch, _ = odd
    page = open_page(written(run))
    names = page.evaluate("capiReport.columns")
    i = names.index("word")
    texts = page.locator(f"#c{i}-value option").all_inner_texts()
    column = batch.schema.columns[1]
    assert len(texts) == len(set(texts)) == len(column.values)
    assert "''" in texts
    assert "Jane Doe" not in page.content()
    assert "word not in ''" in page.content() or "word in ''" in page.content()
    assert column.rest, "rare words are one category"
    row = {**dict.fromkeys(names, 0.0), "when": "2000-01-01T00:00:00"}
    states = batch.schema.encode(pd.DataFrame([{**row, "when": pd.Timestamp("2000-01-01"), "word": "Jane Doe"}]))
    decided = page.evaluate("row => capiReport.decide(row).index", {**row, "word": column.values[-1]})
    assert decided == policy.act(states)[0]
    wrong = [
        {"word": "nobody"},
        {"when": "2021-02-30"},
        {"when": "soon"},
        {"small": "1"},
        {"small": True},
        {"when": "2021-01-01T24:00"},
    ]
    for change in wrong:
        answer = page.evaluate("row => capiReport.decide(row)", {**row, "word": "", **change})
        assert answer["action"] is None
        assert next(iter(change)) in answer["error"]
    assert page.evaluate("row => capiReport.decide(row).error", {**row, "word": ""}) is None


def test_nearest_cases_are_scaled_by_their_spread(odd, open_page, written):
    """Else the column in millions would decide alone."""
    run, _, batch, _ = odd
    page = open_page(written(run, include_cases=True))
    names = page.evaluate("capiReport.columns")
    row = {"when": "1980-06-01T00:00:00", "small": 3.0, "large": 0.0}
    for name, value in row.items():
        page.fill(f"#c{names.index(name)}-value", str(value))
    page.select_option(f"#c{names.index('word')}-value", label="w7")
    state = batch.schema.encode(pd.DataFrame([{**row, "when": pd.Timestamp(row["when"]), "word": "w7"}]))
    distance = (((batch.states - state) / batch.states.std(axis=0)) ** 2).sum(axis=1)
    cells = page.locator("#case-table tbody tr").first.locator("td").all_inner_texts()
    assert float(cells[-1].replace("\N{MINUS SIGN}", "-")) == pytest.approx(batch.rewards[distance.argmin()], rel=1e-3)


def test_one_key_is_one_step(odd, open_page, written):
    run = odd[0]
    record = report_record(run)["panel"]
    page = open_page(written(run))
    i = next(i for i, column in enumerate(record["columns"]) if column["name"] == "small")
    column = record["columns"][i]
    page.focus(f"#c{i}-range")
    page.keyboard.press("Home")
    for k in (1, 2, 3):
        page.keyboard.press("ArrowRight")
        assert float(page.input_value(f"#c{i}-value")) == pytest.approx(column["low"] + k * column["step"], abs=1e-9)


def test_fingers_find_the_controls_and_paper_holds_the_tables(odd, browser, written):
    path = written(odd[0])
    page = browser.new_page(viewport={"width": 360, "height": 700}, has_touch=True, is_mobile=True)
    page.goto(path.as_uri())
    assert (
        page.evaluate("Math.min(...[...document.querySelectorAll('nav a')].map(a => a.getBoundingClientRect().height))")
        >= 40
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("document.querySelector('input[type=range]').getBoundingClientRect().height") >= 24
    assert page.evaluate("getComputedStyle(document.querySelector('input[type=range]')).appearance") == "none"
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 700, "height": 900})
    assert (
        page.evaluate("Math.max(...[...document.querySelectorAll('table')].map(t => t.getBoundingClientRect().right))")
        <= 700
    )
    page.close()
