"""Write docs/measured/sass-opcodes.md: every opcode of SASS that is executed, and the evidence.

    PYTHONPATH=.:emulator python checks/sass_opcodes.py

All of it comes from the tables of `gpu_emulator.sass`, and from `sass_measured.txt` and
`sass_compared.txt`, which `sass_truth.py --forms` and `sass_forms.py --forms` write;
tests/test_sass_opcode_page.py holds the page against them.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import sass_truth

from gpu_emulator.opcodes import OpcodeRow, elements
from gpu_emulator.sass.binder import TABLE, Maker, find_row
from gpu_emulator.sass.decoding import BRANCHES
from gpu_emulator.sass.instructions.catalogue import CHAPTERS

PAGE = Path(__file__).parents[1] / "docs" / "measured" / "sass-opcodes.md"
_SHOWN = 12
"""Of so many choices or more the first and the last are written down."""

MEASURED = sass_truth.FORMS
COMPARED = Path(__file__).with_name("results") / "sass_compared.txt"
KINDS = (
    "measured: in programs of which an H100 or H200 gave the same bytes",
    "emulated: in cubins of single instructions, which gave what their PTX gives",
    "read: what the PTX ISA says of the instruction that ptxas makes it of",
    "read: another public document, or inferred from code of ptxas",
)
"""The evidence that there is of an opcode, the strongest first."""


def spelled(template: str) -> str:
    """A template as a reader of SASS writes it: `SHF.(L|R)[.W]`."""
    text = ""
    for is_optional, _, choices in elements(template):
        words = [".".join(choice) for choice in choices]
        if len(words) >= _SHOWN:
            words = [words[0], "...", words[-1]]
        joined = "|".join(words)
        if is_optional:
            text += f"[.{joined}]"
        else:
            text += f".({joined})" if len(words) > 1 else f".{joined}"
    return text.removeprefix(".")


def forms_of(template: str) -> int:
    """How many whole opcodes a template spells."""
    count = 1
    for is_optional, _, choices in elements(template):
        count *= len(choices) + is_optional
    return count


def kept(file: Path) -> dict[int, set[str]]:
    """The opcodes that a file lists, with their modifiers, by the identity of their row."""
    found: dict[int, set[str]] = {}
    for name in file.read_text().split():
        if match := find_row(name):
            found.setdefault(id(match[0]), set()).add(name)
    return found


def page() -> str:
    """The whole page."""
    assert CHAPTERS
    rows = [row for own in TABLE.rows.values() for row in own]
    measured, compared = kept(MEASURED), kept(COMPARED)
    groups: dict[tuple[str, str], list[OpcodeRow[Maker]]] = {}
    for row in rows:
        rest = row.template.removeprefix(row.template.split(".")[0].split("?")[0])
        groups.setdefault((rest, row.evidence), []).append(row)
    lines: list[str] = []
    for (rest, evidence), own in groups.items():
        names = [row.template.removesuffix(rest) for row in own]
        forms = f"`{spelled('|'.join(names) + rest)}`" if len(names) == 1 else ""
        if not forms:
            tail = spelled(f"X{rest}").removeprefix("X")
            forms = ", ".join(f"`{name}`" for name in names) + (f", each `{tail}`" if tail else "")
        equal = ", ".join(f"`{name}`" for row in own for name in sorted(measured.get(id(row), ())))
        lines.append(f"| {forms} | {evidence} | {equal} |".replace("`|", "`\\|"))
    lines = [re.sub(r"(?<=\S)\|(?=\S)", r"\\|", line) for line in lines]
    counts, forms_by_kind = Counter[str](), Counter[str]()
    for row in rows:
        known = measured.get(id(row), set())
        near = compared.get(id(row), set()) - known
        other = forms_of(row.template) - len(known) - len(near)
        read = other * ("PTX ISA" in row.evidence)
        numbers = len(known), len(near), read, other - read
        counts[next(words for words, number in zip(KINDS, numbers, strict=True) if number)] += 1
        forms_by_kind.update(dict(zip(KINDS, numbers, strict=True)))
    spellings = sum(forms_by_kind.values())
    table = [f"| {words} | {counts[words]} | {forms_by_kind[words]:,} |" for words in KINDS]
    branches = ", ".join(f"`{name}`" for name in sorted(BRANCHES))
    return "\n".join(
        [
            "# Which opcodes of SASS are executed",
            "",
            "[`triage run --on sass`](../run.md#what-ptxas-made-of-it---on-sass) executes",
            "cubins of sm_80 to sm_120a. This page says which opcodes that takes, with their",
            "modifiers, and where the meaning of each comes from. What is not on it is refused by",
            "its whole name: `not_run`, never a guess. The tables of the emulator make the page:",
            "",
            "```sh",
            "PYTHONPATH=.:emulator python checks/sass_opcodes.py",
            "```",
            "",
            "How many cubins of the corpus execute, by target and ptxas, is in",
            "[run-corpus.md](run-corpus.md#the-cubins-of-the-same-cells).",
            "",
            f"{len(TABLE.rows)} opcodes in {len(rows)} rows, {spellings:,} with their",
            "modifiers. Each of these is counted by the strongest evidence that there is of it, a",
            "row by that of its opcodes:",
            "",
            "| evidence | rows | opcodes with modifiers |",
            "|---|---|---|",
            *table,
            "",
            f"Beside these, branches: {branches}. `checks/sass_truth.py` executes 2,000 random",
            "programs of sm_90 at both levels, `checks/sass_forms.py` single instructions for",
            "sm_80 to sm_120a, `checks/sass_against_gpu.py` and",
            "`tests/gpu/programs_against_gpu.py` programs on a GPU of sm_90. With `--forms`",
            "(the last one: `--measured FILE`) they write down which opcodes are in cubins",
            "that agree. In the",
            "table `[.X]` may be left out, and one of `(X|Y)` stands there.",
            "",
            "| opcode | evidence | measured |",
            "|---|---|---|",
            *sorted(lines),
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page())
