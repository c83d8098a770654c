from __future__ import annotations

from msgspec.structs import replace

from harness.binaries.binary_words import builds_document, builds_said, kernels_said
from harness.binaries.builds import BuildChanges, compare_builds
from harness.tables.said import Counted
from harness.values.binary import BinaryKernel

KERNEL = BinaryKernel(
    file="lib/a.so",
    name="k",
    target="sm_90a",
    n_regs=64,
    stack=0,
    static_shared=0,
    local_stores=0,
    local_loads=0,
    spills=0,
    code="one",
)
OTHER = replace(KERNEL, code="two")


def kinds(result: BuildChanges) -> list[str]:
    document = builds_document(result, ("a", "b"), ())
    return [change.kind for change in document.changes]


def test_the_same_code_is_no_change_wherever_it_lies() -> None:
    moved = replace(KERNEL, file="elsewhere.so", n_regs=1)
    assert compare_builds([KERNEL], [moved]) == BuildChanges(same=1, changes=())


def test_numbers_decide_what_is_worse() -> None:
    for change, kind in (
        ({"n_regs": 128}, "worse"),
        ({"n_regs": 32}, "better"),
        ({"n_regs": 65}, "other code"),
        ({"local_stores": 1}, "worse"),
        ({"stack": 8, "n_regs": None}, "other code"),
    ):
        assert kinds(compare_builds([KERNEL], [replace(OTHER, **change)])) == [kind]


def test_new_and_gone_are_neither() -> None:
    result = compare_builds([KERNEL], [replace(KERNEL, target="sm_100a")])
    assert (result.same, sorted(kinds(result))) == (0, ["gone", "new"])


def test_equal_code_is_paired_before_equal_names() -> None:
    """Two instances of one name: the one that did not change is not taken for the other."""
    result = compare_builds([KERNEL, OTHER], [replace(KERNEL, code="three", n_regs=72), KERNEL])
    assert result.same == 1
    (change,) = result.changes
    assert (change.older, change.worse) == (OTHER, True)


def test_hashes_of_a_build_are_no_names() -> None:
    name = "_ZN2ns42_GLOBAL__N__{}_6_file_cu_{}_{}4kernelEv"
    older = replace(
        KERNEL, name=name.format("0123abcd", "89abcdef", 17), file="x.libs/a-0a1b2c3d.so"
    )
    newer = replace(
        OTHER, name=name.format("ffff0000", "00001111", 942), file="x.libs/a-ffffffff.so"
    )
    assert kinds(compare_builds([older], [newer])) == ["other code"]


def test_what_is_said_counts_each_kernel_once() -> None:
    ones = [KERNEL, replace(KERNEL, name="gone"), replace(KERNEL, name="w")]
    others = [KERNEL, replace(OTHER, name="w", n_regs=255), replace(OTHER, name="new")]
    said = builds_said(compare_builds(ones, others), "a", "b", whole=False)
    counts = {block.line.text: block.count for block in said if isinstance(block, Counted)}
    assert counts == {"worse": 1, "new": 1, "gone": 1, "the same machine code": 1}


def test_a_long_list_is_shortened_and_says_so() -> None:
    kernels = [replace(KERNEL, demangled=f"k{n}", local_loads=n) for n in range(100)]
    shortened = str(kernels_said(kernels, whole=False))
    assert "--all" in shortened
    assert "k99" in shortened
    assert "'k1'" not in shortened
    whole = str(kernels_said(kernels, whole=True))
    assert "--all" not in whole
    assert "'k1'" in whole


def test_many_files_are_counted_together_and_named_at_their_kernels() -> None:
    kernels = [replace(KERNEL, file=f"{n}/k.cubin", local_loads=n) for n in range(30)]
    text = str(kernels_said(kernels, whole=False))
    assert "all 30" in text
    assert "29/k.cubin" in text
    assert "all 20" not in str(kernels_said(kernels[:20], whole=False))
