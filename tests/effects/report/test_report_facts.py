"""What a report knows of the failing ptxas, and which version its history follows."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from local_index import LocalIndex, tool_wheel, triton_wheel
from msgspec.structs import replace
from report_cases import CRASH, IN_TILELANG, IN_TRITON, ONE_STAGE, RIGHT, WRONG

from harness.blame.blame_words import Blame
from harness.blame.grid import Culprit, Ground
from harness.io.toolchains.install import install_ptxas
from harness.report import dossier as ways
from harness.report import gather
from harness.report.dossier import Upstream
from harness.report.gather import check_blamed, check_upstream, ptxas_facts
from harness.values.errors import UsageError

pytest_plugins = ["local_index_fixtures"]
BANNER = "Cuda compilation tools, release 13.1, V13.1.80\nBuild cuda_13.1.r13.1/compiler.1_0"
RAN = replace(CRASH, ptxas="13.1.80")


@pytest.fixture
def index(local_index: LocalIndex, empty_cache: Path) -> LocalIndex:
    """One ptxas, 13.1.80, and one Triton, 3.6.0."""
    local_index.add(*tool_wheel("13.1.80", says=BANNER))
    local_index.add(*triton_wheel("3.6.0"))
    return local_index


def selection(*ptxas: Any, **more: object) -> Any:
    return SimpleNamespace(ptxas=ptxas or (None,), **more)


def test_the_ptxas_that_failed_says_its_version_and_comes_from_a_distribution(
    index: LocalIndex,
) -> None:
    # A Triton bundles it, and the index has it too.
    assert ptxas_facts(selection(), RAN) == (f"{BANNER}\n", "nvidia-cuda-nvcc")
    named = selection(install_ptxas("13.1.80"))
    assert ptxas_facts(named, RAN) == (f"{BANNER}\n", "nvidia-cuda-nvcc")


def test_of_a_ptxas_that_never_ran_or_that_the_index_lacks_nothing_is_said(
    index: LocalIndex,
) -> None:
    assert ptxas_facts(selection(), replace(RAN, ptxas_flags=())) == ("", None)
    assert ptxas_facts(selection(), replace(RAN, ptxas="13.1.81")) == ("", None)


def test_what_is_installed_needs_no_index(
    index: LocalIndex, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_ptxas("13.1.80")
    shutil.rmtree(empty_cache / "index")
    index.down = True
    monkeypatch.setenv("TRIAGE_OFFLINE", "1")
    assert ptxas_facts(selection(), RAN) == (f"{BANNER}\n", "nvidia-cuda-nvcc")
    assert ptxas_facts(selection(), replace(RAN, ptxas="13.1.81")) == ("", None)


@pytest.mark.parametrize(
    ("axis", "case", "bad"),
    [
        ("ptxas", RAN, "13.1.80"),
        ("ptxas", replace(RAN, ptxas="13.1.81"), None),
        ("triton", RAN, "3.6.0"),
        ("triton", replace(RAN, triton="3.6.1", compiler_version="3.6.1"), None),
    ],
)
def test_the_history_follows_the_cases_own_version_where_the_axis_has_it(
    index: LocalIndex,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    axis: str,
    case: Any,
    bad: str | None,
) -> None:
    asked = []

    async def bisect(mine: Any, store: Any, how: Any, options: Any, tell: Any, log: Any) -> str:
        asked.append(options)
        return "the history"

    monkeypatch.setenv("TRIAGE_HOME", str(tmp_path / "results"))
    monkeypatch.setattr(gather, "bisect_versions", bisect)
    monkeypatch.setattr(gather, "current_results", lambda *_: [])
    nothing: dict[str, Any] = dict.fromkeys(("store", "how", "tell", "minimized", "words"))
    what = gather.Case(**nothing, selection=selection(), signature="5" * 12)
    work: Any = SimpleNamespace(asked=what, case=case)
    found: Any = asyncio.run(gather._Gathering.bisect(work, axis))
    assert found == "the history"
    [given] = asked
    assert (given.axis, given.bad, given.signature) == (axis, bad, "5" * 12)
    assert len(list((tmp_path / "results" / "bisections").glob(f"report-*-{axis}-*.jsonl"))) == 1


def test_a_report_to_nvidia_wants_a_failure_of_ptxas() -> None:
    mine = selection(repro=SimpleNamespace(ptx=None, name="scan"))
    with pytest.raises(UsageError, match=r"--for nvidia: .*report it with --for triton"):
        check_upstream(mine, IN_TRITON.case, Upstream.NVIDIA, None)
    for upstream in Upstream:
        check_upstream(mine, CRASH, upstream, None)
        if upstream is not Upstream.NVIDIA:
            check_upstream(mine, IN_TRITON.case, upstream, None)


def test_a_compiler_whose_form_is_known_hears_of_its_own_failures() -> None:
    mine, case = selection(repro=SimpleNamespace(ptx=None, name="scan")), IN_TILELANG.case
    check_upstream(mine, case, Upstream.COMPILER, None)
    for upstream in (Upstream.NVIDIA, Upstream.TRITON):
        with pytest.raises(UsageError, match="report it with --for tilelang"):
            check_upstream(mine, case, upstream, None)


def test_a_report_to_triton_wants_a_kernel_that_triton_compiled() -> None:
    mine = selection(repro=SimpleNamespace(ptx="case.ptx", name="case.ptx"))
    with pytest.raises(UsageError, match=r"--for triton: .*report it with --for nvidia"):
        check_upstream(mine, CRASH, Upstream.TRITON, None)
    check_upstream(mine, CRASH, Upstream.NVIDIA, None)


def test_what_the_kernel_is_to_blame_for_goes_to_its_maintainers_alone() -> None:
    kernel = Blame(
        culprit=Culprit.KERNEL, ground=Ground.LIMIT, headline="The kernel is to blame.", reasons=()
    )
    blamed = dataclasses.replace(IN_TRITON, blame=kernel)
    for upstream in (Upstream.NVIDIA, Upstream.TRITON):
        with pytest.raises(UsageError, match=r"The kernel is to blame\. .* with --for project"):
            check_blamed(blamed, upstream)
    check_blamed(blamed, Upstream.PROJECT)


def test_options_with_which_blame_saw_it_right_are_workarounds() -> None:
    twice = replace(ONE_STAGE, config={"num_warps": 2, "num_stages": 1}, cell="both")
    elsewhere = replace(ONE_STAGE, target="sm_80", cell="elsewhere")
    [way] = ways.options_that_work(WRONG, (WRONG, RIGHT, twice, elsewhere, ONE_STAGE))
    assert (way.change, way.row) == ("num_stages unset -> 1", ONE_STAGE)
    assert way.evidence.startswith("emulated PTX on these inputs: agrees with")


def test_a_filed_report_of_the_same_signature_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, signature in (("one", "abc"), ("two", "def"), ("three", None)):
        folder = tmp_path / "reports" / name
        folder.mkdir(parents=True)
        facts = {"signature": signature, "state": "not filed"}
        (folder / gather.FACTS).write_text(json.dumps(facts))
    assert list(gather.filed_alike("abc")) == [
        "reports/one has a failure with this signature (not filed)"
    ]
    assert not list(gather.filed_alike(None))
    (tmp_path / "reports" / "two" / gather.FACTS).write_text('{"signature": "abc"}')
    assert list(gather.filed_alike("abc")) == [
        "several reports have this signature; compare: reports/one, reports/two"
    ]
    (tmp_path / "reports" / "two" / gather.FACTS).write_text("{}")
    (tmp_path / "reports" / "one" / gather.FACTS).write_text("[")
    assert not list(gather.filed_alike("abc"))
