"""What lanes of a warp give each other, of those that are active: the callers have met before."""

from __future__ import annotations

from gpu_emulator.sass.binder import Binder, acting, acts, opcode
from gpu_emulator.state.lanes import elected, matched, redux, shuffled, voted
from gpu_emulator.steps import Array, Registers, Step

acts(
    "SHFL.{mode:IDX|UP|DOWN|BFLY}",
    signature="pred b32 = b32 b32 b32",
    by_parts=True,
    evidence="PTX ISA: shfl",
)(lambda rs, parts, *operands: shuffled(rs, parts["mode"].lower(), *operands)[::-1])


@opcode(
    "VOTE|VOTEU.{how:ALL|ANY|EQ}", evidence="PTX ISA: vote, activemask, of which ptxas makes it"
)
def _vote(line: Binder) -> Step:
    """A register gets the mask of lanes that say yes, a predicate whether all, any or all alike."""
    how = {"EQ": "uni"}.get(line.parts["how"], line.parts["how"].lower())
    has_mask = line.operands[0].kind in ("R", "UR")
    line.is_of_warps(line.operands[:-1])

    def vote(registers: Registers, flag: Array) -> tuple[Array, ...]:
        return voted(registers, how, flag)[0 if has_mask else 1 :]

    return acting(line, f"{'b32 ' * has_mask}pred = pred", vote)


@opcode("MATCH.{how:ANY|ALL}?{type:U64}", evidence="PTX ISA: match.sync, of which ptxas makes it")
def _match(line: Binder) -> Step:
    """The mask of lanes with the same value; of ALL it is empty unless all of them have it."""
    how = line.parts["how"].lower()

    def match(registers: Registers, value: Array) -> tuple[Array, ...]:
        return matched(registers, how, value)[:: -1 if how == "all" else 1]

    form = f"{'pred ' * (how == 'all')}b32 = {'b64' if line.parts['type'] else 'b32'}"
    return acting(line, form, match)


@opcode(
    "REDUX|CREDUX?{how:OR|XOR}", "REDUX|CREDUX.{how:SUM|MIN|MAX}?{type:S32}",
    evidence="PTX ISA: redux.sync, of which ptxas makes it; without a modifier it is `and`",
)  # fmt: skip
def _redux(line: Binder) -> Step:
    how = {"": "and", "SUM": "add"}.get(line.parts["how"], line.parts["how"].lower())
    form = f"b32 = {'s32' if line.parts.get('type') else 'u32'}"
    return acting(line, form, lambda registers, value: redux(registers, how, value))


acts(
    "ELECT", signature="P:pred UR:b32 = PT",
    evidence="PTX ISA: elect.sync, of which ptxas 12.8 to 13.5.37 makes it; not measured; which"
    " lane is elected is open",
)(lambda registers: elected(registers)[::-1])  # fmt: skip
