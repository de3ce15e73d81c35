"""The documentation site in a browser, where make docs has built it: accessible, within the screen, nothing from the network."""

from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
PAGES = ["index", "start/first-steps", "reference/capi.offline"]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.skipif(not SITE.exists(), reason="make docs has not built the site")
def test_a_page_is_accessible_and_asks_nothing_of_the_network(name, browser, accessibility):
    page, asked = browser.new_page(viewport={"width": 1280, "height": 900}), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((SITE / f"{name}.html").as_uri())
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert accessibility(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
    assert all(url.startswith("file:") for url in asked)


@pytest.mark.skipif(not SITE.exists(), reason="make docs has not built the site")
def test_the_search_works_offline(browser):
    page = browser.new_page()
    page.goto((SITE / "search.html").as_uri() + "?q=propensity")
    page.wait_for_selector("ul.search li a", timeout=60_000)
    assert page.locator("ul.search li a").count() > 2
    page.close()
