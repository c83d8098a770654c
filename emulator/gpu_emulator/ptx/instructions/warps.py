"""What the lanes of a warp do together: shuffles, votes, matches, reductions.

PTX ISA, "Data Movement: shfl.sync" and "Parallel Synchronization and Communication: vote, match,
redux, activemask, elect, bar.warp". `gpu_emulator.state.lanes` has them.
"""

from __future__ import annotations

from gpu_emulator.ptx.program.binder import Parts, acts
from gpu_emulator.state.lanes import elected, matched, redux, shuffled, voted
from gpu_emulator.steps import DTYPES, Array, Registers


@acts(
    "shfl.sync.{mode:up|down|bfly|idx}.b32", takes="b32 b32 b32 b32", gives="b32 pred", meets=True
)
def _shuffle(registers: Registers, parts: Parts, *operands: Array) -> tuple[Array, Array]:
    return shuffled(registers, parts["mode"], *operands)


@acts("vote.sync.{how:all|any|uni}.{type:pred}", takes="pred b32", gives="pred", meets=True)
def _vote(registers: Registers, parts: Parts, flag: Array, members: Array) -> Array:
    return voted(registers, parts["how"], flag, members)[1]


@acts("vote.sync.{how:ballot}.{type:b32}", takes="pred b32", gives="b32", meets=True)
def _ballot(registers: Registers, _: Parts, flag: Array, members: Array) -> Array:
    return voted(registers, "any", flag, members)[0]


@acts(
    "match.{how:any}.sync.{type:b32|b64}", "match.{how:all}.sync.{type:b32|b64}",
    takes="type b32", gives="b32 pred", meets=True,
)  # fmt: skip
def _match(registers: Registers, parts: Parts, value: Array, members: Array) -> tuple[Array, Array]:
    return matched(registers, parts["how"], value, members)


@acts(
    "redux.sync.{how:add|min|max}.{type:u32|s32}", "redux.sync.{how:and|or|xor}.{type:b32}",
    "redux.sync.{how:min|max}?{abs:abs}?{nan:NaN}.{type:f32}",
    takes="type b32", gives="type", meets=True,
)  # fmt: skip
def _redux(registers: Registers, parts: Parts, value: Array, members: Array) -> Array:
    is_abs, is_nan = bool(parts.get("abs")), bool(parts.get("nan"))
    result = redux(registers, parts["how"], value, members, of_magnitudes=is_abs, keeps_nan=is_nan)
    return result.astype(DTYPES[parts["type"]], copy=False)


@acts("activemask.b32", gives="b32")
def _active_mask(registers: Registers, _: Parts) -> Array:
    return voted(registers, "any", registers[0].active())[0]


@acts("elect.sync", takes="b32", gives="b32 pred", meets=True)
def _elect(registers: Registers, _: Parts, members: Array) -> tuple[Array, Array]:
    return elected(registers, members)


@acts("bar.warp.sync", takes="b32", meets=True)
def _warp_barrier(*_: object) -> None:
    """Lanes wait for each other before it."""
