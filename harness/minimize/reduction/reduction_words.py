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
from harness.minimize.reduction.minimization import (
    Ending,
    Minimization,
    MinimizedToolchain,
    NothingToReduce,
    versions_document,
)
from harness.tables.file_templates import render_template
from harness.tables.said import BLANK, Block, GridColumn, SaidGrid, Tone, say
from harness.values.limits import limits_of
from harness.values.row import SCHEMA
from harness.values.standalone import SourceInstall
from harness.values.target import Target
from harness.values.toolchain import assembler_name, assembler_words, compiler_name, compiler_words
from harness.values.verdict import Stage, VerdictKind

# `test.sh` and `repro.sh`: a failure as a shell script that needs nothing of `triage`.

# What a fold of `harness.judging.signature` leaves in place of what it takes away.
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

    seconds: int
    flags: str = ""
    status: int = 0
    is_stub: bool = False
    texts: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    numbers: tuple[tuple[str, str], ...] = ()
    condition: str = ""


def headline_of(result: Minimization) -> str:
    """What goes wrong, in one line."""
    if result.fingerprint.script is not None:
        return f"the script says so: {result.fingerprint.script}"
    condition = result.fingerprint.condition
    words = spell(condition) if condition is not None else result.reason
    # The file with a launch has inputs of its own.
    words = result.left.shown.run_reason if result.left.shown else words
    return " ".join(f"{compilers_of(result)} on {result.subject.target}: {words}".split())


def compilers_of(result: Minimization) -> str:
    """What is at work at this level."""
    tools, subject = result.toolchain, result.subject
    if tools.accused:
        return tools.accused.replace("-", " ", 1)
    compiler = f"{compiler_name(tools.kind)} {tools.version}"
    if subject.is_executed and result.level == "ptx":
        return f"PTX of {compiler}" if tools.version else "PTX"
    ptxas = assembler_name(tools.assembler, tools.ptxas)
    if result.level == "ptx":
        return ptxas
    return f"{compiler} and {ptxas}" if subject.stage in (None, Stage.CUBIN.value) else compiler


def _options_of_guards(result: Minimization) -> dict[str, list[str]]:
    fingerprint, tools = result.fingerprint, result.toolchain
    is_of_assemblers = tools.is_of_assemblers
    versions = {
        "failing": (tools.ptxas if is_of_assemblers else tools.version, *fingerprint.failing),
        "accepting": fingerprint.accepting,
        "refusing": fingerprint.refusing,
    }

    def options(version: str | None) -> str:
        other = replace(tools, version=version)
        if is_of_assemblers and version:
            other = replace(tools, ptxas=version, packages={version: tools.assembler})
        return compile_options(result, other)

    return {role: [options(version) for version in names] for role, names in versions.items()}


def compile_options(result: Minimization, tools: MinimizedToolchain) -> str:
    """Of `triage compile`, for what was reduced at a level above PTX, with these tools."""
    words = ["--sm", result.subject.target]
    words += compiler_words(tools.kind, tools.version) or ["--triton", "installed"]
    if tools.ptxas in tools.packages:
        words += assembler_words(tools.assembler, tools.ptxas)
    return f"{shlex.join(words)} {result.options}".rstrip()


def test_script(result: Minimization) -> str | None:
    """The interestingness script, None where a shell cannot recognise it."""
    if result.fingerprint.script is not None:
        words = "# The predicate that was given: exit status 0 means interesting."
        return f"#!/bin/sh\n{words}\nexec {result.fingerprint.script}\n"
    if result.subject.is_executed:
        return None
    if result.level != "ptx":
        if result.fingerprint.signature is None or result.level == "config":
            return None
        return render_template(
            "minimized/test_source.sh.j2",
            file=f"min{result.suffix}",
            suffix=result.suffix,
            signature=result.fingerprint.signature,
            **_options_of_guards(result),
        )
    probe = _probe(result)
    if probe is None:
        return None
    return render_template("minimized/test.sh.j2", probe=probe, tools=_tools(result))


def repro_script(result: Minimization) -> str | None:
    """The one command that shows it, None where a shell cannot recognise it."""
    if result.subject.is_executed:
        return result.left.command and render_template(
            "minimized/repro_executed.sh.j2",
            headline=headline_of(result),
            command=result.left.command,
            signature=result.fingerprint.signature,
            on_gpu=result.on_gpu,
            of_cubins=result.toolchain.accused is not None,
        )
    probe = _probe(result) if result.fingerprint.script is None else None
    if probe is None or result.level == "config":
        return None
    tools = result.toolchain
    package = tools.packages.get(tools.ptxas)
    if result.level != "ptx":
        if tools.install is None:
            return None
        if tools.install.program:
            return _program_script(result, tools.install, probe)
        return render_template(
            "minimized/repro_source.sh.j2",
            probe=probe,
            headline=headline_of(result),
            target=result.subject.target,
            version=tools.version,
            install=tools.install,
            package=f"{package}=={tools.ptxas}" if package else None,
            file=f"min{result.suffix}",
            program=_compile_ir(result) if result.level == "ttgir" else None,
        )
    return render_template(
        "minimized/repro.sh.j2",
        probe=probe,
        headline=headline_of(result),
        version=tools.ptxas,
        package=f"{package}=={tools.ptxas}" if package else None,
        advice=_advice(result, tools.ptxas),
        file="min.ptx",
    )


def _is_command(result: Minimization) -> bool:
    install = result.toolchain.install
    return result.level == "ptx" or bool(install and install.program)


def _program_script(result: Minimization, install: SourceInstall, probe: _Probe) -> str | None:
    """The same where a program compiles the file, with the assembler that comes with it."""
    if result.toolchain.ptxas in result.toolchain.packages:
        return None
    is_assembled = result.subject.stage in (None, Stage.CUBIN.value)
    more = ("-Xptxas", "-v", "-cubin") if is_assembled else ("-ptx",)
    return render_template(
        "minimized/repro_program.sh.j2",
        probe=probe,
        headline=headline_of(result),
        target=result.subject.target,
        version=result.toolchain.version,
        install=install,
        file=f"min{result.suffix}",
        words=shlex.join((*install.program[1:], f"-arch={result.subject.target}", *more)),
    )


def _compile_ir(result: Minimization) -> str:
    """Python that has Triton compile a module of its IR, which is the first argument."""
    named = (part.partition("=") for part in result.options.split() if "=" in part)
    options = {name: int(value) if value.isdigit() else value for name, _, value in named}
    capability = re.sub(r"\D", "", result.subject.target)
    return (
        "import sys, triton; from triton.backends.compiler import GPUTarget; "
        f"target = GPUTarget('cuda', {capability}, 32); "
        f"print(triton.compile(sys.argv[1], target=target, options={options!r}).metadata)"
    )


def _tools(result: Minimization) -> list[dict[str, object]]:
    fingerprint = result.fingerprint
    return [
        {
            "variable": _variable(result, version),
            "version": version,
            "role": "must accept it" if version in fingerprint.accepting else "must show it",
            "advice": _advice(result, version),
            "must_accept": version in fingerprint.accepting,
        }
        for version in fingerprint.checks
    ]


def _variable(result: Minimization, version: str) -> str:
    fingerprint = result.fingerprint
    if version == fingerprint.bad:
        return "PTXAS_BAD"
    if version == result.last_good:
        return "PTXAS_GOOD"
    if version == result.first_fixed:
        return "PTXAS_FIXED"
    return "PTXAS_" + re.sub(r"\W", "_", version)


def _advice(result: Minimization, version: str) -> str:
    package = result.toolchain.packages.get(version)
    if package is None:
        return ", which is inside a Triton of that time"
    return (
        f"; get it by: python3 -m pip install --no-deps --target DIR {package}=={version}, "
        "then find DIR -name ptxas"
    )


def _probe(result: Minimization) -> _Probe | None:
    flags = shlex.join(result.subject.flags)
    seconds = max(1, round(result.limit))
    condition, reaction = result.fingerprint.condition, result.reaction
    if condition is not None:
        fields = fields_of(condition)
        # No compiler prints these numbers; a program has its assembler print them.
        if not _is_command(result) or not set(fields) <= set(_PRINTED) or _has_fractions(condition):
            return None
        return _Probe(
            flags=flags,
            seconds=seconds,
            numbers=tuple((name, _PRINTED[name]) for name in fields),
            condition=_as_shell(condition),
        )
    if reaction is None:
        return None
    if not _is_command(result):
        return _python_probe(result, reaction, seconds)
    status = _status(reaction)
    if status is None:
        return None
    return _Probe(
        flags=flags,
        seconds=seconds,
        status=status,
        texts=_texts(reaction),
        errors=_known_errors(result),
    )


def _python_probe(result: Minimization, reaction: Reaction, seconds: int) -> _Probe | None:
    if reaction.verdict is VerdictKind.TRAP_STUB:
        return _Probe(seconds=seconds, is_stub=True)
    if reaction.stage is Stage.LAUNCH:
        return _over_limit(result, reaction, seconds)
    is_raised = reaction.end.ok or result.subject.stage == Stage.CUBIN.value
    status = _RAISED if is_raised else _status(reaction)
    texts = _texts(reaction)
    install = result.toolchain.install
    if is_raised and reaction.end.signal is not None and install and install.died:
        texts += (install.died.format(reaction.end.signal),)
    # Any exception of Python ends with the same status.
    if status is None or (status == _RAISED and not texts):
        return None
    return _Probe(seconds=seconds, status=status, texts=texts)


def _over_limit(result: Minimization, reaction: Reaction, seconds: int) -> _Probe | None:
    """The compiler prints what the kernel needs; the target has less."""
    limits = limits_of(Target.parse(result.subject.target).capability)
    if limits is None:
        return None
    most = {"shared": limits.max_shared_per_block, "tmem_size": limits.tensor_memory_columns}
    for name, limit in most.items():
        needed = reaction.fields.get(name)
        if isinstance(needed, int) and limit is not None and needed > limit:
            return _Probe(
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
    shown = dict.fromkeys(p for p in words if p in printed)
    return (*((f"({reaction.code})",) if reaction.code else ()), *shown)


def _known_errors(result: Minimization) -> tuple[str, ...]:
    """A piece of each error that the original shows; none where one has no piece to go by."""
    pieces = [
        max(map(str.strip, _FOLDED.split(error)), key=len)
        for error in sorted(result.fingerprint.errors or ())
    ]
    is_known = all(len(piece) >= _SHORTEST for piece in pieces)
    return tuple(pieces) if result.level == "ptx" and is_known else ()


def _has_fractions(condition: Condition) -> bool:
    if isinstance(condition, Comparison):
        return isinstance(condition.value, float)
    if isinstance(condition, Negation):
        return _has_fractions(condition.part)
    return _has_fractions(condition.left) or _has_fractions(condition.right)


def _as_shell(condition: Condition) -> str:
    """As a command list; every field that it names is known by then."""
    if isinstance(condition, Comparison):
        value = condition.value
        right = f'"${value.name}"' if isinstance(value, Field) else str(value)
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
    Answer.UNTOLD: "undetermined",
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


def folder_files(result: Minimization, *, command: str) -> dict[str, str]:
    """The texts that go beside the result, by name; what no shell can check has no script."""
    test, repro = test_script(result), repro_script(result)
    files = {"test.sh": test, "repro.sh": repro}
    files["README.md"] = _readme(result, command, test=test is not None, repro=repro is not None)
    files["versions.json"] = json.dumps(versions_document(result), indent=2) + "\n"
    return {name: text for name, text in files.items() if text is not None}


def measure_of(result: Minimization) -> str:
    """What the level counts; of source that is not Python, all lines with code."""
    return (
        "lines" if result.level == "source" and result.suffix != ".py" else MEASURES[result.level]
    )


def _readme(result: Minimization, command: str, *, test: bool, repro: bool) -> str:
    condition, reaction = result.fingerprint.condition, result.reaction
    text = result.shown_text
    text = text if text.endswith("\n") else text + "\n"
    return render_template(
        "minimized/README.md.j2",
        m=result,
        best=f"min{result.suffix}",
        command=command,
        compilers=compilers_of(result),
        condition=spell(condition) if condition else None,
        ending=_ENDINGS[result.spent.ending],
        fence="`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0)),
        flags=shlex.join(result.subject.flags),
        language=_LANGUAGES.get(result.suffix, result.suffix.strip(".")),
        hangs=reaction is not None and reaction.verdict is VerdictKind.TIMEOUT,
        headline=headline_of(result),
        original=f"original{result.suffix}",
        original_has_paths=bool(_PATHS.search(result.subject.text)),
        original_sha256=_sha256(result.subject.text),
        repro=repro,
        runs_of=result.compiler if result.fingerprint.script is None else "the script",
        sha256=_sha256(result.left.text),
        shown_by=_shown_by(result),
        sizes=_sizes(result),
        spans=spans_of(result),
        suffix=result.suffix,
        test=test,
        text=text,
        verdict_on_versions=pattern_words(result),
    )


def _shown_by(result: Minimization) -> str:
    if result.fingerprint.script is not None:
        return result.fingerprint.script
    if result.level == "config":
        return result.left.text.strip()
    if result.left.command:
        return result.left.command
    if result.level != "ptx":
        options = compile_options(result, result.toolchain)
        return f"triage compile --kernel min{result.suffix} {options}"
    return f"ptxas {shlex.join(result.subject.flags)} min.ptx -o min.cubin"


def _sizes(result: Minimization) -> list[tuple[str, int, int]]:
    """Each measure, of the original and of the result; the level's own comes first."""
    if result.level not in MEASURES:
        return []
    before, after = result.subject.size, result.left.size
    first = (
        measure_of(result),
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


def spans_of(result: Minimization) -> list[VersionSpan]:
    """The table "original against result, version by version", oldest first."""
    words = {**_WORDS, Answer.SAME: "meets it"} if result.fingerprint.condition else _WORDS
    spans = []
    for (original, minimized), group in itertools.groupby(
        result.versions, key=lambda line: (line.original, line.minimized)
    ):
        lines = list(group)
        ends = dict.fromkeys((lines[0].version, lines[-1].version))
        reasons = dict.fromkeys(line.minimized_words for line in lines if line.minimized_words)
        spans.append(
            VersionSpan(
                versions=" - ".join(ends),
                original=words[original],
                original_words="; or ".join(dict.fromkeys(line.original_words for line in lines)),
                minimized=words[minimized],
                minimized_words="; or ".join(reasons),
            )
        )
    return spans


def pattern_words(result: Minimization) -> str:
    """Whether original and result have the same answers on every installed version."""
    original, best = f"original{result.suffix}", f"min{result.suffix}"
    telling = [line for line in result.versions if line.original is not Answer.UNTOLD]
    if not telling:
        return ""
    if any(line.minimized is None for line in telling):
        return f"The versions were not run on {best}."
    if result.fingerprint.signature is None:
        guards = ", ".join(result.fingerprint.accepting)
        words = f"Only {result.compiler} {result.fingerprint.bad} was required to show it"
        return f"{words}, and {guards} not to show it." if guards else f"{words}."
    if result.drift:
        return f"NOT the same as with {original}: {', '.join(result.drift)}."
    same = [line.version for line in telling if line.is_same]
    others = [line.version for line in telling if not line.is_same]
    count = f"all {len(same)} versions" if len(same) > 1 else "the one version"
    words = f"The same as with {original} on {count} that gave an answer."
    if others:
        words = words.replace(" that gave an answer.", f" that fail this way or accept {original}.")
        words += f" On others it is another: {', '.join(others)}."
    return words


def minimization_said(result: Minimization) -> list[Block]:
    """Sizes, what holds it, versions, and where the files are."""
    blocks: list[Block] = [say(headline_of(result), Tone.HEAD)]
    sizes = tuple(
        tuple(map(say, (name, f"{before:,}", "->", f"{after:,}", f"{after / before:.1%}")))
        for name, before, after in _sizes(result)
        if before
    )
    if sizes:
        columns = (GridColumn(title="", wraps=True),) * len(sizes[0])
        blocks += [SaidGrid(columns=columns, rows=sizes), BLANK]
    best = f"min{result.suffix}"
    for span in spans_of(result):
        words = f"{span.versions:>20}  {span.original}"
        differs = span.minimized != span.original
        if differs:
            words += f", {best} {span.minimized}"
            words += f": {span.minimized_words}" if span.minimized_words else ""
        blocks.append(say(words, Tone.BAD if differs else Tone.FAINT))
    return [*blocks, *map(say, _closing(result))]


def _closing(result: Minimization) -> list[str]:
    lines = [pattern_words(result)] if result.versions else []
    if result.left.is_minimal is not None:
        piece = _PIECES[result.level]
        is_minimal = result.left.is_minimal
        no = f"no {piece} can go alone" if is_minimal else f"some {piece} could still go"
        lines.append(f"Tried out: {no}.")
    if (more := result.left.undefined - result.subject.undefined) > 0:
        lines.append(
            f"It reads registers that nothing wrote, {more} more than the original: --defined."
        )
    if target := result.fingerprint.held_for:
        tool = f"{result.compiler} {result.fingerprint.bad}"
        lines.append(f"No version accepts it; {tool} accepts it for {target}.")
    if result.is_unheld:
        lines.append("Nothing that was tried accepts the original: the kernel itself may be wrong.")
    spent = result.spent
    rate = spent.tests / spent.seconds if spent.seconds else 0.0
    lines.append(
        f"{spent.tests:,} tests ({spent.calls:,} runs) in {spent.seconds:.0f} s, "
        f"{rate:.0f} a second{_ENDINGS[spent.ending]}."
    )
    return [line for line in lines if line]


def nothing_document(result: NothingToReduce) -> dict[str, Any]:
    """As `--json` prints it where there is nothing to reduce."""
    return {"schema": SCHEMA, "instructions": None, "path": None, "reason": result.reason}


def minimization_document(result: Minimization) -> dict[str, Any]:
    """As `--json` prints it."""
    fingerprint, reaction = result.fingerprint, result.reaction
    subject, left, spent = result.subject, result.left, result.spent
    return {
        "schema": SCHEMA,
        "instructions": left.size.instructions,
        "bytes": left.size.bytes,
        "lines": left.size.lines,
        "measure": measure_of(result) if result.level in MEASURES else None,
        "original": subject.size,
        "as_version": subject.as_version,
        "tests": spent.tests,
        "calls": spent.calls,
        "seconds": round(spent.seconds, 3),
        "path": result.path,
        "level": result.level,
        "run_command": left.command,
        "ending": spent.ending.value,
        "trouble": spent.trouble,
        "fingerprint": {
            "fails": [fingerprint.bad, *fingerprint.failing],
            "accepted_by": fingerprint.accepting,
            "refused_by": fingerprint.refusing,
            "accepted_for": fingerprint.held_for,
            "while": spell(fingerprint.condition) if fingerprint.condition else None,
            "script": fingerprint.script,
            "limit_seconds": result.limit,
        },
        "signature": fingerprint.signature,
        "verdict": reaction.verdict.value if reaction else None,
        "code": reaction.code if reaction else None,
        "last_good": result.last_good,
        "first_fixed": result.first_fixed,
        "is_minimal": left.is_minimal,
        "undefined_registers": {"original": subject.undefined, "minimized": left.undefined},
        "versions": [
            {
                result.compiler.lower(): line.version,
                "original": line.original.value,
                "minimized": line.minimized.value if line.minimized else None,
            }
            for line in result.versions
        ],
        "drift": result.drift,
        "passes": spent.passes,
        "notes": result.notes,
    }
