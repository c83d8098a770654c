"""The table of all reports: writes reports/README.md from each folder's issue.md and report.json.

    python checks/report_index.py

`report.json`, which `triage report` writes, says what the issue does not: the `evidence` in a word
or two, the `date` on which it was made, its `state` upstream, which a person writes, and the
`command` that makes it from this repository.
"""

from __future__ import annotations

import json
from pathlib import Path

REPORTS = Path(__file__).parents[1] / "reports"
HEAD = """# Reports

Written by `triage report` ([docs/report.md](../docs/report.md)). `python checks/report_index.py`
writes this page. None is filed before a person has read it and searched the tracker: `state` says
what is known of that.

Not kept: `trap-stub` and `mamba-904`, since Triton raises `OutOfResources` for such a config when
it loads the kernel, and the autotuner skips it (`tests/tools/test_blame_real.py` holds the
verdict); `tilelang-tma-layout`, since TileLang 0.1.9 lowers it
(`tests/tools/test_tilelang_real.py`); `hunt-product-in-branch`, since its reduced kernel is right
on an H100 (`repros/triton_product_in_branch` is the one that is wrong there, and
`tests/tools/test_wrong_code.py` holds it).

| report | evidence | date | state | made by |
|---|---|---|---|---|
"""


def line(folder: Path) -> str:
    """A row of the table."""
    title = (folder / "issue.md").read_text().splitlines()[0].removeprefix("# ")
    facts = json.loads((folder / "report.json").read_text())
    command = f"`{facts['command']}`" if facts["command"] else "its `bundle.tar.gz` has the input"
    cells = [f"[{title}]({folder.name}/issue.md)", facts["evidence"], facts["date"]]
    words = [text.replace("|", "\\|") for text in (*cells, facts["state"], command)]
    return f"| {' | '.join(words)} |"


def page() -> str:
    """The whole page."""
    folders = sorted(path.parent for path in REPORTS.glob("*/report.json"))
    return HEAD + "\n".join(map(line, folders)) + "\n"


if __name__ == "__main__":
    (REPORTS / "README.md").write_text(page())
