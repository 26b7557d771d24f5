"""The built site in a browser, opened from disk: links, search, copying, width, no network."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

SITE = Path(__file__).parents[2] / "site"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900")
PAGES = [
    "index.html",
    "choose.html",
    "gallery/hyper_cleaning.html",
    "theory/index.html",
    "theory/algorithms.html",
    "reference/api/bilevel.html",
    "reference/command-line.html",
    "project/architecture.html",
]
pytestmark = pytest.mark.skipif(
    not (SITE / "index.html").exists(), reason="the site is not built: run `make docs`"
)
in_a_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver on the path"
)


class Found(HTMLParser):
    """What a page links to and loads, and the places that can be linked to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("img", "script") and "src" in given:
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.loads.append(given["href"])


def read(page: Path) -> Found:
    found = Found()
    found.feed(page.read_text("utf-8"))
    return found


def _switches(anchor: str) -> set[str]:
    """`__...` are the theme's own switches, made by its script."""
    return {anchor} if anchor.startswith("__") else set()


def test_every_link_leads_to_a_page_and_a_place_and_nothing_is_loaded_from_a_network() -> None:
    pages = {page: read(page) for page in SITE.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 60
    wrong = []
    for page, found in pages.items():
        for target in [*found.links, *found.loads]:
            parts = urlsplit(target)
            if parts.scheme in ("http", "https", "mailto"):
                if target in found.loads:
                    wrong.append(f"{page.name} loads {target}")
                continue
            place = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchor = unquote(parts.fragment)
            if not place.exists():
                wrong.append(f"{page.name} -> {target}")
            elif place in pages and anchor not in pages[place].places | {""} | _switches(anchor):
                wrong.append(f"{page.name} -> {target}: no such place")
    assert wrong == []


def test_stylesheets_load_no_fonts_from_a_network() -> None:
    for sheet in SITE.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?https?:", sheet.read_text("utf-8")), sheet


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    driver.implicitly_wait(20)
    yield driver
    driver.quit()


@in_a_browser
def test_pages_say_nothing_to_the_console_and_ask_no_network(browser: Any) -> None:
    for page in PAGES:
        browser.get((SITE / page).as_uri())
        assert browser.get_log("browser") == [], page
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert asked
    assert [url for url in asked if url.startswith("http")] == []


@in_a_browser
def test_search_finds_a_public_name_from_disk(browser: Any) -> None:
    browser.get((SITE / "index.html").as_uri())
    browser.find_element("css selector", "[data-md-component=search-query]").send_keys("certify")
    found = browser.find_element("css selector", ".md-search-result__item a")
    assert ".html" in found.get_attribute("href")


@in_a_browser
def test_the_keyboard_opens_the_search_and_code_can_be_copied(browser: Any) -> None:
    browser.get((SITE / "start/first-run.html").as_uri())
    assert browser.find_elements("css selector", ".md-clipboard, .md-code__button")
    browser.find_element("css selector", "body").send_keys("/")
    assert browser.switch_to.active_element.get_attribute("data-md-component") == "search-query"


@in_a_browser
def test_formulas_are_drawn_without_a_script(browser: Any) -> None:
    browser.get((SITE / "theory/index.html").as_uri())
    sizes = [each.size for each in browser.find_elements("css selector", "math")]
    assert sizes
    assert all(size["width"] > 0 and size["height"] > 0 for size in sizes)
    assert "\\nabla" not in browser.find_element("css selector", "article").text


@in_a_browser
@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_text_stands_out_in_light_and_in_dark(browser: Any, scheme: str) -> None:
    browser.get((SITE / "start/result.html").as_uri())
    browser.execute_script(
        "document.body.setAttribute('data-md-color-scheme', arguments[0])", scheme
    )
    text, ground = browser.execute_script(
        "const of = (e, p) => getComputedStyle(e)[p].match(/[0-9.]+/g).map(Number);"
        "return [of(document.querySelector('article p, article td'), 'color'),"
        " of(document.body, 'backgroundColor')]"
    )
    assert contrast(blend(text, ground), ground) >= 4.5  # WCAG 2, AA


def blend(colour: list[float], ground: list[float]) -> list[float]:
    """A colour with an alpha, as it is seen on its ground."""
    alpha = colour[3] if len(colour) > 3 else 1.0
    return [alpha * c + (1 - alpha) * g for c, g in zip(colour[:3], ground[:3], strict=True)]


def contrast(one: list[float], other: list[float]) -> float:
    def luminance(colour: list[float]) -> float:
        parts = [c / 255 for c in colour[:3]]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@in_a_browser
def test_pages_fit_a_phone(browser: Any) -> None:
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        for page in PAGES:
            browser.get((SITE / page).as_uri())
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= 390, page
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
