"""What a reduction found: the files of its folder, and what is printed."""

from __future__ import annotations

import hashlib
import itertools
import re
import shlex
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.logic.fingerprint import Answer
from harness.logic.minimization import Ending, Minimization
from harness.logic.properties import spell
from harness.presentation.minimized_scripts import (
    compile_options,
    compilers_of,
    headline_of,
    repro_script,
    test_script,
)
from harness.presentation.templates import render_template
from harness.values.verdict import VerdictKind

__all__ = ["MEASURES", "folder_files", "pattern_words", "render_minimization"]

_WORDS = {
    Answer.SAME: "fails this way",
    Answer.ACCEPTS: "accepts it",
    Answer.OTHER: "fails otherwise",
    Answer.UNTOLD: "cannot be told",
    None: "was not run",
}
_ENDINGS = {
    Ending.FINISHED: "",
    Ending.BUDGET: ", until the budget was spent",
    Ending.INTERRUPTED: ", until it was interrupted",
    Ending.TROUBLE: ", until this machine failed",
}
MEASURES = {"ptx": "instructions", "source": "lines of functions", "ttgir": "operations"}
"""What each level counts; settings are told one by one."""
_LANGUAGES = {"source": "python", "ttgir": "mlir", "config": "sh", "ptx": "ptx"}
_PATHS = re.compile(r'^\s*\.file\s+\d+\s+"/', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    versions: str
    original: str
    minimized: str


def folder_files(found: Minimization, *, command: str) -> dict[str, str]:
    """The texts that go beside `min.ptx`, by name; what no shell can tell has no script."""
    test, repro = test_script(found), repro_script(found)
    files = {"test.sh": test, "repro.sh": repro}
    files["README.md"] = _readme(found, command, test=test is not None, repro=repro is not None)
    return {name: text for name, text in files.items() if text is not None}


def _readme(found: Minimization, command: str, *, test: bool, repro: bool) -> str:
    condition, reaction = found.fingerprint.condition, found.reaction
    text = found.text if found.text.endswith("\n") else found.text + "\n"
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
        language=_LANGUAGES[found.level],
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
        spans=_spans(found),
        suffix=found.suffix,
        test=test,
        text=text,
        verdict_on_versions=pattern_words(found),
    )


def _runs_of(found: Minimization) -> str:
    if found.fingerprint.script is not None:
        return "the script"
    return compilers_of(found)


def _shown_by(found: Minimization) -> str:
    """The command that a reader can type."""
    if found.fingerprint.script is not None:
        return found.fingerprint.script
    if found.level == "config":
        return found.text.strip()
    if found.level != "ptx":
        return f"triage compile --kernel min{found.suffix} {compile_options(found)}"
    return f"ptxas {shlex.join(found.flags)} min.ptx -o min.cubin"


def _sizes(found: Minimization) -> list[tuple[str, int, int]]:
    """Each measure, of the original and of the result; the level's own comes first."""
    if found.level not in MEASURES:
        return []
    before, after = found.original, found.minimized
    first = (
        MEASURES[found.level],
        before.lines if before.instructions is None else before.instructions,
        after.lines if after.instructions is None else after.instructions,
    )
    return [first, ("bytes", before.bytes, after.bytes)]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _spans(found: Minimization) -> list[_Span]:
    """Neighbouring versions that fare alike, oldest first."""
    spans = []
    words = {**_WORDS, Answer.SAME: "meets it"} if found.fingerprint.condition else _WORDS
    for _, group in itertools.groupby(
        found.versions, key=lambda line: (line.original, line.minimized)
    ):
        part = list(group)
        first, last = part[0], part[-1]
        names = first.version if len(part) == 1 else f"{first.version} - {last.version}"
        original = f"{words[last.original]}: {last.original_words}"
        minimized = words[last.minimized]
        if last.minimized_words:
            minimized += f": {last.minimized_words}"
        spans.append(_Span(versions=names, original=original, minimized=minimized))
    return spans


def pattern_words(found: Minimization) -> str:
    """Whether original and result fare alike on every version at hand."""
    told = [line for line in found.versions if line.original in (Answer.SAME, Answer.ACCEPTS)]
    if not told:
        return ""
    if any(line.minimized is None for line in told):
        return "The versions were not run on min.ptx."
    if found.fingerprint.signature is None:
        return "Only the numbers of one version had to stay."
    count = f"all {len(told)}" if len(told) > 1 else "the one"
    if found.drift:
        return f"NOT the same as with original.ptx: {', '.join(found.drift)}."
    return f"The same as with original.ptx on {count} that could be told."


def render_minimization(found: Minimization) -> RenderableType:
    """Sizes, what holds it, versions, and where the files are."""
    sizes = Table(box=None, pad_edge=False, padding=(0, 2), show_header=False)
    for name, before, after in _sizes(found):
        share = f"{after / before:.1%}" if before else ""
        sizes.add_row(name, f"{before:,}", "->", f"{after:,}", share)
    lines: list[RenderableType] = [Text(headline_of(found), style="bold")]
    lines += [sizes, Text("")] if sizes.row_count else []
    for span in _spans(found):
        style = "" if span.minimized.partition(":")[0] == span.original.partition(":")[0] else "red"
        words = f"{span.versions:>20}  {span.original.partition(':')[0]}"
        if style:
            words += f", min.ptx {span.minimized}"
        lines.append(Text(words, style=style or "dim"))
    lines += [Text(line) for line in _closing(found)]
    return Group(*lines)


def _closing(found: Minimization) -> list[str]:
    lines = [pattern_words(found)] if found.versions else []
    if found.is_minimal is not None:
        no = (
            "no instruction can go alone" if found.is_minimal else "some instruction could still go"
        )
        lines.append(f"Tried out: {no}.")
    if found.undefined[1] > found.undefined[0]:
        more = found.undefined[1] - found.undefined[0]
        lines.append(
            f"It reads registers that nothing wrote, {more} more than the original: --defined."
        )
    rate = found.tests / found.seconds if found.seconds else 0.0
    lines.append(
        f"{found.tests:,} tests ({found.calls:,} runs) in {found.seconds:.0f} s, "
        f"{rate:.0f} a second{_ENDINGS[found.ending]}."
    )
    return [line for line in lines if line]
