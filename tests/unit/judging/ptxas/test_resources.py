from __future__ import annotations

from pathlib import Path

from gpu_emulator.ptx.text.facts import read_ptx
from harness.judging.ptxas.cubin import Cubin, CubinEntry, read_cubin
from harness.judging.ptxas.ptxas_log import PtxasLog, parse_ptxas_log
from harness.judging.ptxas.resources import combine
from harness.values.outcome import Resources

DATA = Path(__file__).parents[3] / "data"
NOTHING = PtxasLog(functions=(), messages=())
PTX = ".version 8.8\n.target sm_100a\n.entry k()\n.reqntid 128\n{ tcgen05.alloc.x [%r1], 64; ret; }"


def log(version: str, case: str) -> PtxasLog:
    return parse_ptxas_log((DATA / "ptxas_logs" / version / f"{case}.log").read_text())


def cubin(version: str, case: str) -> Cubin:
    return read_cubin((DATA / "cubins" / version / f"{case}.cubin").read_bytes())


def entry_of(image: Cubin, index: int = 0) -> CubinEntry:
    return image.entries[index]


def test_log_and_cubin_agree() -> None:
    image = cubin("13.1.115", "two_entries-sm_90a")
    found = log("13.1.115", "two_entries-sm_90a")
    for held in image.entries:
        usage = found.function(held.name)
        assert usage is not None
        needs = combine(entry=held.name, log=found, cubin=image, metadata={}, ptx=None)
        assert needs.disagreements == ()
        assert needs.n_regs == usage.n_regs == held.n_regs
        assert needs.static_shared == needs.shared == usage.static_shared


def test_silence_on_constants_is_not_zero() -> None:
    image = cubin("13.1.115", "two_entries-sm_90a")
    held = entry_of(image)
    usage = log("13.1.115", "two_entries-sm_90a")
    assert usage.functions[0].constants == ()
    needs = combine(entry=held.name, log=usage, cubin=image, metadata={}, ptx=None)
    assert needs.constant == sum(size for _, size in held.constants) > 0
    assert combine(entry=held.name, log=usage, cubin=None, metadata={}, ptx=None).constant is None


def test_spills_are_only_in_the_log() -> None:
    image = cubin("12.9.86", "spills-sm_80")
    name = entry_of(image).name
    with_log = combine(
        entry=name, log=log("12.9.86", "spills-sm_80"), cubin=image, metadata={}, ptx=None
    )
    assert with_log.spills is not None
    assert with_log.spills > 0
    without = combine(entry=name, log=NOTHING, cubin=image, metadata={}, ptx=None)
    assert without.spills is None
    assert without.n_regs == with_log.n_regs


def test_shared_memory_is_static_and_dynamic() -> None:
    text = (
        "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
        "ptxas info    : Used 8 registers, 16 bytes smem\n"
    )
    usage = parse_ptxas_log(text)
    needs = combine(entry="k", log=usage, cubin=None, metadata={"shared": 1000}, ptx=None)
    assert (needs.shared, needs.static_shared) == (1016, 16)
    raw = combine(entry="k", log=usage, cubin=None, metadata={}, ptx=None)
    assert (raw.shared, raw.static_shared) == (16, 16)
    other = combine(entry="other", log=usage, cubin=None, metadata={}, ptx=None)
    assert other == Resources()


def test_tensor_memory_and_threads() -> None:
    facts = read_ptx(PTX)
    metadata = {"shared": 0, "tmem_size": 544}
    needs = combine(entry="k", log=NOTHING, cubin=None, metadata=metadata, ptx=facts)
    assert (needs.tmem_columns, needs.threads, needs.shared) == (544, 128, 0)
    raw = combine(entry="k", log=NOTHING, cubin=None, metadata={}, ptx=facts)
    assert (raw.tmem_columns, raw.shared) == (64, None)
    odd: dict[str, object] = {"shared": "1000", "tmem_size": True}
    assert combine(entry="k", log=NOTHING, cubin=None, metadata=odd, ptx=None) == Resources()


def test_disagreements_are_told() -> None:
    image = cubin("13.1.115", "two_entries-sm_80")
    held = entry_of(image)
    text = (
        f"ptxas info    : Compiling entry function '{held.name}' for 'sm_80'\n"
        "ptxas info    : Used 99 registers\n"
    )
    needs = combine(entry=held.name, log=parse_ptxas_log(text), cubin=image, metadata={}, ptx=None)
    assert f"registers: the log says 99, the cubin {held.n_regs}" in needs.disagreements
    assert needs.n_regs == 99


# As ptxas 13.1.115 -v printed it for two entries, of which `one` calls `mid`, which calls `leaf`.
CALLS = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas info    : Function properties for one
    1000 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 1064 bytes cumulative stack size
ptxas info    : Function properties for leaf
    0 bytes stack frame, 924 bytes spill stores, 900 bytes spill loads
ptxas info    : Function properties for mid
    64 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
"""


def test_spills_and_stack_of_called_functions_count() -> None:
    found = parse_ptxas_log(CALLS)
    one = combine(entry="one", log=found, cubin=None, metadata={}, ptx=None)
    assert (one.spill_stores, one.spill_loads, one.stack) == (932, 904, 1064)
    assert one.spilling_callees == ("leaf", "mid")
    two = combine(entry="two", log=found, cubin=None, metadata={}, ptx=None)
    assert (two.spill_stores, two.spill_loads, two.stack) == (0, 0, 0)
    assert two.spilling_callees == ()


def test_an_unknown_callee_leaves_the_total_unknown() -> None:
    cut = CALLS.partition("    64 bytes")[0]
    needs = combine(entry="one", log=parse_ptxas_log(cut), cubin=None, metadata={}, ptx=None)
    assert needs.spill_stores is None
