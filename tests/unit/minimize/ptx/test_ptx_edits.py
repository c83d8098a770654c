"""Edits of a PTX file that keep its program."""

from __future__ import annotations

from gpu_emulator.ptx.text.facts import EDITS, edited, read_ptx, with_directive

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
