"""The report in a real browser: headless Chromium, driven by selenium."""

import json
import shutil

import pytest

from bilevel.lab.comparison.comparison import compare
from bilevel.lab.comparison.page import experiment_page
from bilevel.lab.run_folder import Folder
from bilevel.report.palette import DARK_THEME, LIGHT_THEME, look

from .run_folders import write_run

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)
LABELS = ["stocbio", "aid-bio", "bsa"]

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver on the path"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    run = write_run(
        folder / "run", labels=LABELS, title="<script>document.title = 'hacked'</script>"
    )
    experiment_page(compare([Folder(run).checked()])).write(folder / "report.html")
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, report):
    prefer(browser, "light")
    browser.get("about:blank")
    browser.get_log("performance")  # what the browser did for itself
    browser.get(report)
    yield browser
    assert browser.get_log("browser") == []


def prefer(browser, scheme):
    wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def ask(page, expression):
    return page.execute_script(f"return {expression}")


def visible_groups(page):
    """For every plot, the algorithms that it shows."""
    groups = ask(
        page,
        "[...document.querySelectorAll('.plot')].map(plot => plot._fullData"
        ".filter(trace => trace.visible === true).map(trace => trace.legendgroup))",
    )
    return [sorted(set(group)) for group in groups]


def x_titles(page):
    return set(
        ask(
            page,
            "[...document.querySelectorAll('.plot')].map(p => p._fullLayout.xaxis.title.text)",
        )
    )


def legend(page):
    return page.find_elements("css selector", ".legend button")


def test_nothing_is_asked_of_a_network_and_nothing_is_complained_about(page, report):
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    addresses = {params["request"]["url"] for params in sent}
    assert {url for url in addresses if not url.startswith(("data:", "blob:"))} == {report}
    assert [m for m in messages if m["method"] == "Network.loadingFailed"] == []


def test_a_script_in_the_title_is_text(page):
    assert page.title == "<script>document.title = 'hacked'</script>"
    assert page.find_element("tag name", "h1").text == page.title


def test_every_panel_has_its_curves_and_bands(page):
    assert ask(page, "document.querySelectorAll('.plot .main-svg .scatterlayer').length") == 7
    drawn = ask(
        page,
        "[...document.querySelectorAll('.plot')].map(plot => "
        "plot.querySelectorAll('.scatterlayer .js-line').length)",
    )
    assert min(drawn) >= len(LABELS)
    assert visible_groups(page) == 7 * [sorted(LABELS)]
    fills = ask(page, "document.querySelectorAll('.scatterlayer .js-fill').length")
    assert fills == 7 * len(LABELS)


def test_plots_offer_no_upload(page):
    titles = ask(page, "[...document.querySelectorAll('.modebar-btn')].map(b => b.dataset.title)")
    assert [title for title in titles if "loud" in title or "hare" in title] == []


def test_the_legend_shows_and_hides_an_algorithm_in_all_panels(page):
    assert [button.text for button in legend(page)] == LABELS
    legend(page)[0].click()
    assert visible_groups(page) == 7 * [["aid-bio", "bsa"]]
    assert legend(page)[0].get_attribute("aria-pressed") == "false"
    legend(page)[0].click()
    assert visible_groups(page) == 7 * [sorted(LABELS)]


def test_a_double_click_shows_one_algorithm_alone(page):
    # Sent as an event: two real clicks may come too far apart on a busy machine.
    page.execute_script("arguments[0].dispatchEvent(new Event('dblclick'))", legend(page)[1])
    assert visible_groups(page) == 7 * [["aid-bio"]]


def test_the_switch_changes_the_horizontal_axis_and_keeps_what_is_hidden(page):
    assert x_titles(page) == {"seconds, evaluation excluded"}
    legend(page)[2].click()
    page.find_element("css selector", "input[value='Outer steps']").click()
    assert x_titles(page) == {"outer steps"}
    last_step = ask(page, "Math.max(...document.querySelector('.plot').data.at(-1).x)")
    assert last_step > 50
    assert visible_groups(page) == 7 * [["aid-bio", "stocbio"]]


def test_a_logarithmic_axis_leaves_out_the_start_instead_of_inventing_a_line(page):
    page.find_element("css selector", ".logarithmic input").click()
    types = ask(page, "[...document.querySelectorAll('.plot')].map(p => p._fullLayout.xaxis.type)")
    assert set(types) == {"log"}
    assert None in ask(page, "document.querySelector('.plot').data.at(-1).x")
    page.find_element("css selector", ".logarithmic input").click()
    assert ask(page, "document.querySelector('.plot').data.at(-1).x[0]") == 0


def test_prices_that_lie_far_apart_start_on_a_logarithmic_axis(page):
    page.find_element("css selector", "input[value='All of these']").click()
    assert ask(page, "document.querySelector('.plot')._fullLayout.xaxis.type") == "log"
    assert page.find_element("css selector", ".logarithmic input").is_selected()


def test_colours_follow_the_readers_theme(page):
    from selenium.webdriver.support.wait import WebDriverWait

    colour = "document.querySelector('.plot')._fullData.at(-1).line.color"
    ground = "document.querySelector('.plot')._fullLayout.paper_bgcolor"
    assert ask(page, f"[{colour}, {ground}]") == [look(2).colour, LIGHT_THEME["paper"]]
    prefer(page, "dark")
    WebDriverWait(page, 60).until(lambda page: ask(page, ground) == DARK_THEME["paper"])
    assert ask(page, colour) == look(2).dark_colour


def test_a_click_on_a_heading_sorts_the_table(page):
    column = "[...document.querySelector('#results tbody').rows].map(r => r.cells[2].dataset.order)"
    button = page.find_element("css selector", "#results th:nth-child(3) button")
    button.click()
    losses = [float(value) for value in ask(page, column)]
    assert losses == sorted(losses)
    button.click()
    assert [float(value) for value in ask(page, column)] == sorted(losses, reverse=True)


def test_a_narrow_screen_needs_no_scrolling_sideways(page):
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page.refresh()
        assert ask(page, "document.documentElement.scrollWidth") <= 390
        widths = ask(page, "[...document.querySelectorAll('.plot')].map(p => p._fullLayout.width)")
        assert max(widths) <= 390
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
