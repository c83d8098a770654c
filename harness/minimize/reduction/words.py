"""What a reduction found: the files of its folder, what is printed, and the document. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

from harness.judging.conditions import spell
from harness.minimize.reduction.fingerprint import Answer
from harness.minimize.reduction.result import (
    Ending,
    Minimization,
    Uninteresting,
    spans_of,
    versions_document,
)
from harness.minimize.reduction.scripts import (
    compile_options,
    compilers_of,
    headline_of,
    repro_script,
    test_script,
)
from harness.tables.said import BLANK, Block, GridColumn, SaidGrid, Tone, say
from harness.tables.templates import render_template
from harness.values.row import SCHEMA
from harness.values.verdict import VerdictKind

_WORDS = {
    Answer.SAME: "fails this way",
    Answer.ACCEPTS: "accepts it",
    Answer.OTHER: "fails in another way",
    Answer.UNTOLD: "could not tell",
    None: "was not run",
}
_ENDINGS = {
    Ending.FINISHED: "",
    Ending.BUDGET: ", until the budget was spent",
    Ending.INTERRUPTED: ", until it was interrupted",
    Ending.TROUBLE: ", until this machine failed",
}
MEASURES = {"ptx": "instructions", "source": "lines of functions", "ttgir": "operations"}
"""What each level counts; settings are named one by one."""
_PIECES = {
    "ptx": "instruction",
    "source": "part of the source",
    "ttgir": "operation",
    "config": "setting",
}
_LANGUAGES = {".py": "python", ".ttgir": "mlir", ".ttir": "mlir", ".sh": "sh"}
_PATHS = re.compile(r'^\s*\.file\s+\d+\s+"/', re.MULTILINE)


def folder_files(found: Minimization, *, command: str) -> dict[str, str]:
    """The texts that go beside the result, by name; what no shell can check has no script."""
    test, repro = test_script(found), repro_script(found)
    files = {"test.sh": test, "repro.sh": repro}
    files["README.md"] = _readme(found, command, test=test is not None, repro=repro is not None)
    files["versions.json"] = json.dumps(versions_document(found), indent=2) + "\n"
    return {name: text for name, text in files.items() if text is not None}


def measure_of(found: Minimization) -> str:
    """What the level counts; of source that is not Python, all lines with code."""
    return "lines" if found.level == "source" and found.suffix != ".py" else MEASURES[found.level]


def _readme(found: Minimization, command: str, *, test: bool, repro: bool) -> str:
    condition, reaction = found.fingerprint.condition, found.reaction
    text = found.shown_text
    text = text if text.endswith("\n") else text + "\n"
    return render_template(
        "minimized/README.md.j2",
        m=found,
        best=f"min{found.suffix}",
        command=command,
        compilers=compilers_of(found),
        condition=spell(condition) if condition else None,
        ending=_ENDINGS[found.ending],
        fence="`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0)),
        flags=shlex.join(found.flags),
        language=_LANGUAGES.get(found.suffix, found.suffix.strip(".")),
        hangs=reaction is not None and reaction.verdict is VerdictKind.TIMEOUT,
        headline=headline_of(found),
        original=f"original{found.suffix}",
        original_has_paths=bool(_PATHS.search(found.original_text)),
        original_sha256=_sha256(found.original_text),
        repro=repro,
        runs_of=_runs_of(found),
        sha256=_sha256(found.text),
        shown_by=_shown_by(found),
        sizes=_sizes(found),
        spans=_lines(found),
        suffix=found.suffix,
        test=test,
        text=text,
        verdict_on_versions=pattern_words(found),
    )


def _runs_of(found: Minimization) -> str:
    if found.fingerprint.script is not None:
        return "the script"
    return found.compiler


def _shown_by(found: Minimization) -> str:
    """The command that a reader can type."""
    if found.fingerprint.script is not None:
        return found.fingerprint.script
    if found.level == "config":
        return found.text.strip()
    if found.run_command:
        return found.run_command
    if found.level != "ptx":
        return f"triage compile --kernel min{found.suffix} {compile_options(found)}"
    return f"ptxas {shlex.join(found.flags)} min.ptx -o min.cubin"


def _sizes(found: Minimization) -> list[tuple[str, int, int]]:
    """Each measure, of the original and of the result; the level's own comes first."""
    if found.level not in MEASURES:
        return []
    before, after = found.original, found.minimized
    first = (
        measure_of(found),
        before.lines if before.instructions is None else before.instructions,
        after.lines if after.instructions is None else after.instructions,
    )
    return [first, ("bytes", before.bytes, after.bytes)]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    versions: str
    original: str
    original_words: str
    minimized: str
    minimized_words: str


def _lines(found: Minimization) -> list[_Line]:
    words = {**_WORDS, Answer.SAME: "meets it"} if found.fingerprint.condition else _WORDS
    return [
        _Line(
            versions=span.versions,
            original=words[span.original],
            original_words=_several(span.original_words),
            minimized=words[span.minimized],
            minimized_words=_several(span.minimized_words),
        )
        for span in spans_of(found)
    ]


def _several(words: tuple[str, ...]) -> str:
    """What neighbouring versions say, each once."""
    return "; or ".join(words)


def pattern_words(found: Minimization) -> str:
    """Whether original and result have the same answers on every installed version."""
    original, best = f"original{found.suffix}", f"min{found.suffix}"
    telling = [line for line in found.versions if line.original is not Answer.UNTOLD]
    if not telling:
        return ""
    if any(line.minimized is None for line in telling):
        return f"The versions were not run on {best}."
    if found.fingerprint.signature is None:
        guards = ", ".join(found.fingerprint.accepting)
        words = f"Only {found.compiler} {found.fingerprint.bad} was required to show it"
        return f"{words}, and {guards} not to show it." if guards else f"{words}."
    if found.drift:
        return f"NOT the same as with {original}: {', '.join(found.drift)}."
    same = [line.version for line in telling if line.is_same]
    others = [line.version for line in telling if not line.is_same]
    count = f"all {len(same)} versions" if len(same) > 1 else "the one version"
    words = f"The same as with {original} on {count} that gave an answer."
    if others:
        words = words.replace(" that gave an answer.", f" that fail this way or accept {original}.")
        words += f" On others it is another: {', '.join(others)}."
    return words


def minimization_said(found: Minimization) -> list[Block]:
    """Sizes, what holds it, versions, and where the files are."""
    blocks: list[Block] = [say(headline_of(found), Tone.HEAD)]
    sizes = tuple(
        tuple(map(say, (name, f"{before:,}", "->", f"{after:,}", _share(before, after))))
        for name, before, after in _sizes(found)
    )
    if sizes:
        columns = (GridColumn(title="", wraps=True),) * len(sizes[0])
        blocks += [SaidGrid(columns=columns, rows=sizes), BLANK]
    best = f"min{found.suffix}"
    for span in _lines(found):
        words = f"{span.versions:>20}  {span.original}"
        differs = span.minimized != span.original
        if differs:
            words += f", {best} {span.minimized}"
            words += f": {span.minimized_words}" if span.minimized_words else ""
        blocks.append(say(words, Tone.BAD if differs else Tone.FAINT))
    return [*blocks, *map(say, _closing(found))]


def _share(before: int, after: int) -> str:
    return f"{after / before:.1%}" if before else ""


def _closing(found: Minimization) -> list[str]:
    lines = [pattern_words(found)] if found.versions else []
    if found.is_minimal is not None:
        one = _PIECES[found.level]
        no = f"no {one} can go alone" if found.is_minimal else f"some {one} could still go"
        lines.append(f"Tried out: {no}.")
    if found.undefined[1] > found.undefined[0]:
        more = found.undefined[1] - found.undefined[0]
        lines.append(
            f"It reads registers that nothing wrote, {more} more than the original: --defined."
        )
    if target := found.fingerprint.held_for:
        lines.append(f"No version accepts it; ptxas {found.ptxas} accepts it for {target}.")
    if found.is_unheld:
        lines.append(
            "Nothing that was tried accepts the original: the result may be wrong in itself."
        )
    rate = found.tests / found.seconds if found.seconds else 0.0
    lines.append(
        f"{found.tests:,} tests ({found.calls:,} runs) in {found.seconds:.0f} s, "
        f"{rate:.0f} a second{_ENDINGS[found.ending]}."
    )
    return [line for line in lines if line]


def nothing_document(found: Uninteresting) -> dict[str, Any]:
    """As `--json` prints it where there is nothing to reduce."""
    return {"schema": SCHEMA, "instructions": None, "path": None, "reason": found.reason}


def minimization_document(found: Minimization) -> dict[str, Any]:
    """As `--json` prints it."""
    fingerprint, reaction = found.fingerprint, found.reaction
    return {
        "schema": SCHEMA,
        "instructions": found.minimized.instructions,
        "bytes": found.minimized.bytes,
        "lines": found.minimized.lines,
        "measure": measure_of(found) if found.level in MEASURES else None,
        "original": found.original,
        "as_version": found.as_version,
        "tests": found.tests,
        "calls": found.calls,
        "seconds": round(found.seconds, 3),
        "path": found.path,
        "level": found.level,
        "run_command": found.run_command,
        "ending": found.ending.value,
        "trouble": found.trouble,
        "fingerprint": {
            "fails": [fingerprint.bad, *fingerprint.failing],
            "accepted_by": fingerprint.accepting,
            "refused_by": fingerprint.refusing,
            "accepted_for": fingerprint.held_for,
            "while": spell(fingerprint.condition) if fingerprint.condition else None,
            "script": fingerprint.script,
            "limit_seconds": found.limit,
        },
        "signature": fingerprint.signature,
        "verdict": reaction.verdict.value if reaction else None,
        "code": reaction.code if reaction else None,
        "last_good": found.last_good,
        "first_fixed": found.first_fixed,
        "is_minimal": found.is_minimal,
        "undefined_registers": {"original": found.undefined[0], "minimized": found.undefined[1]},
        "versions": [
            {
                found.compiler.lower(): line.version,
                "original": line.original.value,
                "minimized": line.minimized.value if line.minimized else None,
            }
            for line in found.versions
        ],
        "drift": found.drift,
        "passes": found.passes,
        "notes": found.notes,
    }
