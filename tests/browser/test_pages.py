"""Pages of `triage site` in a headless Chromium: errors, links, filters, and names that are words.

`make site-check` runs these. A browser that is missing is a failure there, and never a skip.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest
from conftest import HERE
from nights import record, row

from harness.store.store import Store

if TYPE_CHECKING:
    from conftest import Triage

pytestmark = pytest.mark.browser

TAKE = "document.title='taken'"
HOSTILE = f"""<img src=x onerror="{TAKE}">'&"</script><script>{TAKE}</script>"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.fail("there is no chromium, or no chromedriver: apt-get install chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"):
        options.add_argument(word)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    found = webdriver.Chrome(options=options, service=service)
    found.set_page_load_timeout(120)
    try:
        yield found
    finally:
        found.quit()


@pytest.fixture(scope="module")
def site(module_triage: Triage) -> Path:
    """Two nights with a hostile name, and one cell that was compiled, with its artifacts."""
    home = Path(module_triage.env["TRIAGE_HOME"])
    versions = ("12.9.86", "13.0.88", "13.3.33")
    with Store.open(home) as store:
        for verdict, signature in (("ok", None), ("ptxas_ice", "s1")):
            run = store.begin_run("triage matrix run")
            rows = [row(kernel="scan", ptxas=each) for each in versions]
            hostile: dict[str, Any] = {"kernel": HOSTILE, "reason": HOSTILE, "ptxas": "13.0.88"}
            rows += [
                row(verdict, signature, **hostile),
                row(kernel=HOSTILE, ptxas="13.3.33", n_regs=80, spill_stores=8 * bool(signature)),
            ]
            store.put_results(run, [record(each) for each in rows])
            store.finish_run(run)
    kernel = f"{HERE / 'kernels' / 'spilling.py'}"
    module_triage.compile("--kernel", kernel, "--sm", "90a", "--jobs", "1", code=0)
    done = module_triage("site", "--out", "pages")
    assert done.returncode == 0, done.stderr
    return module_triage.folder / "pages"


def messages(browser: Any) -> list[str]:
    return [each["message"] for each in browser.get_log("browser")]


def visit(browser: Any, page: Path, more: str = "") -> None:
    browser.get(f"{page.absolute().as_uri()}{more}")


def test_every_page_opens_without_an_error_and_leads_somewhere(browser: Any, site: Path) -> None:
    pages = sorted(site.glob("*.html"))
    assert len(pages) >= 12
    for page in pages:
        visit(browser, page)
        assert messages(browser) == [], page.name
        assert browser.title.endswith("· triage"), page.name
        links = browser.execute_script(
            "return Array.from(document.links, (a) => a.href)"
            ".concat(Array.from(document.forms, (f) => f.action))"
        )
        for link in {each for each in links if not each.startswith("http")}:
            parts = urlsplit(link)
            assert parts.scheme == "file", link
            target = Path(unquote(parts.path))
            assert target.is_file(), f"{page.name} leads to {link}"
            if parts.fragment:
                wanted = f'id="{unquote(parts.fragment)}"'
                assert wanted in target.read_text(), f"{page.name} leads to {link}"


def test_names_are_words_and_nothing_else(browser: Any, site: Path) -> None:
    seen = 0
    for page in sorted(site.glob("*.html")):
        visit(browser, page)
        assert browser.title != "taken"
        assert browser.execute_script("return document.images.length") == 0
        seen += HOSTILE in browser.execute_script("return document.body.textContent")
    assert seen >= 6
    assert messages(browser) == []


@pytest.mark.parametrize("width", [360, 1400])
def test_no_page_is_wider_than_the_window(browser: Any, site: Path, width: int) -> None:
    # A window cannot be as narrow as a phone; what it shows can.
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False},
    )
    for page in sorted(site.glob("*.html")):
        visit(browser, page)
        shown = browser.execute_script("return document.documentElement.scrollWidth")
        assert shown <= width, (page.name, browser.execute_script(WIDEST))
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


WIDEST = """
const inside = (e) => e.parentElement.closest(".scroll, pre, .skip");
const wide = [...document.querySelectorAll("body *")].filter((e) => !inside(e));
const right = (e) => e.getBoundingClientRect().right;
return wide.sort((a, b) => right(b) - right(a)).slice(0, 3).map((e) => e.outerHTML.slice(0, 200));
"""


@pytest.mark.parametrize("name", ["index", "matrix", "run-2", "help", "cell-*", "kernel-scan*"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(
    browser: Any, site: Path, scheme: str, name: str
) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    # The largest of a kind: of cells that is the one with code.
    visit(browser, max(site.glob(f"{name}.html"), key=lambda path: path.stat().st_size))
    worst = browser.execute_script(CONTRAST)
    # WCAG 2.1, success criterion 1.4.3.
    assert worst["ratio"] >= 4.5, worst


CONTRAST = """
const part = (v) => v <= 10.31 ? v / 3294.6 : ((v / 255 + .055) / 1.055) ** 2.4;
const bright = (color) => {
  const [r, g, b] = color.match(/[\\d.]+/g).map(Number);
  return .2126 * part(r) + .7152 * part(g) + .0722 * part(b);
};
const behind = (e) => {
  for (; e; e = e.parentElement) {
    const color = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)$/.test(color)) return color;
  }
  return "rgb(255, 255, 255)";
};
let worst = {ratio: 99};
for (const e of document.querySelectorAll("main *, header *")) {
  if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
  const a = bright(getComputedStyle(e).color), b = bright(behind(e));
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < worst.ratio) worst = {ratio, what: e.outerHTML.slice(0, 200)};
}
return worst;
"""


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_what_is_broken_since_when_and_where_to_look_stand_on_the_first_screen(
    browser: Any, site: Path, width: int, height: int
) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    visit(browser, site / "index.html", f"?{width}")
    seen, where = browser.execute_script(
        "const inside = (e) => e.getBoundingClientRect().top < innerHeight;"
        "const first = [...document.querySelectorAll('main *')].filter(inside);"
        "return [first.map((e) => e.innerText).join(' '),"
        "[...document.links].filter(inside).map((a) => a.getAttribute('href'))]"
    )
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert " is broken on sm_100a with Triton 3.6.0, ptxas 13.0.88 since run 2." in seen
    assert {"bug-1.html", "run-2.html"} <= set(where)


def test_a_night_leads_to_what_changed_in_it(browser: Any, site: Path) -> None:
    visit(browser, site / "index.html", "?nights")
    browser.find_element("css selector", ".squares thead a").click()
    assert urlsplit(browser.current_url).path.endswith("/run-2.html")
    assert browser.find_element("css selector", "h1").text == "Run 2 compared with run 1"
    numbers = browser.find_element("css selector", "[aria-label=Numbers]").text
    assert "from 0" in numbers
    assert "spills 0 B -> 8 B" in numbers


def test_panes_of_a_cell_fill_the_window_and_have_numbers_and_colours(
    browser: Any, site: Path
) -> None:
    (page,) = [each for each in site.glob("cell-*") if 'id="pane-sass"' in each.read_text()]
    visit(browser, page, "?panes")
    left, right, window, rows = browser.execute_script(
        "const boxes = [...document.querySelectorAll('.panes > :not([hidden])')]"
        ".map((e) => e.getBoundingClientRect());"
        "return [Math.min(...boxes.map((b) => b.left)), Math.max(...boxes.map((b) => b.right)),"
        "innerWidth, new Set(boxes.map((b) => b.top)).size]"
    )
    assert rows == 1
    assert right - left > 0.95 * window - 20
    number, words = browser.execute_script(
        "const line = document.querySelector('#pane-ptx [data-l]');"
        "return [getComputedStyle(line.previousElementSibling, '::before').content,"
        "[...document.querySelectorAll('#pane-python b')].map((e) => e.textContent)]"
    )
    assert int(json.loads(number)) > 1
    assert "def" in words
    text = browser.find_element("css selector", "#pane-ptx pre").text
    assert ".loc" not in text
    assert ".file" not in text


def test_the_search_filters(browser: Any, site: Path) -> None:
    def shown() -> list[str]:
        found: list[str] = browser.execute_script(
            "const found = document.querySelectorAll('#results li:not([hidden])');"
            "return Array.from(found, (each) => each.textContent)"
        )
        return found

    visit(browser, site / "search.html")
    every = shown()
    visit(browser, site / "search.html", "?q=SCAN%20kernel")
    assert 0 < len(shown()) < len(every)
    assert all("scan" in each and "kernel" in each for each in shown())
    box = browser.find_element("id", "q")
    box.clear()
    box.send_keys("no such thing")
    assert shown() == []
    said = browser.find_element("id", "found").text
    assert said == f"0 of {len(every)} entries"


def test_a_table_is_sorted_filtered_and_a_command_copied(browser: Any, site: Path) -> None:
    (page,) = site.glob("rows-scan-*")
    visit(browser, page)
    toolchains = """
    return Array.from(document.querySelectorAll("tbody tr:not([hidden])"),
                      (row) => row.children[2].textContent)
    """
    every = browser.execute_script(toolchains)
    head = browser.find_elements("css selector", "thead button")[2]
    head.click()
    assert browser.execute_script(toolchains) == sorted(every)
    head.click()
    assert browser.execute_script(toolchains) == sorted(every, reverse=True)
    assert browser.find_elements("css selector", ".filter") == []  # three rows need none
    visit(browser, site / "index.html")
    browser.find_element("css selector", "button.copy").click()
    time.sleep(0.2)
    said = browser.find_element("css selector", "button.copy").text
    assert said in ("Copied", "Selected: press Ctrl-C")
    assert messages(browser) == []


# What has the focus, the width of its outline, and whether it is cut off or lies behind something.
FOCUSED = """
const it = document.activeElement;
if (it === document.body) return null;
const box = it.getClientRects()[0], style = getComputedStyle(it);
const out = parseFloat(style.outlineOffset) + parseFloat(style.outlineWidth);
const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
const edges = it.parentElement.closest(".scroll")?.getBoundingClientRect();
return {
  it: it.outerHTML,
  outline: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth),
  cut: box.left - out < (edges?.left ?? 0) - 1 ||
       box.right + out > (edges?.right ?? innerWidth) + 1,
  behind: !(it.contains(top) || top?.contains(it)),
};
"""


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("name", ["index", "pair-*", "kernel-*"])
def test_what_has_the_focus_is_seen(browser: Any, site: Path, name: str, width: int) -> None:
    from selenium import webdriver

    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    visit(browser, max(site.glob(f"{name}.html"), key=lambda path: path.stat().st_size))
    count = 0
    while count < 100:
        webdriver.ActionChains(browser).send_keys("\ue004").perform()
        focused = browser.execute_script(FOCUSED)
        if focused is None:
            break
        count += 1
        assert focused["outline"] >= 2, focused
        assert not focused["cut"], focused
        assert not focused["behind"], focused
    assert count >= 10


def test_a_search_on_any_page_leads_to_the_search(browser: Any, site: Path) -> None:
    visit(browser, site / "matrix.html")
    browser.find_element("id", "q").send_keys("ptxas_ice\n")
    deadline = time.monotonic() + 60
    while "/search.html" not in browser.current_url and time.monotonic() < deadline:
        time.sleep(0.1)
    assert urlsplit(browser.current_url).path.endswith("/search.html")
    assert browser.find_element("id", "q").get_attribute("value") == "ptxas_ice"
    assert messages(browser) == []


def test_lines_of_a_cell_are_linked_from_the_source_to_the_sass(browser: Any, site: Path) -> None:
    (page,) = [each for each in site.glob("cell-*") if 'id="pane-sass"' in each.read_text()]
    visit(browser, page)
    lines = (HERE / "kernels" / "spilling.py").read_text().splitlines()
    at = next(number for number, line in enumerate(lines, 1) if "tl.dot(queries" in line)
    browser.execute_script(f"document.querySelector('#pane-python [data-l=\"{at}\"]').click()")
    on = json.loads(
        browser.execute_script(
            "return JSON.stringify(Array.from(document.querySelectorAll('.panes pre'), (p) => "
            "[p.parentElement.id, Array.from(p.querySelectorAll('.on'), (e) => e.textContent)]))"
        )
    )
    chosen = dict(on)
    assert any("mma" in line for line in chosen["pane-ptx"])
    assert any("MMA" in line for line in chosen["pane-sass"])
    assert any("tt.dot" in line for line in chosen["pane-ttir"])
    assert not any("EXIT" in line for line in chosen["pane-sass"])
    said = browser.find_element("id", "chosen").text
    assert said.startswith(f"line {at} of the source")
    browser.find_element("id", "next").click()
    assert browser.find_element("id", "chosen").text.startswith("local access 1 of ")
    # A pane that is not shown can be.
    pane = browser.find_element("id", "pane-ttgir")
    assert not pane.is_displayed()
    browser.find_element("css selector", ".shows input[value=ttgir]").click()
    assert pane.is_displayed()
    assert messages(browser) == []


def test_a_place_of_the_curve_leads_to_its_instruction(browser: Any, site: Path) -> None:
    (page,) = [each for each in site.glob("cell-*") if 'class="curve"' in each.read_text()]
    # The address of the page that is open would be no navigation to wait for.
    visit(browser, page, "?curve")
    chosen, said, peak, shown = browser.execute_script(
        "const curve = document.querySelector('.plot svg'), box = curve.getBoundingClientRect();"
        "curve.dispatchEvent(new MouseEvent('click', {clientX: box.left, clientY: box.top}));"
        "return ['#pane-sass i.on', '#chosen', '#pane-sass i.peak', '.curve strong']"
        ".map((each) => document.querySelector(each)?.textContent)"
    )
    assert said == f"instruction 1: {chosen} live registers"
    assert peak == shown
    assert messages(browser) == []
