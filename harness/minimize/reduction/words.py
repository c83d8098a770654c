"""What a reduction found: the files of its folder, what is printed, and the document. Pure."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shlex
from dataclasses import dataclass, replace
from typing import Any

from harness.judging.conditions import (
    Both,
    Comparison,
    Condition,
    Either,
    Field,
    Negation,
    fields_of,
    spell,
)
from harness.minimize.reduction.fingerprint import Answer, Reaction
from harness.minimize.reduction.result import (
    Ending,
    Minimization,
    NothingToReduce,
    versions_document,
)
from harness.tables.said import BLANK, Block, GridColumn, SaidGrid, Tone, say
from harness.tables.templates import render_template
from harness.values.limits import limits_of
from harness.values.row import SCHEMA
from harness.values.standalone import SourceInstall
from harness.values.target import Target
from harness.values.toolchain import assembler_name, assembler_words, compiler_name, compiler_words
from harness.values.verdict import Stage, VerdictKind

# `test.sh` and `repro.sh`: a failure as a shell script that needs nothing of `triage`.

# What a fold of `harness.judging.signature` leaves in the place of what it takes away.
_FOLDED = re.compile(r"\b(?:TMP|L|HEX|tN|N|KERNEL)\b|%V|SHAPEx|^SIG[A-Z0-9]+: |: ")
_SHORTEST = 4
_SHELL_SIGNAL = 128
_TIMED_OUT = 124
_RAISED = 1

# Numbers that ptxas prints of an entry, as `sed` finds them.
_PRINTED = {
    "n_regs": r"Used \([0-9]*\) registers",
    "barriers": r"used \([0-9]*\) barriers",
    "stack": r"[^0-9]\([0-9]*\) bytes stack frame",
    "spill_stores": r"[^0-9]\([0-9]*\) bytes spill stores",
    "spill_loads": r"[^0-9]\([0-9]*\) bytes spill loads",
}
_TESTS = {"==": "-eq", "!=": "-ne", "<": "-lt", "<=": "-le", ">": "-gt", ">=": "-ge"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    """How a shell recognises it: a status and texts of the log, numbers, or a kernel that traps.

    Every error of ptxas in the log has one of the `errors`, if there are any.
    """

    flags: str
    seconds: int
    status: int = 0
    is_stub: bool = False
    texts: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    numbers: tuple[tuple[str, str], ...] = ()
    condition: str = ""


def headline_of(found: Minimization) -> str:
    """What goes wrong, in one line."""
    if found.fingerprint.script is not None:
        return f"the script says so: {found.fingerprint.script}"
    condition = found.fingerprint.condition
    said = spell(condition) if condition is not None else found.reason
    # The file with a launch has inputs of its own.
    said = found.shown.run_reason if found.shown else said
    return " ".join(f"{compilers_of(found)} on {found.target}: {said}".split())


def compilers_of(found: Minimization) -> str:
    """What is at work at this level."""
    ptxas = assembler_name(found.assembler, found.ptxas)
    if found.on_gpu:
        return found.on_gpu.replace("-", " ", 1)
    if found.is_executed and found.level == "ptx":
        return f"PTX of {compiler_name(found.kind)} {found.triton}" if found.triton else "PTX"
    if found.level == "ptx":
        return ptxas
    is_seen = found.stage in (None, Stage.CUBIN.value)
    compiler = f"{compiler_name(found.kind)} {found.triton}"
    return f"{compiler} and {ptxas}" if is_seen else compiler


def _options_of_guards(found: Minimization) -> dict[str, list[str]]:
    """How `triage compile` asks each version that guards the failure, by what it has to do."""
    asked = found.fingerprint
    versions = {
        "failing": (found.ptxas if found.is_of_assemblers else found.triton, *asked.failing),
        "accepting": asked.accepting,
        "refusing": asked.refusing,
    }

    def options(version: str | None) -> str:
        if found.is_of_assemblers and version:
            packages = {version: found.assembler}
            return compile_options(replace(found, ptxas=version, packages=packages))
        return compile_options(replace(found, triton=version))

    return {role: [options(version) for version in each] for role, each in versions.items()}


def compile_options(found: Minimization) -> str:
    """Of `triage compile`, for what was reduced at a level above PTX."""
    words = ["--sm", found.target]
    words += compiler_words(found.kind, found.triton) or ["--triton", "installed"]
    if found.ptxas in found.packages:
        words += assembler_words(found.assembler, found.ptxas)
    return f"{shlex.join(words)} {found.options}".rstrip()


def test_script(found: Minimization) -> str | None:
    """The interestingness script, None where a shell cannot recognise it."""
    if found.fingerprint.script is not None:
        words = "# The predicate that was given: exit status 0 means interesting."
        return f"#!/bin/sh\n{words}\nexec {found.fingerprint.script}\n"
    if found.is_executed:
        return None
    if found.level != "ptx":
        if found.fingerprint.signature is None or found.level == "config":
            return None
        return render_template(
            "minimized/test_source.sh.j2",
            file=f"min{found.suffix}",
            suffix=found.suffix,
            signature=found.fingerprint.signature,
            **_options_of_guards(found),
        )
    probe = _probe(found)
    if probe is None:
        return None
    return render_template("minimized/test.sh.j2", probe=probe, tools=_tools(found))


def repro_script(found: Minimization) -> str | None:
    """The one command that shows it, None where a shell cannot recognise it."""
    if found.is_executed:
        return found.run_command and render_template(
            "minimized/repro_executed.sh.j2",
            headline=headline_of(found),
            command=found.run_command,
            signature=found.fingerprint.signature,
            on_gpu=found.on_gpu is not None,
        )
    probe = _probe(found) if found.fingerprint.script is None else None
    if probe is None or found.level == "config":
        return None
    package = found.packages.get(found.ptxas)
    if found.level != "ptx":
        if found.install is None:
            return None
        if found.install.program:
            return _program_script(found, found.install, probe)
        return render_template(
            "minimized/repro_source.sh.j2",
            probe=probe,
            headline=headline_of(found),
            target=found.target,
            version=found.triton,
            install=found.install,
            package=f"{package}=={found.ptxas}" if package else None,
            file=f"min{found.suffix}",
            program=_compile_ir(found) if found.level == "ttgir" else None,
        )
    return render_template(
        "minimized/repro.sh.j2",
        probe=probe,
        headline=headline_of(found),
        version=found.ptxas,
        package=f"{package}=={found.ptxas}" if package else None,
        advice=_advice(found, found.ptxas),
        file="min.ptx",
    )


def _is_command(found: Minimization) -> bool:
    """Whether a command compiles the result, and no Python."""
    return found.level == "ptx" or bool(found.install and found.install.program)


def _program_script(found: Minimization, install: SourceInstall, probe: _Probe) -> str | None:
    """The same where a program compiles the file, with the assembler that it brings along."""
    if found.ptxas in found.packages:
        return None
    is_assembled = found.stage in (None, Stage.CUBIN.value)
    more = ("-Xptxas", "-v", "-cubin") if is_assembled else ("-ptx",)
    return render_template(
        "minimized/repro_program.sh.j2",
        probe=probe,
        headline=headline_of(found),
        target=found.target,
        version=found.triton,
        install=install,
        file=f"min{found.suffix}",
        words=shlex.join((*install.program[1:], f"-arch={found.target}", *more)),
    )


def _compile_ir(found: Minimization) -> str:
    """Python that has Triton compile a module of its IR, which is the first argument."""
    named = (part.partition("=") for part in found.options.split() if "=" in part)
    options = {name: int(value) if value.isdigit() else value for name, _, value in named}
    capability = re.sub(r"\D", "", found.target)
    return (
        "import sys, triton; from triton.backends.compiler import GPUTarget; "
        f"target = GPUTarget('cuda', {capability}, 32); "
        f"print(triton.compile(sys.argv[1], target=target, options={options!r}).metadata)"
    )


def _tools(found: Minimization) -> list[dict[str, object]]:
    fingerprint = found.fingerprint
    return [
        {
            "variable": _variable(found, version),
            "version": version,
            "role": "must accept it" if version in fingerprint.accepting else "must show it",
            "advice": _advice(found, version),
            "must_accept": version in fingerprint.accepting,
        }
        for version in fingerprint.checks
    ]


def _variable(found: Minimization, version: str) -> str:
    """The failing one, its neighbours, and by number what was asked besides."""
    fingerprint = found.fingerprint
    if version == fingerprint.bad:
        return "PTXAS_BAD"
    if version == found.last_good:
        return "PTXAS_GOOD"
    if version == found.first_fixed:
        return "PTXAS_FIXED"
    return "PTXAS_" + re.sub(r"\W", "_", version)


def _advice(found: Minimization, version: str) -> str:
    package = found.packages.get(version)
    if package is None:
        return ", which is inside a Triton of that time"
    return (
        f"; get it by: python3 -m pip install --no-deps --target DIR {package}=={version}, "
        "then find DIR -name ptxas"
    )


def _probe(found: Minimization) -> _Probe | None:
    flags = shlex.join(found.flags)
    seconds = max(1, round(found.limit))
    condition, reaction = found.fingerprint.condition, found.reaction
    if condition is not None:
        fields = fields_of(condition)
        # No compiler prints these numbers; a program has its assembler print them.
        if not _is_command(found) or not set(fields) <= set(_PRINTED) or _has_fractions(condition):
            return None
        return _Probe(
            flags=flags,
            seconds=seconds,
            numbers=tuple((name, _PRINTED[name]) for name in fields),
            condition=_as_shell(condition),
        )
    if reaction is None:
        return None
    if not _is_command(found):
        return _python_probe(found, reaction, seconds)
    status = _status(reaction)
    if status is None:
        return None
    return _Probe(
        flags=flags,
        seconds=seconds,
        status=status,
        texts=_texts(reaction),
        errors=_known_errors(found),
    )


def _python_probe(found: Minimization, reaction: Reaction, seconds: int) -> _Probe | None:
    """How a Python that compiles the result ends."""
    if reaction.verdict is VerdictKind.TRAP_STUB:
        return _Probe(flags="", seconds=seconds, is_stub=True)
    if reaction.stage is Stage.LAUNCH:
        return _over_limit(found, reaction, seconds)
    is_raised = reaction.end.ok or found.stage == Stage.CUBIN.value
    status = _RAISED if is_raised else _status(reaction)
    texts = _texts(reaction)
    if is_raised and reaction.end.signal is not None and found.install and found.install.died:
        texts += (found.install.died.format(reaction.end.signal),)
    # Any exception of Python ends with the same status.
    if status is None or (status == _RAISED and not texts):
        return None
    return _Probe(flags="", seconds=seconds, status=status, texts=texts)


def _over_limit(found: Minimization, reaction: Reaction, seconds: int) -> _Probe | None:
    """The compiler prints what the kernel needs; the target has less."""
    limits = limits_of(Target.parse(found.target).capability)
    if limits is None:
        return None
    most = {"shared": limits.max_shared_per_block, "tmem_size": limits.tensor_memory_columns}
    for name, limit in most.items():
        needed = reaction.fields.get(name)
        if isinstance(needed, int) and limit is not None and needed > limit:
            return _Probe(
                flags="",
                seconds=seconds,
                numbers=((name, rf"[( ]{name}=\([0-9]*\)"),),
                condition=f'[ "${name}" -gt {limit} ]',
            )
    return None


def _status(reaction: Reaction) -> int | None:
    """The exit status that a shell sees; None where the failure does not show in it."""
    if reaction.verdict is VerdictKind.TIMEOUT:
        return _TIMED_OUT
    if reaction.end.killed_by_us or reaction.end.ok:
        return None
    if reaction.end.signal is not None:
        return _SHELL_SIGNAL + reaction.end.signal
    return reaction.end.exit_code


def _texts(reaction: Reaction) -> tuple[str, ...]:
    """What the log has to hold: the code, and the words that do not differ from run to run."""
    signature = reaction.signature
    if reaction.verdict is VerdictKind.TIMEOUT or signature is None:
        return ()
    printed = reaction.printed or reaction.reason
    pieces = [piece.strip() for piece in _FOLDED.split(signature.template)]
    words = [p for p in (*pieces, signature.failing_pass or "") if len(p) >= _SHORTEST]
    found = dict.fromkeys(p for p in words if p in printed)
    return (*((f"({reaction.code})",) if reaction.code else ()), *found)


def _known_errors(found: Minimization) -> tuple[str, ...]:
    """A piece of each error that the original shows; none where one has no piece to go by."""
    pieces = [
        max(map(str.strip, _FOLDED.split(each)), key=len)
        for each in sorted(found.fingerprint.errors or ())
    ]
    is_known = all(len(piece) >= _SHORTEST for piece in pieces)
    return tuple(pieces) if found.level == "ptx" and is_known else ()


def _has_fractions(condition: Condition) -> bool:
    """Whether it needs numbers that a shell does not have."""
    if isinstance(condition, Comparison):
        return isinstance(condition.value, float)
    if isinstance(condition, Negation):
        return _has_fractions(condition.part)
    return _has_fractions(condition.left) or _has_fractions(condition.right)


def _as_shell(condition: Condition) -> str:
    """As a command list; every field that it names is known by then."""
    if isinstance(condition, Comparison):
        other = condition.value
        right = f'"${other.name}"' if isinstance(other, Field) else str(other)
        return f'[ "${condition.field}" {_TESTS[condition.operator]} {right} ]'
    if isinstance(condition, Negation):
        return f"! {{ {_as_shell(condition.part)}; }}"
    joint = "&&" if isinstance(condition, Both) else "||"
    assert isinstance(condition, (Both, Either))
    return f"{{ {_as_shell(condition.left)}; }} {joint} {{ {_as_shell(condition.right)}; }}"


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
        runs_of=found.compiler if found.fingerprint.script is None else "the script",
        sha256=_sha256(found.text),
        shown_by=_shown_by(found),
        sizes=_sizes(found),
        spans=spans_of(found),
        suffix=found.suffix,
        test=test,
        text=text,
        verdict_on_versions=pattern_words(found),
    )


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
class VersionSpan:
    """Neighbouring versions (`3.5.0 - 3.7.1`) with one answer for the original, one for the result.

    The words are those of each of them, each once.
    """

    versions: str
    original: str
    original_words: str
    minimized: str
    minimized_words: str


def spans_of(found: Minimization) -> list[VersionSpan]:
    """The table "original against result, version by version", oldest first."""
    words = {**_WORDS, Answer.SAME: "meets it"} if found.fingerprint.condition else _WORDS
    spans = []
    for (original, minimized), group in itertools.groupby(
        found.versions, key=lambda line: (line.original, line.minimized)
    ):
        lines = list(group)
        ends = dict.fromkeys((lines[0].version, lines[-1].version))
        said = dict.fromkeys(line.minimized_words for line in lines if line.minimized_words)
        spans.append(
            VersionSpan(
                versions=" - ".join(ends),
                original=words[original],
                original_words="; or ".join(dict.fromkeys(line.original_words for line in lines)),
                minimized=words[minimized],
                minimized_words="; or ".join(said),
            )
        )
    return spans


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
        tuple(map(say, (name, f"{before:,}", "->", f"{after:,}", f"{after / before:.1%}")))
        for name, before, after in _sizes(found)
        if before
    )
    if sizes:
        columns = (GridColumn(title="", wraps=True),) * len(sizes[0])
        blocks += [SaidGrid(columns=columns, rows=sizes), BLANK]
    best = f"min{found.suffix}"
    for span in spans_of(found):
        words = f"{span.versions:>20}  {span.original}"
        differs = span.minimized != span.original
        if differs:
            words += f", {best} {span.minimized}"
            words += f": {span.minimized_words}" if span.minimized_words else ""
        blocks.append(say(words, Tone.BAD if differs else Tone.FAINT))
    return [*blocks, *map(say, _closing(found))]


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
        tool = f"{found.compiler} {found.fingerprint.bad}"
        lines.append(f"No version accepts it; {tool} accepts it for {target}.")
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


def nothing_document(found: NothingToReduce) -> dict[str, Any]:
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
