from __future__ import annotations

from pathlib import Path

import pytest
from made_binaries import CUBINS, cubin

from harness.judging.ptxas.binary import (
    kernels_of_cubin,
    plain_name,
    read_embedded,
    selects,
    with_ptx,
)
from harness.judging.ptxas.cubin import CubinError, read_cubin
from harness.judging.ptxas.ptxas_log import parse_ptxas_log

LOGS = CUBINS.parent / "ptxas_logs"
# Below these, the cubin says neither which tool wrote it nor in which version.
NOTES_SINCE = {"sm_100a", "sm_103a", "sm_120"}
MANGLED = "_ZN2ns4nameIfLi3EEEvPKT_i"
DEMANGLED = "void ns::name<float, 3>(float const*, int)"


@pytest.mark.parametrize("path", sorted(CUBINS.glob("*/*.cubin")), ids=lambda path: path.stem)
def test_a_cubin_agrees_with_the_log_of_its_ptxas(path: Path) -> None:
    log = parse_ptxas_log((LOGS / path.parent.name / f"{path.stem}.log").read_text())
    kernels = kernels_of_cubin(path.read_bytes(), "f")
    target = path.stem.rpartition("-")[2]
    assert [kernel.name for kernel in kernels] == [
        entry.name for entry in read_cubin(path.read_bytes()).entries
    ]
    for kernel in kernels:
        usage = log.function(kernel.name)
        assert usage is not None
        assert (kernel.target, kernel.n_regs) == (target, usage.n_regs)
        assert kernel.stack == max(usage.stack or 0, usage.cumulative_stack or 0)
        notes = path.parent.name >= "13" or target in NOTES_SINCE
        assert kernel.made_by == (path.parent.name if notes else None)
        spills = sum(f.spill_stores or 0 for f in (usage, *log.called_by(kernel.name)))
        # What accesses local memory may be an array: then it is not known.
        accesses = (kernel.local_stores or 0) + (kernel.local_loads or 0)
        assert kernel.spills == (None if accesses else 0)
        assert accesses or not spills


def test_a_damaged_cubin_is_refused() -> None:
    data = cubin("13.5.37/two_entries-sm_100a")
    whole, refused = kernels_of_cubin(data, "f"), 0
    for left in range(0, len(data), 97):
        try:
            assert kernels_of_cubin(data[:left], "f") == whole  # what was cut off is not read
        except CubinError:
            refused += 1
    assert refused > len(data) // 97 // 2


def test_the_code_follows_instructions_and_not_names() -> None:
    data = cubin("13.1.115/two_entries-sm_90")
    one = {kernel.name: kernel.code for kernel in kernels_of_cubin(data, "f")}
    assert len(set(one.values())) == len(one) == 2
    name = next(iter(one)).encode()
    renamed = data.replace(name, name[:-1] + b"Z")
    other = {kernel.name: kernel.code for kernel in kernels_of_cubin(renamed, "g")}
    assert list(other.values()) == list(one.values())
    assert list(other) != list(one)


def test_ptx_and_its_kernels() -> None:
    text = (
        b"// .target sm_10\n.version 8.7\n.target sm_90a, debug\n"
        b".visible .entry one(\n)\n{ret;}\n.weak .entry two ( ) {ret;}\n.func three() {ret;}\n\0\0"
    )
    module = read_embedded(text, "f")
    assert module is not None
    assert (module.target, module.entries) == ("sm_90a", ("one", "two"))
    assert not module.text.endswith(b"\0")
    assert read_embedded(b".version 8.7\n.target sm_90a\n", "f") is None
    assert read_embedded(b"", "f") is None


def test_a_kernel_has_the_ptx_of_its_own_file() -> None:
    kernels = kernels_of_cubin(cubin("13.1.115/two_entries-sm_90"), "a/k.cubin")
    name = kernels[0].name
    text = b".version 8.7\n.target sm_80\n.entry %s() {ret;}\n.entry alone() {ret;}"
    module = read_embedded(text % name.encode(), "a/k.ptx")
    assert module is not None
    found = {kernel.name: kernel for kernel in with_ptx(kernels, [module])}
    assert [found[kernel.name].ptx for kernel in kernels] == [("sm_80",), ()]
    assert (found["alone"].target, found["alone"].ptx) == (None, ("sm_80",))


@pytest.mark.parametrize(
    ("pattern", "is_it"),
    [("name", True), ("n*e", True), (MANGLED, True), ("*float, 3*", True), ("ns", False),
     ("nam", False)],
)  # fmt: skip
def test_a_kernel_is_named_in_several_ways(pattern: str, is_it: bool) -> None:
    assert selects([pattern], MANGLED, DEMANGLED) is is_it
    assert selects([pattern, "other"], MANGLED, DEMANGLED) is is_it
    assert selects([], MANGLED, DEMANGLED)


@pytest.mark.parametrize(
    ("words", "plain"),
    [
        (DEMANGLED, "name"),
        ("kernel", "kernel"),
        ("ns::(anonymous namespace)::other(int)", "other"),
        ("void (anonymous namespace)::f<(ns::E)0>(void (*)(int))", "f"),
    ],
)
def test_a_plain_name(words: str, plain: str) -> None:
    assert plain_name(words) == plain
