"""A cell that another machine compiled is shown, judged again and taken over as if it were ours."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import HERE

from harness.report.rejudged import row_of_evidence
from harness.store.stages import STAGES
from harness.store.store import Store

if TYPE_CHECKING:
    from conftest import Triage

pytestmark = pytest.mark.tools


def test_a_merged_cell_is_as_good_as_a_local_one(triage: Triage) -> None:
    there = replace(triage, env={**triage.env, "TRIAGE_HOME": str(triage.folder / "shard")})
    kernel = f"{HERE / 'kernels' / 'small.py'}::add"
    (row,) = there.compile("--kernel", kernel, "--sm", "80", "--jobs", "1", code=0)["cells"]
    merged = json.loads(triage("matrix", "merge", "shard", "--json").stdout)
    assert (merged["results"], merged["lacking"], merged["refused"]) == (1, 0, [])
    assert merged["artifacts"] > 0
    for stage in set(STAGES) - {"cubin"}:  # which is not text; the SASS is what it holds
        asked = ("show", row["cell"], "--stage", stage)
        local, here = there(*asked), triage(*asked)
        assert (here.returncode, here.stdout) == (local.returncode, local.stdout), stage
    assert triage("show", row["cell"], "--stage", "sass").stdout.strip()
    with Store.open(Path(triage.env["TRIAGE_HOME"])) as store:
        judged = row_of_evidence(store, row["cell"])
    assert judged
    assert judged.verdict == row["verdict"]
    # The same program is neither lowered nor assembled again.
    (again,) = triage.compile("--kernel", kernel, "--sm", "80", "--jobs", "1", code=0)["cells"]
    assert again["cached"]
