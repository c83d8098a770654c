"""When registers have collapsed, and in which words that is said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from gpu_emulator.ptx.text.facts import EDITS, edited, read_ptx, with_directive
from harness.bisect.collapse.facts import (
    TIMES_FILE,
    CollapseEvidence,
    Lift,
    MeasuredTimes,
    collapse_of,
    collapse_words,
    is_lifted,
    timed_change,
    times_file,
)
from harness.report.claims import ClaimKind, ClaimsTrial, Ledger, prove
from harness.report.dossier import Dossier
from harness.report.paragraphs import collapse_lines, collapse_title, expected_of_collapse
from harness.values.row import Row
from harness.values.verdict import VerdictKind

# As ptxas 12.9.86 does it: 64 threads on GPUs of 2,048 and of 1,536 threads an SM.
ROW = Row(
    cell="k/default/num_warps=2@sm_100a/triton-3.6.0/ptxas-12.9.86-bundled",
    short="01234567",
    kernel="k",
    launch="default",
    config={"num_warps": 2, "num_stages": 1},
    target="sm_100a",
    triton="3.6.0",
    ptxas="12.9.86",
    ptxas_origin="bundled",
    verdict=VerdictKind.SICK,
    reason="",
    n_regs=32,
    spill_stores=44_324,
    spill_loads=50_224,
    threads=64,
)


@pytest.mark.parametrize(
    ("target", "threads", "registers", "most", "blocks"),
    [
        ("sm_90a", 64, 32, 255, 32),
        ("sm_100a", 64, 32, 255, 32),
        ("sm_120a", 64, 40, 255, 24),
        ("sm_100a", 512, 32, 128, 4),
        # A block of one warp leaves half of an SM's threads empty, and so twice the registers.
        ("sm_100a", 32, 64, 255, 32),
    ],
)
def test_as_few_registers_as_keep_all_blocks_resident_are_a_collapse(
    target: str, threads: int, registers: int, most: int, blocks: int
) -> None:
    found = collapse_of(structs.replace(ROW, target=target, threads=threads, n_regs=registers))
    assert found is not None
    assert (found.registers, found.most, found.blocks) == (registers, most, blocks)


@pytest.mark.parametrize(
    "other",
    [
        {"n_regs": 255, "spill_stores": 7_962},
        {"n_regs": 40},
        {"n_regs": 24},
        {"target": "sm_120a"},
        {"spill_stores": 200, "spill_loads": 200},
        {"config": {"num_warps": 2, "maxnreg": 32}},
        # 64 is all that a thread of so large a block can have.
        {"threads": 1024, "n_regs": 64},
        {"threads": None},
        {"n_regs": None},
    ],
)
def test_what_was_asked_for_or_cannot_be_more_is_none(other: dict[str, object]) -> None:
    assert collapse_of(structs.replace(ROW, **other)) is None


def test_the_words_name_what_lifts_it() -> None:
    found = collapse_of(ROW)
    assert found is not None
    lifted = structs.replace(ROW, n_regs=255, spill_stores=7_962, spill_loads=9_136)
    assert is_lifted(ROW, lifted)
    assert not is_lifted(ROW, structs.replace(ROW, spill_stores=100))
    assert not is_lifted(ROW, structs.replace(lifted, spill_stores=30_000))
    first, second, third = collapse_words(
        found, ROW, [("--minnctapersm 1", lifted), ("-O1", lifted)], ["--minnctapersm 1", "-O1"]
    )
    assert first.startswith(
        "ptxas 12.9.86 gives 32 registers where a block of 64 threads could have 255: the most "
        "with which all 32 blocks of an SM are resident."
    )
    assert second == (
        "The collapse lifts with ptxas --minnctapersm 1: 32 -> 255 registers, 44,324 -> 7,962 B of "
        "spill stores (same PTX, byte for byte)."
    )
    assert third.startswith("It lifts likewise with ptxas -O1: ")
    assert collapse_words(found, ROW, [], ["-O1"])[1] == "It does not lift with ptxas -O1."


# --- in a report ------------------------------------------------------------------------------

PTX = """.version 8.8
.target sm_100a
.address_size 64
// .reqntid 32
.visible .entry k(
\t.param .u64 k_param_0
)
.reqntid 64
{
\tret;
}
"""


def test_a_directive_goes_behind_the_block_size_of_the_entry() -> None:
    changed = with_directive(PTX, ".minnctapersm 1")
    assert changed is not None
    assert changed.replace("\n.minnctapersm 1", "") == PTX
    assert ".reqntid 64\n.minnctapersm 1\n{" in changed
    assert read_ptx(changed).threads == 64
    # Which of two is meant is not known; and one that has no size is told nothing of blocks.
    assert with_directive(PTX + PTX, ".minnctapersm 1") is None
    assert with_directive(PTX.replace("\n.reqntid", "\n// .reqntid"), ".minnctapersm 1") is None


def test_an_edit_keeps_the_program_and_is_made_where_there_is_a_place_for_it() -> None:
    entries = {}
    for edit in EDITS:
        found = edited(PTX, "k", edit)
        assert found is not None
        entries[edit.words] = read_ptx(found[0], found[1]).entry
        # Nothing is said twice.
        assert edited(*found, edit) is None
    assert list(entries.values()) == ["k", "k", "k_cutlass"]


def dossier(*, directive: int) -> Dossier:
    """A dossier of a collapse whose PTX spills so much with the directive."""
    lifted = structs.replace(
        ROW, cell="lifted", n_regs=255, spill_stores=7_962, spill_loads=9_136, occupancy=0.125
    )
    with_it = structs.replace(lifted, cell="directive", spill_stores=directive)
    healthy = structs.replace(
        ROW, cell="healthy", config={"num_warps": 8}, n_regs=255, spill_stores=44
    )
    newer = structs.replace(ROW, cell="newer", ptxas="13.5.37", spill_stores=43_904)
    collapse = collapse_of(ROW)
    assert collapse is not None
    option = "--minnctapersm 1"
    found = CollapseEvidence(
        collapse=collapse,
        options=(Lift(words=option, before=ROW, after=lifted),),
        directive=Lift(words=".minnctapersm 1", before=ROW, after=with_it),
        versions=(
            Lift(words=option, before=newer, after=structs.replace(lifted, cell="newer with")),
        ),
        configs=(
            Lift(words=option, before=healthy, after=structs.replace(healthy, cell="healthy with")),
        ),
    )
    return Dossier(
        case=ROW,
        signature=None,
        function="k",
        summary="",
        origin=None,
        issue=None,
        shown_by="",
        made_by="",
        rows=(ROW, healthy),
        log="",
        banner="",
        ptxas_package=None,
        environment={},
        collapse=found,
    )


def test_a_report_says_what_the_ptx_lacks_and_every_line_rests_on_cells() -> None:
    ledger = Ledger()
    d = dossier(directive=7_962)
    lines = collapse_lines(ledger, d)
    assert "| nothing | 32 | 44,324 | 50,224 |  |" in lines
    assert "| `--minnctapersm 1` | 255 | 7,962 | 9,136 | 12.5% |" in lines
    assert "| `.minnctapersm 1` | 255 | 7,962 | 9,136 | 12.5% |" in lines
    assert "| 13.5.37 | 32 | 255 | 43,904 | 7,962 |" in lines
    assert lines[-1] == (
        "Configs without a collapse: 1. With the option: the same cubin, byte for byte: 1."
    )
    assert collapse_title(ledger, d) == (
        "No .minnctapersm beside .reqntid: k gets 32 of 255 registers on sm_100a and spills"
    )
    assert "255 registers and 7,962 B" in (expected_of_collapse(ledger, d) or "")
    assert {claim.kind for claim in ledger.claims} == {ClaimKind.FIGURES}
    named = {claim.cell for claim in ledger.claims}
    assert named >= {"lifted", "directive", "newer", "newer with", "healthy", "healthy with"}


def test_a_directive_that_mends_nothing_is_not_asked_for() -> None:
    d = dossier(directive=44_000)
    assert collapse_title(Ledger(), d) is None
    assert expected_of_collapse(Ledger(), d) is None
    assert collapse_lines(Ledger(), replace(d, collapse=None)) == []


def measured(ms: float) -> bytes:
    """Three samples of the kernel as it is, with the option, and with one that tells nothing."""
    left = ("0" * 64,)
    option = structs.replace(ROW, n_regs=255, spill_stores=7_962)
    found = MeasuredTimes(
        device="Test GPU",
        driver="580.1",
        day="2026-11-22",
        kernel="k",
        launch="default",
        config="num_warps=2",
        target="sm_90a",
        compiler="Triton 3.6.0",
        tool="ptxas 12.8.93",
        changes=(
            timed_change("", ROW, (40.0, 41.0, 42.0), left),
            timed_change("--minnctapersm 1", option, (ms, ms, ms), left),
            timed_change("-O2", ROW, (40.0, 41.0, 42.0), ("1" * 64,)),
        ),
    )
    return times_file(found)


def test_times_of_a_gpu_are_those_of_the_attached_samples() -> None:
    ledger = Ledger()
    lines = collapse_lines(ledger, replace(dossier(directive=7_962), times=measured(8.2)))
    assert any("for sm_90a" in line and "driver 580.1, 2026-11-22" in line for line in lines)
    assert lines[-3:] == [
        "| nothing | 32 | 44,324 | 41.000 | 40.000 - 41.500 | 3 |  |  |",
        "| `--minnctapersm 1` | 255 | 7,962 | 8.200 | 8.200 - 8.200 | 3 | 5.00 | the same |",
        "| `-O2` | 32 | 44,324 | 41.000 | 40.000 - 41.500 | 3 | ambiguous | others |",
    ]
    claims = [claim for claim in ledger.claims if claim.kind is ClaimKind.TIMES]
    text = "\n".join(lines)
    proof = prove(claims, ClaimsTrial(files={TIMES_FILE: measured(8.2)}), text)
    assert (proof.checked, proof.claims, proof.false) == (6, 6, ())
    # Other samples, a file that is none, and a file that is missing each make it false.
    for files in ({TIMES_FILE: measured(8.3)}, {TIMES_FILE: b"{}"}, {}):
        assert prove(claims, ClaimsTrial(files=files), text).false
