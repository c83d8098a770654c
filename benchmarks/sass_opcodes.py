"""Write docs/sass-opcodes.md: every opcode of SASS that the emulator executes, with its evidence.

    PYTHONPATH=.:emulator python benchmarks/sass_opcodes.py

All of it comes from the tables of `gpu_emulator.sass`; tests/test_sass_opcode_page.py holds the
page against them.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from gpu_emulator.sass.binder import ROWS, OpcodeRow
from gpu_emulator.sass.decoding import BRANCHES
from gpu_emulator.sass.instructions.catalogue import CHAPTERS
from gpu_emulator.templates import elements

PAGE = Path(__file__).parents[1] / "docs" / "sass-opcodes.md"
_SHOWN = 12
"""Of so many choices or more the first and the last are written down."""

# What is looked for in the evidence of a row, strongest first, and how that is said.
KINDS = (
    ("H200", "measured, all of it or a part: what an H200 gave for programs"),
    ("sass_forms.py", "emulated: compared with the PTX that ptxas makes it of, operand by operand"),
    ("PTX ISA", "read: what the PTX ISA says of the instruction that ptxas makes it of"),
    ("", "read: another public document, or inferred from code of ptxas"),
)


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


def kind_of(evidence: str) -> str:
    """The strongest kind of evidence that a row names."""
    return next(words for part, words in KINDS if part in evidence)


def page() -> str:
    """The whole page."""
    assert CHAPTERS
    rows = [row for own in ROWS.values() for row in own]
    groups: dict[tuple[str, str], list[OpcodeRow]] = {}
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
        lines.append(f"| {forms} | {evidence} |".replace("`|", "`\\|"))
    lines = [re.sub(r"(?<=\S)\|(?=\S)", r"\\|", line) for line in lines]
    counts = Counter(kind_of(row.evidence) for row in rows)
    forms_by_kind: Counter[str] = Counter()
    for row in rows:
        forms_by_kind[kind_of(row.evidence)] += forms_of(row.template)
    table = [f"| {words} | {counts[words]} | {forms_by_kind[words]:,} |" for _, words in KINDS]
    branches = ", ".join(f"`{name}`" for name in sorted(BRANCHES))
    return "\n".join(
        [
            "# Which opcodes of SASS are executed",
            "",
            "[`triage run --on sass`](run.md#what-ptxas-made-of-it---on-sass) executes cubins of",
            "sm_80 to sm_120a. This page says which opcodes that takes, with their modifiers, and",
            "where the meaning of each comes from. What is not on it is refused by its whole name:",
            "`not_run`, never a guess. The tables of the emulator make the page:",
            "",
            "```sh",
            "PYTHONPATH=.:emulator python benchmarks/sass_opcodes.py",
            "```",
            "",
            "How many cubins of the corpus execute, by target and ptxas, is in",
            "[run-corpus.md](run-corpus.md#the-cubins-of-the-same-cells).",
            "",
            f"{len(ROWS)} opcodes in {len(rows)} rows, {sum(forms_by_kind.values()):,} with their",
            "modifiers, by the strongest evidence that a row names:",
            "",
            "| evidence | rows | opcodes with modifiers |",
            "|---|---|---|",
            *table,
            "",
            f"Beside these, branches: {branches}. `benchmarks/sass_truth.py` and",
            "`benchmarks/sass_forms.py` repeat the comparisons that rows name. In the table `[.X]`",
            "may be left out, and one of `(X|Y)` stands there.",
            "",
            "| opcode | evidence |",
            "|---|---|",
            *sorted(lines),
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page())
