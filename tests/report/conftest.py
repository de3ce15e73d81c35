"""Small runs to report on, and one browser for all tests."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from capi.policies import Training, described
from capi.policy_spaces import Constrained, Forests, Linear, Neighbors, Thresholds, Trees
from capi.policy_spaces.rules import Never, Only
from capi.report import write_report
from capi.runs import RunSettings
from report.tables import fitted, visits, with_policy

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 300_000  # milliseconds; only a failure takes that long, on a busy machine too


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """Runs on the table with missing values and on the one without: {missing: folder}."""
    place = tmp_path_factory.mktemp("base")
    return {missing: fitted(place / str(missing), visits(missing), max_depth=3) for missing in (True, False)}


@pytest.fixture(scope="session")
def run_of(base, tmp_path_factory):
    """A function from the name of a kind of policy to the folder of its run, its policy and its batch."""
    place, made = tmp_path_factory.mktemp("kinds"), {}

    def make(kind):
        if kind in made:
            return made[kind]
        missing = kind not in ("thresholds", "linear", "neighbors", "constrained linear")
        settings = RunSettings.from_toml(base[missing] / "settings.toml")
        batch = settings.batch()
        rng = np.random.default_rng(7)
        values = rng.normal(size=(len(batch), 3)) * 0.3
        x = np.nan_to_num(batch.states, nan=0.7)
        values[:, 1] += np.sin(x[:, 0] / 9) + x[:, 3] - 0.6 * (x[:, 5] > 12) + np.cos(x[:, -2] / 200)
        values[:, 2] += np.log10(np.abs(x[:, 1]) + 1e-3) - x[:, 6] + np.sin(x[:, -1] / 90)
        rules = [
            Never("low", when="age > 55", if_missing=True),
            Only(["none", "low"], when="sex=male >= 1 and dose <= 0.5"),
        ]
        spaces = {
            "tree": Trees(max_depth=4),
            "large tree": Trees(max_depth=9),
            "forest": Forests(n_trees=9, min_samples_leaf=4),
            "combined forest": Forests(n_trees=9, min_samples_leaf=4, projections=5),
            "thresholds": Thresholds(feature=0),
            "linear": Linear(),
            "neighbors": Neighbors(),
            "constrained": Constrained(Trees(max_depth=4), rules, batch.schema),
            "constrained forest": Constrained(Forests(n_trees=5, min_samples_leaf=4), rules, batch.schema),
            "constrained linear": Constrained(Linear(), rules, batch.schema),
        }
        policy = spaces[kind].improve(batch.states, values, rng=np.random.default_rng(0))
        folder = with_policy(base[missing], place / kind.replace(" ", "-"), policy, batch)
        made[kind] = folder, described(policy, batch.schema, Training(0.5, 3, len(batch), {})), batch
        return made[kind]

    return make


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """A function that returns the page of a run, written once."""
    place, made = tmp_path_factory.mktemp("pages"), {}

    def write(run, include_cases=False):
        if (run, include_cases) not in made:
            path = place / f"{len(made)}.html"
            made[run, include_cases] = write_report(run, path, include_cases=include_cases)
        return made[run, include_cases]

    return write


def skip_or_fail(lacking):
    """Skip the test, unless CAPI_BROWSER=required."""
    if os.environ.get("CAPI_BROWSER") == "required":
        pytest.fail(f"CAPI_BROWSER=required, but there is {lacking}.")
    pytest.skip(f"there is {lacking}")


@pytest.fixture(scope="session")
def browser():
    """One browser; without one the tests are skipped, unless CAPI_BROWSER=required."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if sync_playwright is None or found is None:
        skip_or_fail("no playwright" if sync_playwright is None else "no browser")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=PATIENCE)
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser):
    """A function that opens a report; in the end nothing may have gone wrong in it, and nothing been asked of the network."""
    opened, troubles = [], []

    def show(path, **options):
        page = browser.new_page(**{"viewport": {"width": 1200, "height": 900}, **options})
        opened.append(page)
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        allowed = (Path(path).as_uri(), "data:,")  # the page itself, and that it has no icon
        page.on("request", lambda request: None if request.url in allowed else troubles.append(request.url))
        page.goto(Path(path).as_uri())
        return page

    yield show
    for page in opened:
        page.close()
    assert not troubles


@pytest.fixture(scope="session")
def accessibility():
    """A function that returns what axe-core finds serious or critical in a page."""
    package = find_spec("axe_playwright_python")
    if package is None:
        skip_or_fail("no axe-playwright-python")
    script = (Path(package.origin).parent / "axe.min.js").read_text(encoding="utf-8")

    def findings(page):
        page.evaluate(script)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)")
        return [
            (rule["id"], node["html"][:200], node["failureSummary"])
            for rule in found
            if rule["impact"] in ("serious", "critical")
            for node in rule["nodes"]
        ]

    return findings
