"""The page for the review in a real browser: headless Chromium, driven by selenium."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bilevel.apps.cleaning import job
from bilevel.apps.cleaning.request import Request

from .dirty_tables import dirty

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver on the path"
)
CHOSEN = "as suspicious"
HOSTILE = "</script><script>document.title = 'hacked'</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("review")
    dirty().train.assign(note=HOSTILE).to_csv(place / "train.csv", index=False)
    prepared = job.prepare(Request(place / "train.csv", "label", place / "cleaned"))
    job.write_all(prepared, job.run(prepared, lambda *_: None), "bilevel clean")
    return place


@pytest.fixture
def browser(folder: Path) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=Service(DRIVER)) as driver:
        driver.get((folder / "cleaned" / "review.html").as_uri())
        driver.execute_script("localStorage.clear()")
        driver.refresh()
        yield driver
        assert not [line for line in driver.get_log("browser") if line["level"] == "SEVERE"]


def text(browser: Any, name: str) -> str:
    return str(browser.find_element("id", name).text)


def await_text(browser: Any, name: str, wanted: str) -> None:
    """The browser may take its time to hand an event to the page."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 20).until(lambda page: wanted in text(page, name))


def press(browser: Any, *keys: str) -> None:
    for key in keys:
        browser.find_element("tag name", "body").send_keys(key)


def test_rows_are_decided_by_keys_taken_back_kept_and_saved(browser: Any, folder: Path) -> None:
    table = pd.read_csv(folder / "cleaned" / "labels.csv")
    order = table[table.flagged].sort_values("suspicion", ascending=False, kind="stable")
    first, second, third = (int(i) + 1 for i in order.index[:3])
    assert browser.title == "Review of train.csv"  # the hostile note did not run
    assert text(browser, "heading") == f"Row {first}"
    assert text(browser, "label") == order.label.iloc[0]
    assert HOSTILE in text(browser, "cells")
    assert "The rows most like it" in text(browser, "why")
    why = text(browser, "why")  # each label apart: one from right to left turns nothing else
    assert re.search("like it: [0-9]+ [(]\u2068[a-z]+\u2069[)], ", why)
    press(browser, "w")
    assert text(browser, "heading") == f"Row {second}"
    press(browser, "r")
    press(browser, "r", "u")
    assert text(browser, "heading") == f"Row {third}"
    press(browser, "s", "b")
    assert text(browser, "heading") == f"Row {third}"
    for _ in range(20):  # Chromium stores what a page keeps in the background, late under load
        time.sleep(1)
        browser.refresh()
        if kept := text(browser, "count").startswith(f"2 of {len(order)} flagged rows decided"):
            break
    assert kept
    browser.find_element("id", "save").click()
    assert text(browser, "told") == "2 decisions saved as decisions.csv."
    saved = folder / "decisions.csv"
    for _ in range(100):
        if saved.exists():
            break
        browser.execute_async_script("setTimeout(arguments[0], 50)")
    found = pd.read_csv(saved)
    page = (folder / "cleaned" / "review.html").read_text(encoding="utf-8")

    def how(row: int) -> str:
        return "at random" if f'"row": {row}, "flagged": true, "picked": true' in page else CHOSEN

    assert found.values.tolist() == sorted(
        [
            [first, order.likely_label.iloc[0], "wrong", how(first)],
            [second, order.label.iloc[1], "right", how(second)],
        ]
    )
    again = Request(folder / "train.csv", "label", folder / "again", trusted=str(saved))
    prepared = job.prepare(again)
    assert prepared.trusted.nonzero()[0].tolist() == sorted([first - 1, second - 1])
    assert prepared.labels[first - 1] == order.likely_label.iloc[0]


def test_filters_the_table_and_another_label_work_on_a_phone(browser: Any) -> None:
    from selenium.webdriver.support.ui import Select

    browser.set_window_size(500, 800)  # the least that a window may have
    wide = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not browser.execute_script(wide)
    Select(browser.find_element("id", "given")).select_by_value("bee")
    await_text(browser, "label", "bee")
    Select(browser.find_element("id", "other")).select_by_value("cat")
    await_text(browser, "told", ": cat.")
    browser.find_element("id", "view").click()
    assert not browser.execute_script(wide)
    lines = browser.find_elements("css selector", "#body tr")
    assert lines
    assert all(line.find_elements("tag name", "td")[2].text == "bee" for line in lines)
    choices = browser.find_elements("css selector", "#body select")
    assert all(choice.get_attribute("aria-label").startswith("Label of row") for choice in choices)
    browser.find_element("id", "search").send_keys("no cell has this")
    assert not browser.find_elements("css selector", "#body tr")


def test_every_control_has_a_name_and_the_page_is_small(browser: Any, folder: Path) -> None:
    unnamed = """return [...document.querySelectorAll("button, select, input")].filter(
        (c) => !(c.textContent.trim() || c.labels?.length || c.ariaLabel)).map((c) => c.id)"""
    assert browser.execute_script(unnamed) == []
    assert (folder / "cleaned" / "review.html").stat().st_size < 3_000_000


def test_no_row_is_its_own_evidence(folder: Path) -> None:
    page = (folder / "cleaned" / "review.html").read_text(encoding="utf-8")
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    for row in data["rows"]:
        assert len(row["near"]) == 3
        assert row["row"] not in [number for number, _ in row["near"]]
