"""What of the PTX ISA the emulator executes: asks ptxas and the emulator about each form.

    python checks/isa_coverage.py [--ptxas 13.5.37] [--write] [OPCODE ...]

The forms of `isa_forms.txt` are spelled out with all combinations of their modifiers. A form counts
where ptxas takes it for one of the targets; the emulator has to be able to decode it, or a reason
stands above the form. With `--write` the table goes into docs/measured/instructions.md. Exit code
1: ptxas takes a form that the emulator refuses without a reason.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpu_emulator.ptx.instructions.catalogue import CHAPTERS
from gpu_emulator.ptx.program.decoding import decode
from gpu_emulator.values import NotExecutable

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "measured" / "instructions.md"
# The tables of the page stand between these.
BEGIN, END = "not all.\n\n", "## Tensor cores"
TARGETS = ("sm_100a", "sm_90a", "sm_120a", "sm_103a")
GAP = re.compile(r"([.?]?)\{(\w+):([^{}]*)\}")
WIDTHS = {"f32": 32, "f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "pred": 1, "f32x2": 64}
ADDRESSES = {"global": "g", "const": "c", "local": "l"}
HEAD = """.version 9.3
.target {target}
.address_size 64
.global .align 16 .b8 gvar[64];
.const .align 16 .b8 cvar[64];
.func (.reg .b32 out) function(.reg .b32 in) {{ mov.b32 out, in; ret; }}
.visible .entry k{number}(.param .u64 p)
{{
.shared .align 16 .b8 svar[64]; .local .align 16 .b8 lvar[64];
.reg .pred %p<24>; .reg .b16 %h<24>; .reg .b32 %r<24>; .reg .b64 %rd<24>; .reg .b128 %q<24>;
"""
TABLES = {
    "TABLE": "TABLE: .branchtargets L1, L1;\n",
    "PROTOTYPE": "PROTOTYPE: .callprototype (.reg .b32 _) _ (.reg .b32 _);\n"
    "mov.u64 %rd0, function;\n",
    "TARGETS": "TARGETS: .calltargets function;\nmov.u64 %rd0, function;\n",
}


@dataclass(frozen=True, slots=True)
class Form:
    """One spelled-out instruction, its chapter, its opcode, and why it is not executed."""

    text: str
    chapter: str
    opcode: str
    reason: str


def forms(only: tuple[str, ...] = ()) -> Iterator[Form]:
    """Every form of the list, or those of some opcodes."""
    chapter = reason = ""
    for line in (HERE / "results" / "isa_forms.txt").read_text().splitlines():
        if line.startswith("=="):
            chapter = line[2:].strip()
        elif line.startswith("-"):
            reason = line[1:].strip()
        elif line and not line.startswith("#"):
            for text in spelled(line):
                base = text.split(" ")[0].split(".")[0].rstrip(";")
                if not only or base in only:
                    yield Form(text, chapter, base, reason)


def spelled(line: str) -> Iterator[str]:
    """A line of the list with every choice of its gaps."""
    gaps = list(GAP.finditer(line))
    choices = [[*([""] if gap[1] == "?" else []), *gap[3].split("|")] for gap in gaps]
    for chosen in itertools.product(*choices):
        pieces, at, named = [], 0, {}
        for gap, word in zip(gaps, chosen, strict=True):
            dot = "." if gap[1] and word else ""
            pieces += [line[at : gap.start()], dot + word]
            at = gap.end()
            named[gap[2]] = word
        name, _, operands = ("".join(pieces) + line[at:]).partition(" ")
        yield f"{name} {_operands(operands, named)};".replace(" ;", ";")


def _operands(text: str, named: dict[str, str]) -> str:
    """Operands with registers in place of `$type`, each another one."""
    space = named.get("space", "global").split("::")[0] or "global"
    address = ADDRESSES.get(space, "s")
    text = text.replace("[$a]", f"[{address}]").replace("$var", f"{address}var")
    for letter in "gslc":
        text = text.replace(f"[{letter}]", f"[{letter}var]")
    text = text.replace("[m]", "[svar+16]").replace("LABEL", "L1")
    counts: Counter[str] = Counter()

    def register(found: re.Match[str]) -> str:
        kind = named.get(found[1], found[1])
        letter = {1: "p", 16: "h", 64: "rd", 128: "q"}.get(_width(kind), "r")
        counts[letter] += 1
        return f"%{letter}{counts[letter]}"

    return re.sub(r"\$(\w+)", register, text)


def _width(kind: str) -> int:
    if kind in WIDTHS:
        return WIDTHS[kind]
    if found := re.fullmatch(r"(?:u?e\d?m\d+|ue8m0|s2f6)(x\d)", kind):
        return {"x2": 8 if kind == "e2m1x2" else 16, "x4": 16 if "e2m1" in kind else 32}[found[1]]
    if kind.endswith("x2"):
        return 32
    return int(kind.lstrip("bus") or 32)


def module(form: Form, target: str, number: int = 0) -> str:
    """A module with one entry that holds a form."""
    extra = "".join(text for mark, text in TABLES.items() if mark in form.text)
    body = f"{extra}{form.text}\nL1:\nret;\n}}\n"
    return HEAD.format(target=target, number=number) + body


def taken_by_ptxas(ptxas: str, found: list[Form]) -> dict[Form, str]:
    """The forms that ptxas takes, each with the first target for which it does."""
    taken: dict[Form, str] = {}
    for target in TARGETS:
        left = [each for each in found if each not in taken]
        taken.update(dict.fromkeys(accepted(ptxas, left, target), target))
    return taken


def accepted(ptxas: str, found: list[Form], target: str) -> list[Form]:
    """Of many forms those that ptxas takes: halves of what it refuses are tried again."""
    if not found:
        return []
    errors = _errors(ptxas, found, target)
    if errors is None:
        return found
    good = [each for number, each in enumerate(found) if number not in errors]
    if errors and good:
        return accepted(ptxas, good, target)
    if len(found) == 1 or (errors and not good):
        return []
    half = len(found) // 2
    return accepted(ptxas, found[:half], target) + accepted(ptxas, found[half:], target)


def _errors(ptxas: str, found: list[Form], target: str) -> set[int] | None:
    """Which forms ptxas names in its errors; None where it takes them all."""
    lines, owner = [], {}
    head, *rest = HEAD.format(target=target, number="NUMBER").partition(".visible")
    lines += head.splitlines()
    for number, each in enumerate(found):
        text = "".join(rest).replace("NUMBER", str(number))
        extra = "".join(one for mark, one in TABLES.items() if mark in each.text)
        begin = len(lines)
        lines += f"{text}{extra}{each.text}\nL1:\nret;\n}}".splitlines()
        owner.update(dict.fromkeys(range(begin + 1, len(lines) + 1), number))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "forms.ptx")
        path.write_text("\n".join(lines) + "\n")
        done = subprocess.run(
            [ptxas, f"-arch={target}", "-O0", path, "-o", f"{folder}/out.cubin"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode == 0:
        return None
    places = re.findall(r"line (\d+); (?:error|fatal)", done.stdout + done.stderr)
    return {owner[int(each)] for each in places if int(each) in owner}


def refusal(form: Form, target: str) -> str | None:
    """Why the emulator does not execute a form; None if it does."""
    try:
        decode(module(form, target), None)
    except NotExecutable as reason:
        return str(reason)
    return None


def unexplained(taken: dict[Form, str]) -> list[tuple[Form, str]]:
    """Forms that ptxas takes where the emulator and the reasons of the list do not go together."""
    found = []
    for form, target in taken.items():
        why = refusal(form, target)
        if bool(why) != bool(form.reason):
            found.append((form, why or "is executed, though a reason stands above it"))
    return found


def tables(found: list[Form], taken: dict[Form, str], version: str) -> str:
    """What is executed by chapter, and what is refused."""
    counts: dict[str, dict[str, list[Form]]] = {}
    for form in found:
        counts.setdefault(form.chapter, {}).setdefault(form.opcode, []).append(form)
    words = f"{len(found):,} forms, of which ptxas {version} takes {len(taken):,}:"
    lines = [words, "", "| chapter of the manual | opcodes |", "|---|---|"]
    for chapter, opcodes in counts.items():
        cells = []
        for opcode, each in sorted(opcodes.items()):
            known = [form for form in each if form in taken]
            executed = sum(not form.reason for form in known)
            of = "" if executed == len(known) else f" of {len(known):,}"
            cells.append(f"`{opcode}` {executed:,}{of}")
        lines.append(f"| {chapter} | {', '.join(cells)} |")
    reasons: dict[str, list[str]] = {}
    for form in found:
        if form.reason:
            name = form.text.split(" ")[0].rstrip(";")
            reasons.setdefault(form.reason, []).append(".".join(name.split(".")[:2]))
    lines += ["", "Refused:", "", "| forms | why |", "|---|---|"]
    for reason, names in reasons.items():
        lines.append(f"| {', '.join(f'`{each}`' for each in dict.fromkeys(names))} | {reason} |")
    return "\n".join(lines)


def main() -> int:
    """Ask, print, and write the table."""
    assert CHAPTERS
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ptxas", default="ptxas")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("opcodes", nargs="*")
    options = parser.parse_args()
    found = list(forms(tuple(options.opcodes)))
    taken = taken_by_ptxas(options.ptxas, found)
    wrong = unexplained(taken)
    for form, why in wrong:
        print(f"{form.text}\n    {why}")
    print(f"{len(found)} forms, {len(taken)} taken by ptxas, {len(wrong)} of them not explained")
    if options.write and not options.opcodes:
        said = subprocess.run(
            [options.ptxas, "--version"], capture_output=True, text=True, check=True
        )
        [version] = re.findall(r"V([0-9.]+)", said.stdout)
        text = PAGE.read_text()
        old = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
        PAGE.write_text(text.replace(old, f"{tables(found, taken, version)}\n\n"))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
