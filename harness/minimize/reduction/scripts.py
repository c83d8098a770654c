"""`test.sh` and `repro.sh`: a failure as a shell script that needs nothing of `triage`. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace

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
from harness.minimize.reduction.fingerprint import Reaction
from harness.minimize.reduction.result import Minimization
from harness.tables.templates import render_template
from harness.values.limits import limits_of
from harness.values.standalone import SourceInstall
from harness.values.target import Target
from harness.values.toolchain import assembler_name, assembler_words, compiler_name, compiler_words
from harness.values.verdict import Stage, VerdictKind

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tool:
    variable: str
    version: str
    role: str
    advice: str
    must_accept: bool


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
    return {
        name: [compile_options(_with(found, version)) for version in each]
        for name, each in versions.items()
    }


def _with(found: Minimization, version: str | None) -> Minimization:
    """The same with another version of the tool whose versions are compared."""
    if found.is_of_assemblers and version:
        return replace(found, ptxas=version, packages={version: found.assembler})
    return replace(found, triton=version)


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


def _tools(found: Minimization) -> list[_Tool]:
    fingerprint = found.fingerprint
    return [
        _Tool(
            variable=_variable(found, version),
            version=version,
            role="must accept it" if version in fingerprint.accepting else "must show it",
            advice=_advice(found, version),
            must_accept=version in fingerprint.accepting,
        )
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
