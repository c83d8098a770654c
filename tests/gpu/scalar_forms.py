"""Every form of a scalar instruction of PTX: its whole opcode and the kinds of its operands.

A template is spelled as the emulator's own are: `.{name:a|b}` is one of these modifiers,
`?{name:a|b}` one or none. Templates are wider than the ISA (any combination of modifiers): ptxas
says which of them there are. Kinds of operands: a PTX type, `pred`, the name of a modifier (its
type), or one of

    nonzero:K   a K that is not zero
    small:K     an f32 between 1 and 2, or -2 and -1
    imm:A-B     an integer constant between A and B
    word:W      the text W
    sel:K       a K with a byte or half selected (video instructions)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["FORMS", "Form", "all_forms"]


@dataclass(frozen=True, slots=True)
class Form:
    """An opcode with what it writes (`result` None: nothing) and reads.

    `is_exact`: every bit of the result is specified but those of a NaN. `is_warp`: all lanes of a
    warp must execute it together.
    """

    opcode: str
    result: str | None
    operands: tuple[str, ...]
    is_exact: bool = True
    is_warp: bool = False
    sets_carry: bool = False
    takes_carry: bool = False


_INTS = "u16|u32|u64|s16|s32|s64"
_COMPARE = "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"
_ROUND = "rn|rz|rm|rp"
_HALVES = "f16|f16x2|bf16|bf16x2"
_ROOM = "u8|u16|u32|u64|s8|s16|s32|s64"
_FLOATS = "f16|bf16|f32|f64"
_VIDEO = "u32|s32"
_DAB = "{d:u32|s32}.{a:u32|s32}.{b:u32|s32}"
_OF_TWO = "vadd|vsub|vabsdiff|vmin|vmax"
_WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}

# Template, result, operands and properties.
FORMS: list[tuple[str, str | None, str, str]] = [
    # Integer arithmetic
    (f"[add|sub|mul.lo|mul.hi|min|max].{{t:{_INTS}}}", "t", "t t", ""),
    ("[add|sub].sat.{t:s32|u32|s64|u64|s16|u16}", "t", "t t", ""),
    ("[add|sub|min|max].{t:u16x2|s16x2}", "t", "t t", ""),
    ("[add|sub].sat.{t:u16x2|s16x2}", "t", "t t", ""),
    ("[min|max].relu.{t:s16x2|s32|s16|s64}", "t", "t t", ""),
    ("mul.wide.{t:u16|s16|u32|s32}", "wide:t", "t t", ""),
    (f"mad.[lo|hi].{{t:{_INTS}}}", "t", "t t t", ""),
    ("mad.wide.{t:u16|s16|u32|s32}", "wide:t", "t t wide:t", ""),
    ("mad.hi.sat.{t:s32}", "t", "t t t", ""),
    ("mul24.[lo|hi].{t:u32|s32}", "t", "t t", ""),
    ("mad24.[lo|hi].{t:u32|s32}", "t", "t t t", ""),
    ("mad24.hi.sat.{t:s32}", "t", "t t t", ""),
    (f"sad.{{t:{_INTS}}}", "t", "t t t", ""),
    (f"[div|rem].{{t:{_INTS}}}", "t", "t nonzero:t", ""),
    ("[abs|neg].{t:s16|s32|s64}", "t", "t", ""),
    ("[popc|clz].{t:b32|b64}", "u32", "t", ""),
    ("brev.{t:b32|b64}", "t", "t", ""),
    ("bfind?{s:shiftamt}.{t:u32|u64|s32|s64}", "u32", "t", ""),
    ("fns.b32", "b32", "b32 imm:0-31 imm:-3-3", ""),
    ("bfe.{t:u32|u64|s32|s64}", "t", "t byte byte", ""),
    ("bfi.{t:b32|b64}", "t", "t t byte byte", ""),
    ("szext.[clamp|wrap].{t:u32|s32}", "t", "t u32", ""),
    ("bmsk.[clamp|wrap].b32", "b32", "u32 u32", ""),
    ("dp4a.{a:u32|s32}.{b:u32|s32}", "a", "a b a", ""),
    ("dp2a.[lo|hi].{a:u32|s32}.{b:u32|s32}", "a", "a b a", ""),
    # Extended precision
    ("[add|sub].cc.{t:u32|s32|u64|s64}", "t", "t t", "sets"),
    ("[addc|subc]?{c:cc}.{t:u32|s32|u64|s64}", "t", "t t", "takes sets?"),
    ("mad.[lo|hi].cc.{t:u32|s32|u64|s64}", "t", "t t t", "sets"),
    ("madc.[lo|hi]?{c:cc}.{t:u32|s32|u64|s64}", "t", "t t t", "takes sets?"),
    # Single and double precision
    ("testp.[finite|infinite|number|notanumber|normal|subnormal].{t:f32|f64}", "pred", "t", ""),
    ("copysign.{t:f32|f64}", "t", "t t", ""),
    (f"[add|sub|mul]?{{r:{_ROUND}}}?{{f:ftz}}?{{s:sat}}.{{t:f32}}", "t", "t t", "round"),
    (f"[add|sub|mul]?{{r:{_ROUND}}}.{{t:f64}}", "t", "t t", "round"),
    ("fma.[rn|rz|rm|rp]?{f:ftz}?{s:sat}.{t:f32}", "t", "t t t", ""),
    ("[fma|mad].[rn|rz|rm|rp].{t:f64}", "t", "t t t", ""),
    ("mad.[rn|rz|rm|rp]?{f:ftz}?{s:sat}.{t:f32}", "t", "t t t", ""),
    ("[add|sub|mul].{t:f32x2}", "b64", "b64 b64", ""),
    ("div.[rn|rz|rm|rp]?{f:ftz}.{t:f32}", "t", "t t", ""),
    ("div.[rn|rz|rm|rp].{t:f64}", "t", "t t", ""),
    ("div.[approx|full]?{f:ftz}.{t:f32}", "t", "small:t small:t", "band"),
    ("[rcp|sqrt].[rn|rz|rm|rp]?{f:ftz}.{t:f32}", "t", "t", ""),
    ("[rcp|sqrt].[rn|rz|rm|rp].{t:f64}", "t", "t", ""),
    ("[rcp|sqrt|rsqrt|lg2|ex2].approx?{f:ftz}.{t:f32}", "t", "t", "band"),
    ("[sin|cos].approx?{f:ftz}.{t:f32}", "t", "small:t", "band"),
    ("tanh.approx.{t:f32|f16|bf16}", "t", "t", "band"),
    ("[rcp|rsqrt].approx.ftz.{t:f64}", "t", "t", "band"),
    ("ex2.approx?{f:ftz}.{t:f16|bf16}", "t", "t", "band"),
    ("[abs|neg]?{f:ftz}.{t:f32|f64|f16|f16x2|bf16|bf16x2}", "t", "t", ""),
    ("[min|max]?{f:ftz}?{n:NaN}?{x:xorsign.abs}.{t:f32|f16|f16x2|bf16|bf16x2}", "t", "t t", ""),
    ("[min|max].{t:f64}", "t", "t t", ""),
    # Half precision
    (f"[add|sub|mul]?{{r:rn}}?{{f:ftz}}?{{s:sat}}.{{t:{_HALVES}}}", "t", "t t", "round"),
    (f"fma.rn?{{f:ftz}}?{{s:sat|relu}}.{{t:{_HALVES}}}", "t", "t t t", ""),
    (f"fma.rn.oob?{{s:relu}}.{{t:{_HALVES}}}", "t", "t t t", ""),
    # Comparison and selection
    (f"setp.{{c:{_COMPARE}}}?{{f:ftz}}.{{t:{_INTS}|b16|b32|b64|f16|bf16|f32|f64}}",
     "pred", "t t", ""),
    (f"setp.{{c:{_COMPARE}}}.{{o:and|or|xor}}?{{f:ftz}}.{{t:{_INTS}|b16|b32|b64|f16|bf16|f32|f64}}",
     "pred", "t t pred", ""),
    (f"setp.{{c:{_COMPARE}}}.ftz.{{o:and|or|xor}}.{{t:f32|f16}}", "pred", "t t pred", ""),
    (f"setp.{{c:{_COMPARE}}}?{{f:ftz}}.{{t:f16x2|bf16x2}}", "pred|pred", "t t", ""),
    (f"setp.{{c:{_COMPARE}}}.{{o:and|or|xor}}?{{f:ftz}}.{{t:f16x2|bf16x2}}",
     "pred|pred", "t t pred", ""),
    (f"set.{{c:{_COMPARE}}}?{{f:ftz}}.{{d:u32|s32|f32}}.{{t:{_INTS}|b16|b32|b64|f32|f64}}",
     "d", "t t", ""),
    (f"set.{{c:{_COMPARE}}}.{{o:and|or|xor}}?{{f:ftz}}.{{d:u32|s32|f32}}.{{t:{_INTS}|b16|b32|b64|f32|f64}}",
     "d", "t t pred", ""),
    (f"set.{{c:{_COMPARE}}}?{{f:ftz}}.{{d:f16|bf16|u16|s16|u32|s32}}.{{t:f16|bf16}}",
     "d", "t t", ""),
    (f"set.{{c:{_COMPARE}}}.{{o:and|or|xor}}?{{f:ftz}}.{{d:f16|bf16|u16|s16|u32|s32}}.{{t:f16|bf16}}",
     "d", "t t pred", ""),
    (f"set.{{c:{_COMPARE}}}?{{f:ftz}}.{{t:f16x2|bf16x2}}.f16x2", "t", "t t", ""),
    (f"set.{{c:{_COMPARE}}}.{{o:and|or|xor}}?{{f:ftz}}.{{t:f16x2}}.f16x2", "t", "t t pred", ""),
    (f"set.{{c:{_COMPARE}}}.{{t:bf16x2}}.bf16x2", "t", "t t", ""),
    (f"selp.{{t:b16|b32|b64|{_INTS}|f32|f64}}", "t", "t t pred", ""),
    (f"slct.{{t:b16|b32|b64|{_INTS}|f32|f64}}.s32", "t", "t t s32", ""),
    (f"slct?{{f:ftz}}.{{t:b16|b32|b64|{_INTS}|f32|f64}}.f32", "t", "t t f32", ""),
    # Logic and shift
    ("[and|or|xor].{t:pred|b16|b32|b64}", "t", "t t", ""),
    ("not.{t:pred|b16|b32|b64}", "t", "t", ""),
    ("cnot.{t:b16|b32|b64}", "t", "t", ""),
    ("lop3.b32", "b32", "b32 b32 b32 imm:0-255", ""),
    ("lop3.[or|and].b32", "b32|pred", "b32 b32 b32 imm:0-255 pred", ""),
    ("shl.{t:b16|b32|b64}", "t", "t shift", ""),
    ("shr.{t:b16|b32|b64|u16|u32|u64|s16|s32|s64}", "t", "t shift", ""),
    ("shf.[l|r].[clamp|wrap].b32", "b32", "b32 b32 shift", ""),
    # Moves and conversions
    ("mov.{t:pred|b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64}", "t", "t", ""),
    ("prmt.b32?{m:f4e|b4e|rc8|ecl|ecr|rc16}", "b32", "b32 b32 b32", ""),
    (f"cvt?{{s:sat}}.{{d:{_ROOM}}}.{{a:{_ROOM}}}", "d", "a", ""),
    (f"cvt.[{_ROUND}]?{{s:sat}}.{{d:{_FLOATS}}}.{{a:{_ROOM}}}", "d", "a", ""),
    (f"cvt.[rni|rzi|rmi|rpi]?{{f:ftz}}?{{s:sat}}.{{d:{_ROOM}|{_FLOATS}}}.{{a:{_FLOATS}}}",
     "d", "a", ""),
    (f"cvt?{{r:{_ROUND}}}?{{f:ftz}}?{{s:sat}}.{{d:{_FLOATS}}}.{{a:{_FLOATS}}}", "d", "a", ""),
    ("cvt.[rn|rz]?{l:relu}?{s:satfinite}.{d:f16|bf16}.f32", "d", "f32", ""),
    ("cvt.[rn|rz]?{l:relu}?{s:satfinite}.{d:f16x2|bf16x2}.f32", "d", "f32 f32", ""),
    ("cvt.[rna|rn|rz]?{l:relu}?{s:satfinite}.tf32.f32", "tf32", "f32", ""),
    ("cvt.rn.satfinite?{l:relu}.{d:e4m3x2|e5m2x2}.f32", "b16", "f32 f32", ""),
    ("cvt.rn.satfinite?{l:relu}.{d:e4m3x2|e5m2x2}.f16x2", "b16", "f16x2", ""),
    ("cvt.rn?{l:relu}.f16x2.[e4m3x2|e5m2x2]", "f16x2", "b16", ""),
    ("cvt.pack.sat.{d:u16|s16}.s32", "b32", "s32 s32", ""),
    ("cvt.pack.sat.{d:u8|s8|u4|s4|u2|s2}.s32.b32", "b32", "s32 s32 b32", ""),
    # Warps
    ("shfl.sync.[up|down|bfly|idx].b32", "b32", "b32 shift5 clamp full", "warp"),
    ("vote.sync.[all|any|uni].pred", "pred", "pred full", "warp"),
    ("vote.sync.ballot.b32", "b32", "pred full", "warp"),
    ("match.any.sync.{t:b32|b64}", "b32", "t full", "warp"),
    ("match.all.sync.{t:b32|b64}", "b32|pred", "t full", "warp"),
    ("redux.sync.[add|min|max].{t:u32|s32}", "t", "t full", "warp"),
    ("redux.sync.[and|or|xor].b32", "b32", "b32 full", "warp"),
    ("activemask.b32", "b32", "", "warp"),
    # Video
    (f"[{_OF_TWO}].{_DAB}?{{s:sat}}",
     "d", "sel:a sel:b", ""),
    (f"[{_OF_TWO}].{_DAB}?{{s:sat}}.[add|min|max]",
     "d", "sel:a sel:b d", ""),
    (f"[{_OF_TWO}].{_DAB}?{{s:sat}}",
     "sel:d", "sel:a sel:b d", ""),
    (f"[vshl|vshr].{{d:{_VIDEO}}}.{{a:{_VIDEO}}}.u32?{{s:sat}}.[clamp|wrap]",
     "d", "sel:a sel:u32", ""),
    (f"[vshl|vshr].{{d:{_VIDEO}}}.{{a:{_VIDEO}}}.u32?{{s:sat}}.[clamp|wrap].[add|min|max]",
     "d", "sel:a sel:u32 d", ""),
    (f"[vshl|vshr].{{d:{_VIDEO}}}.{{a:{_VIDEO}}}.u32?{{s:sat}}.[clamp|wrap]",
     "sel:d", "sel:a sel:u32 d", ""),
    (f"vmad.{_DAB}?{{s:sat}}?{{h:shr7|shr15}}",
     "d", "sel:a sel:b d", ""),
    (f"vmad.{_DAB}.po?{{s:sat}}?{{h:shr7|shr15}}",
     "d", "sel:a sel:b d", ""),
    (f"vset.{{a:{_VIDEO}}}.{{b:{_VIDEO}}}.[eq|ne|lt|le|gt|ge]", "u32", "sel:a sel:b", ""),
    (f"vset.{{a:{_VIDEO}}}.{{b:{_VIDEO}}}.[eq|ne|lt|le|gt|ge].[add|min|max]",
     "u32", "sel:a sel:b u32", ""),
    (f"vset.{{a:{_VIDEO}}}.{{b:{_VIDEO}}}.[eq|ne|lt|le|gt|ge]", "sel:u32", "sel:a sel:b u32", ""),
    (f"[vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2].{_DAB}?{{s:sat}}",
     "mask2:d", "pick2:a pick2:b d", ""),
    (f"[vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2].{_DAB}.add",
     "d", "pick2:a pick2:b d", ""),
    (f"vset2.{{a:{_VIDEO}}}.{{b:{_VIDEO}}}.[eq|ne|lt|le|gt|ge]",
     "mask2:u32", "pick2:a pick2:b u32", ""),
    (f"vset2.{{a:{_VIDEO}}}.{{b:{_VIDEO}}}.[eq|ne|lt|le|gt|ge].add",
     "u32", "pick2:a pick2:b u32", ""),
    (f"[vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4].{_DAB}?{{s:sat}}",
     "mask4:d", "pick4:a pick4:b d", ""),
    (f"[vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4].{_DAB}.add",
     "d", "pick4:a pick4:b d", ""),
    (f"vset4.{{a:{_VIDEO}}}.{{b:{_VIDEO}}}.[eq|ne|lt|le|gt|ge]",
     "mask4:u32", "pick4:a pick4:b u32", ""),
    (f"vset4.{{a:{_VIDEO}}}.{{b:{_VIDEO}}}.[eq|ne|lt|le|gt|ge].add",
     "u32", "pick4:a pick4:b u32", ""),
    # Memory: each lane has a slot of its own
    (f"ld?{{v:volatile}}.[local|shared|global].{{t:b8|b16|b32|b64|{_ROOM}|f32|f64}}",
     "t", "slot", ""),
    ("ld.[local|shared|global].v2.{t:b8|b16|b32|b64|u8|u16|u32|s8|s16|s32|f32}",
     "{t,t}", "slot", ""),
    ("ld.[local|shared|global].v4.{t:b8|b16|b32|u8|s16|f32}", "{t,t,t,t}", "slot", ""),
    (f"st?{{v:volatile}}.[local|shared|global].{{t:b8|b16|b32|b64|{_ROOM}|f32|f64}}",
     None, "slot t", ""),
    ("st.[local|shared|global].v2.{t:b8|b16|b32|b64|u16|f32}", None, "slot {t,t}", ""),
    ("st.[local|shared|global].v4.{t:b8|b16|b32|f32}", None, "slot {t,t,t,t}", ""),
    ("atom.[shared|global].[and|or|xor].{t:b32|b64}", "t", "slot t", ""),
    ("atom.[shared|global].[add|min|max].{t:u32|s32|u64|s64}", "t", "slot t", ""),
    ("atom.[shared|global].[inc|dec].u32", "u32", "slot u32", ""),
    ("atom.[shared|global].exch.{t:b32|b64}", "t", "slot t", ""),
    ("atom.[shared|global].cas.{t:b16|b32|b64}", "t", "slot t t", ""),
    ("red.[shared|global].[and|or|xor].{t:b32|b64}", None, "slot t", ""),
    ("red.[shared|global].[add|min|max].{t:u32|s32|u64|s64}", None, "slot t", ""),
    ("red.[shared|global].[inc|dec].u32", None, "slot u32", ""),
]  # fmt: skip

_GAP = re.compile(r"([.?])\{(\w+):([^{}]*)\}|\[([^\]]*)\]")


def _spellings(template: str) -> Iterator[tuple[str, dict[str, str]]]:
    pieces: list[list[tuple[str, tuple[str, str] | None]]] = []
    position = 0
    for gap in _GAP.finditer(template):
        pieces.append([(template[position : gap.start()], None)])
        if gap[4] is not None:
            pieces.append([(each, None) for each in gap[4].split("|")])
        else:
            some = [(f".{each}", (gap[2], each)) for each in gap[3].split("|")]
            pieces.append([*some, ("", (gap[2], ""))] if gap[1] == "?" else list(some))
        position = gap.end()
    pieces.append([(template[position:], None)])
    for chosen in itertools.product(*pieces):
        names = dict(pair for _, pair in chosen if pair is not None)
        yield "".join(text for text, _ in chosen), names


def _kind(text: str, names: dict[str, str]) -> str:
    """A kind with the type that a modifier names in its place."""
    if text.startswith("{"):
        return "{" + ",".join(_kind(each, names) for each in text[1:-1].split(",")) + "}"
    if text == "pred|pred" or text == "b32|pred":
        return text
    head, colon, tail = text.rpartition(":")
    if head == "wide":
        return _WIDE[names[tail]]
    return f"{head}{colon}{names.get(tail, tail)}"


def all_forms() -> Iterator[Form]:
    """Every spelling of every template, those that the ISA does not have included."""
    for template, result, operands, properties in FORMS:
        for opcode, names in _spellings(template):
            yield Form(
                opcode,
                None if result is None else _kind(result, names),
                tuple(_kind(each, names) for each in operands.split()),
                is_exact="band" not in properties,
                is_warp="warp" in properties,
                sets_carry=".cc" in opcode,
                takes_carry="takes" in properties,
            )
