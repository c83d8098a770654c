"""Make docs/pictures: a small store, its pages, and a picture of each kind of page.

    python benchmarks/pictures.py --home FOLDER [--pictures docs/pictures]

FOLDER is filled once (five minutes of two cores, toolchains from the package index) and kept: a
second call takes only the pictures. Needs Chromium and its driver, as `make site-check` does.
"""

from __future__ import annotations

import argparse
import base64
import lzma
import os
import shutil
import subprocess
import sys
from pathlib import Path

from selenium import webdriver

from harness.cells.evaluate import Evaluated
from harness.cells.places import record_of
from harness.store.store import Store
from harness.workaround.rank.ranking import keep_ranks, rank_again

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "tests" / "data" / "gpu" / "ranks-h200.json.xz"
MATRIX = """\
version: 1
toolchains:
  triton: {spec: ["3.6.0", "3.9.0"]}
  ptxas: {spec: [PTXAS]}
targets: [sm_90a, sm_100a]
kernels:
  - "verdict_[cpru]*"
  - "verdict_out_of_resources_*"
  - verdict_ok
  - "verdict_sick_*"
  - "verdict_trap_*"
  - register_collapse
"""
FAILS = ["--kernel", "mamba3_siso_bwd_dqkv", "--sm", "100a", "--set", "chunk_size=32"]
FAILS += ["--config", "num_warps=4,num_stages=1,maxnreg=none"]
TOOLS = ["--triton", "3.6.0", "--triton", "3.8.0"]
for _version in ("13.0.88", "13.1.115", "13.2.78", "13.3.33", "13.5.37"):
    TOOLS += ["--ptxas", _version]


# The line of the source at the peak is chosen, then the page is scrolled to the panes.
AT_PEAK = """
const line = document.querySelector("#pane-sass i.peak").nextElementSibling;
if (line) line.click();
const peak = document.querySelector("#pane-sass i.peak"), pane = peak.closest("pre");
pane.scrollTop += peak.getBoundingClientRect().top - pane.getBoundingClientRect().top - 200;
document.querySelector(".panes").scrollIntoView();
"""
TO = """[...document.querySelectorAll("h2, h3")]
.find((each) => each.textContent === "{}").scrollIntoView()"""
_ABLATION = "What each instruction is for"
_CURVE = 'class="curve"'
SHOTS = (
    ("first", "index.html", "", 1400, 900, "light", ""),
    ("run", "run-*", "Numbers", 1400, 900, "light", ""),
    ("matrix", "matrix.html", "", 1400, 900, "light", ""),
    ("kernel", "kernel-register_collapse*", "measured", 1400, 1100, "light", ""),
    ("rows", "rows-*", "", 1400, 700, "light", ""),
    ("bugs", "bugs.html", "", 1400, 900, "light", ""),
    ("bug", "bug-*", "C7907", 1400, 1300, "light", ""),
    ("reproducer", "bug-*", _ABLATION, 1400, 1000, "light", TO.format(_ABLATION)),
    ("toolchains", "toolchains.html", "", 1400, 900, "light", ""),
    ("search", "search.html", "", 1400, 900, "light", ""),
    ("cell", "cell-register_collapse-default-num_warps-8*", _CURVE, 1400, 1000, "light", AT_PEAK),
    ("cell-dark", "cell-verdict_trap_stub*", _CURVE, 1400, 1000, "dark", AT_PEAK),
    ("phone", "cell-register_collapse-default-num_warps-1*", _CURVE, 390, 900, "light", AT_PEAK),
)
"""Name, page, words on it, width, height, scheme, and what is done before the picture is taken."""


def main() -> None:
    """Fill the store where it is empty, write the pages, take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "pictures")
    options = parser.parse_args()
    home = options.home.absolute()
    if not (home / "filled").exists():
        fill(home)
        (home / "filled").touch()
    triage(home, "site", "--out", str(home / "site"))
    take(home / "site", options.pictures.absolute())


def triage(home: Path, *words: str) -> None:
    """Run a command beside the store; exit code 1 says that a failure was found."""
    done = subprocess.run(
        [sys.executable, "-m", "harness", *words],
        cwd=home,
        env={**os.environ, "TRIAGE_HOME": str(home / "store"), "PYTHONPATH": str(ROOT)},
        check=False,
    )
    if done.returncode not in (0, 1, 3):
        sys.exit(f"triage {' '.join(words)} ended with {done.returncode}")


def fill(home: Path) -> None:
    """Two nights, of which the second has a newer ptxas, a bug with its story, measured orders."""
    home.mkdir(parents=True, exist_ok=True)
    with Store.open(home / "store") as store:
        report = rank_again([lzma.decompress(MEASURED.read_bytes())])
        run = store.begin_run("triage rank --measure")
        rows = [each.row for launch in report.launches[:3] for each in launch.configs]
        # There is no evidence here of what was measured elsewhere.
        store.put_results(run, [record_of(Evaluated(row=row, evidence={})) for row in rows])
        store.finish_run(run)
        keep_ranks(store, report)
    triage(home, "compile", *FAILS, *TOOLS)
    triage(
        home, "minimize", *FAILS, "--triton", "3.6.0", "--ptxas", "13.1.115", "--max-time", "120s"
    )
    triage(home, "workaround", *FAILS, "--triton", "3.6.0", "--ptxas", "13.1.115")
    for versions in ("bundled", 'bundled, "13.5.37"'):
        (home / "matrix.yaml").write_text(MATRIX.replace("PTXAS", versions))
        triage(home, "matrix", "run")


def take(site: Path, pictures: Path) -> None:
    """A picture of each kind of page, one of a dark page, and one as wide as a phone."""
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(word)
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    browser = webdriver.Chrome(options=options, service=service)
    try:
        for name, pattern, words, width, height, scheme, script in SHOTS:
            page = _page(site, pattern, words)
            device = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
            media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            browser.get(page.as_uri())
            browser.execute_script(script)
            shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
            (pictures / f"site-{name}.png").write_bytes(base64.b64decode(shot["data"]))
    finally:
        browser.quit()


def _page(site: Path, pattern: str, words: str) -> Path:
    """The largest page of that name that holds all these words."""
    found = [each for each in site.glob(pattern) if words in each.read_text()]
    if not found:
        sys.exit(f"no page {pattern} has {words!r}")
    return max(found, key=lambda each: each.stat().st_size)


if __name__ == "__main__":
    main()
