"""The commands worth running after a compile, chosen by what was found. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace
from packaging.version import Version

from harness.cells.spelling import (
    SelectionOptions,
    on_assembler,
    on_compiler,
    show_command,
    spell_command,
    words_of,
)
from harness.io.packages.versions import version_order
from harness.values.row import Row
from harness.values.toolchain import (
    NVCC,
    PTXAS,
    TRITON,
    assembler_name,
    compiler_name,
    program_name,
)
from harness.values.verdict import Stage, VerdictKind

# What goes into each stage of Triton's: some of its kernels leave out one of the stages.
_SHOWN = {"ttir": "source", "glir": "source", "ttgir": "ttir", "llir": "ttgir", "ptx": "llir"}


def next_steps(
    rows: Sequence[Row],
    words: SelectionOptions,
    stages: Mapping[str, Sequence[str]] | None = None,
    known: Callable[[str], Sequence[str]] = lambda kind: (),  # noqa: ARG005
) -> list[tuple[str, str]]:
    """Pairs of command and what it would tell; `words` selected the rows.

    `stages` are those of compilers other than Triton, by their kind; `known` has the versions of a
    compiler or an assembler that exist.
    """
    steps: dict[str, str] = {}
    # What does not work first, then the worst of the sick.
    order = sorted(rows, key=lambda row: (row.verdict.compiles, -(row.spill_stores or 0)))
    for row in order:
        if row.verdict is not VerdictKind.OK:
            of_row = _steps_for(row, rows, words, stages or {}, known)
            for command, why in (*_upgrade(row, rows, words), *of_row):
                steps.setdefault(why, command)
    if any(row.suspect for row in rows):
        # Configs are held to one another: one that is chosen has none beside it.
        every = replace(on_assembler(words, None, None), config="")
        steps["do its configs compute the same?"] = spell_command("run", every)
    elif order and all(row.verdict is VerdictKind.OK for row in order):
        steps |= {why: command for command, why in _of_what_works(order, words, known)}
    return [(command, why) for why, command in steps.items()]


def _of_what_works(
    rows: Sequence[Row], words: SelectionOptions, known: Callable[[str], Sequence[str]]
) -> list[tuple[str, str]]:
    """What is to be asked next of cells that are all ok."""
    kind, version = rows[0].compiler, str(rows[0].compiler_version)
    executed = words if kind else SelectionOptions(kernel=words.kernel)
    steps = []
    if kind in (TRITON, NVCC, None):
        steps.append((spell_command("run", executed), "does it compute what it must?"))
    elif rows[0].instructions is not None:
        steps.append((show_command(rows[0].short, "sass"), "its instructions"))
    before = [each for each in known(kind or "") if _minor(each) < _minor(version)]
    if before and {str(row.compiler_version) for row in rows} == {version}:
        two = [on_compiler(words, kind, each) for each in (before[-1], version)]
        both = replace(
            words,
            triton=[each for one in two for each in one.triton],
            compiler=[each for one in two for each in one.compiler],
        )
        changed = f"what changed since {compiler_name(kind, before[-1])}?"
        steps.append((spell_command("compile", both), changed))
    return steps


def _minor(version: str) -> tuple[int, ...]:
    return Version(version).release[:2]


def _steps_for(
    row: Row,
    rows: Sequence[Row],
    words: SelectionOptions,
    stages: Mapping[str, Sequence[str]],
    known: Callable[[str], Sequence[str]],
) -> list[tuple[str, str]]:
    kind = row.verdict
    if kind is VerdictKind.SICK:
        steps = _mend(row, rows, words)
        if row.instructions is not None:
            why = "where it spills (LDL, STL)" if row.spill_stores else "its instructions"
            steps.append((show_command(row.short, "sass"), why))
        return steps
    if kind in (VerdictKind.REJECTED, VerdictKind.UNSUPPORTED, VerdictKind.INFRA):
        log = (show_command(row.short, "log"), "all that the compiler said")
        is_tritons = kind is VerdictKind.REJECTED and row.compiler == TRITON
        return [log, *(_mend(row, rows, words)[1:] if is_tritons else ())]
    if kind is VerdictKind.OUT_OF_RESOURCES:
        if not row.compiler:
            return [(show_command(row.short, "log"), "what it asks of the target")]
        return _mend(row, rows, words)[:1]
    if kind is VerdictKind.TIMEOUT:
        more = spell_command("compile", cell_words(row, rows, words), "--timeout", "3600")
        return [(more, "with an hour of time")]
    if row.compiler and row.stage != Stage.CUBIN.value:
        title = compiler_name(row.compiler)
        # Nothing comes before the first stage: what was printed is all there is.
        shown = _stage_before(row, stages)
        at = "at fault" if kind.fails else "that was not finished"
        why = f"the IR before the stage {at}" if shown else f"everything that {title} printed"
        newest = on_assembler(on_compiler(words, row.compiler, "latest"), None, None)
        return [
            (show_command(row.short, shown or "log"), why),
            *_compile_on(
                newest,
                words,
                f"does the newest {title} still do it?",
                is_newest=row.compiler_version in known(row.compiler)[-1:],
            ),
        ]
    newest = on_assembler(words, row.assembler, "latest")
    tool = assembler_name(row.assembler)
    code = program_name(row.program_sha256 is not None)
    if row.compiler:
        newest = on_compiler(newest, row.compiler, row.compiler_version)
        newest = replace(newest, freeze_ptx=row.assembler == PTXAS)
    return [
        (show_command(row.short, "log"), f"everything that {tool} printed"),
        *_compile_on(
            newest,
            words,
            f"the same {code} on the newest {tool}",
            is_newest=row.ptxas in known(row.assembler)[-1:],
        ),
    ]


def _mend(row: Row, rows: Sequence[Row], words: SelectionOptions) -> list[tuple[str, str]]:
    """What helps against a cell that costs too much, and since when it does."""
    cell = cell_words(row, rows, words)
    steps = [(spell_command("workaround", cell), "what can be done today")]
    if row.compiler == TRITON:
        since = on_compiler(cell, None, None)
        steps.append(
            (spell_command("bisect", since, "--axis", "triton"), "since which Triton it is so")
        )
    return steps


def cell_words(row: Row, rows: Sequence[Row], words: SelectionOptions) -> SelectionOptions:
    """What selects the cell of a row among `rows`, which `words` selected."""
    # A file is named as the user names it; a row has its last part alone.
    _, _, function = row.kernel.partition("::")
    kernel = f"{words.kernel.partition('::')[0]}::{function}" if function else words.kernel
    return replace(words_of(row, rows), kernel=kernel, surroundings=words.surroundings)


def _upgrade(row: Row, rows: Sequence[Row], words: SelectionOptions) -> list[tuple[str, str]]:
    """That a newer version, which is among the rows, does the cell well; and what says since when.

    The newest row decides: what only one in between does well is no way out.
    """
    newest = max((each for each in rows if each.place == row.place), key=_versions)
    newer = [one > other for one, other in zip(_versions(newest), _versions(row), strict=True)]
    kinds = (row.compiler, row.assembler) == (newest.compiler, newest.assembler)
    if newest.verdict is not VerdictKind.OK or not any(newer) or not kinds:
        return []
    axis, title = "compiler", compiler_name(newest.compiler, newest.compiler_version)
    cell = on_compiler(cell_words(row, rows, words), None, None)
    if not newer[0]:
        axis, title = "assembler", f"{assembler_name(newest.assembler)} {newest.ptxas}"
        cell = on_assembler(cell_words(row, rows, words), None, None)
    why = f"upgrading to {title} ends it; which version was the first?"
    return [(spell_command("bisect", cell, "--axis", axis), why)]


def _versions(row: Row) -> tuple[tuple[int, Version, str], ...]:
    return version_order(row.compiler_version), version_order(row.ptxas)


def _compile_on(
    newest: SelectionOptions, words: SelectionOptions, why: str, *, is_newest: bool
) -> list[tuple[str, str]]:
    """The command and what it tells; none where it says what is known, or is the one given."""
    command = spell_command("compile", newest)
    is_known = is_newest or command == spell_command("compile", words)
    return [] if is_known else [(command, why)]


def _stage_before(row: Row, stages: Mapping[str, Sequence[str]]) -> str | None:
    """The stage that went into the one that failed; None where that is the first."""
    if row.compiler == TRITON:
        return _SHOWN.get(row.stage or "")
    before = dict(itertools.pairwise(reversed(stages.get(row.compiler or "", ()))))
    return before.get(row.stage or "")
