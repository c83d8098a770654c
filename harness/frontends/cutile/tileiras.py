"""tileiras behind the door of assemblers: from the bytecode of Tile IR to a cubin.

tileiras generates PTX with libNVVM and calls ptxas: where none lies beside it, as in the
environments that we install, the first on its PATH. It is our script, which keeps the PTX and what
ptxas said (tileiras passes on neither), and calls the ptxas of the same release.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from packaging.version import Version

from gpu_emulator.ptx.text.facts import MAX_BYTES, PtxError, read_ptx
from harness.frontends.assemble import CODE, PROGRAMS, AssemblerRun, Inspection, is_cubin
from harness.frontends.back_end import PTXAS_BACK_END, BackEnd, LoweredProgram
from harness.frontends.bench import Kept, Workbench, content_key
from harness.frontends.cuda.compilers import tool_of
from harness.frontends.partners import PINS
from harness.io.packages.versions import exact_version
from harness.io.toolchains.environments import planned_environment
from harness.io.toolchains.install import install_ptxas
from harness.io.toolchains.installed import check_in_wheel, check_ptxas
from harness.judging.judge import CellEvidence, after, death_signal, failed, judge_assembly, stopped
from harness.judging.ptxas.ptxas_log import parse_ptxas_log
from harness.judging.ptxas.resources import combine
from harness.values.errors import InfrastructureError
from harness.values.outcome import Assembly, ProcessEnd, Resources, signal_name
from harness.values.toolchain import BUNDLED, PTX, PTXAS, Assembler, Compiler, Tool
from harness.values.verdict import Stage, Verdict, VerdictKind

TILEIRAS = "tileiras"
_PINS = PINS[TILEIRAS]
_PACKAGE, _NVVM = _PINS.package, "nvidia-nvvm"
_PROGRAM = "kernel.tileir"
_PTX, _LOG = "kernel.ptx", "ptxas.log"
# Goes up when the script does another thing, or what it leaves is read otherwise.
_RULE = 2
_SCRIPT = """\
#!/bin/sh
for word; do
  shift
  case $word in
    *.ptx) cp "$word" {ptx}; word={ptx} ;;
  esac
  set -- "$@" "$word"
done
{ptxas} -v "$@" > {log} 2>&1
status=$?
[ $status = 0 ] || echo "ptxas ended with $status" >> {log}
exit $status
"""


def ptxas_script(ptxas: Path) -> str:
    """What tileiras is to call for this ptxas: it leaves the PTX, and what ptxas said and did."""
    return _SCRIPT.format(ptx=_PTX, log=_LOG, ptxas=shlex.quote(str(ptxas)))


def tileiras_in(compiler: Compiler) -> Path:
    """The tileiras of an environment.

    Raises:
        InfrastructureError: there is none.
    """
    return tool_of(compiler, TILEIRAS)


class _Tileiras(BackEnd):
    kind = TILEIRAS
    title = TILEIRAS
    takes = "tileir"
    code = "Tile IR"
    default = BUNDLED

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return _PINS.available(prereleases=prereleases)

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        exact = exact_version(spec)
        if exact is not None and exact in self.installed():
            return [exact]
        return super().select(spec, prereleases=prereleases)

    def installed(self) -> list[Version]:
        return sorted(Version(compiler.version) for compiler in _PINS.installed())

    def install(self, version: Version | str) -> Assembler:
        path = tileiras_in(_PINS.install(version))
        install_ptxas(_version_of(path, _NVVM))
        return _described(path, _PACKAGE)

    def planned(self, version: Version | str) -> Assembler:
        if compiler := _PINS.here(version):
            return _described(tileiras_in(compiler), _PACKAGE)
        declared = _PINS.environment(str(version))
        would_be = planned_environment(declared)
        versions = {pin.name: pin.version for pin in declared.pins}
        assert would_be.python is not None, "it lives in an environment of its own"
        return _assembler(would_be.python.parent / TILEIRAS, _PACKAGE, versions)

    def brought_along(self, path: Path) -> Assembler:
        return _described(path, BUNDLED)

    def disassembler(self, *, installs: bool = True) -> tuple[Tool | None, tuple[str, ...]]:
        return PTXAS_BACK_END.disassembler(installs=installs)

    def key(self, program: LoweredProgram, assembler: Assembler) -> str:
        return content_key(
            rule=_RULE,
            tileiras=assembler.sha256,
            ptxas=_ptxas_of(assembler).sha256,
            program=program.sha256,
            flags=program.flags,
        )

    def run(
        self,
        assembler: Assembler,
        program: Callable[[], bytes],
        flags: tuple[str, ...],
        target: str | None,
    ) -> AssemblerRun:
        ptxas = _ptxas_of(assembler)

        def check() -> None:
            check_in_wheel(assembler.path, TILEIRAS)
            check_ptxas(ptxas)

        return AssemblerRun(
            program=program,
            name=_PROGRAM,
            argv=(assembler.path, _PROGRAM, "-o", CODE, *flags),
            flags=flags,
            is_code=is_cubin,
            check=check,
            programs={PTXAS: ptxas_script(ptxas.path)},
            # Its temporary files go with the folder, however it ends.
            env={"PATH": f"{PROGRAMS}:/usr/bin:/bin", "TMPDIR": "."},
            leaves={PTX: _PTX, "ptxas": _LOG},
            log="ptxas",
            notes=_notes,
        )

    async def inspect(
        self, bench: Workbench, code: str, tools: Sequence[Tool]
    ) -> Kept[Inspection] | None:
        return await PTXAS_BACK_END.inspect(bench, code, tools)

    def resources(self, evidence: CellEvidence, inspection: Inspection | None) -> Resources:
        if evidence.assembly is None or evidence.kernel is None:
            return Resources()
        return combine(
            entry=evidence.kernel,
            log=parse_ptxas_log(evidence.assembly.stderr),
            cubin=inspection.cubin if inspection else None,
            metadata=evidence.assembly.metadata,
            ptx=None,
        )

    def judge(self, evidence: CellEvidence) -> Verdict:
        return judge_tileiras(evidence)


def _ptxas_of(tileiras: Assembler) -> Assembler:
    return install_ptxas(_version_of(tileiras.path, _NVVM))


def _notes(files: Mapping[str, Path]) -> dict[str, object]:
    """What the PTX of a program with one kernel says that neither ptxas nor the cubin does."""
    if PTX not in files or files[PTX].stat().st_size > MAX_BYTES:
        return {}
    try:
        facts = read_ptx(files[PTX].read_text(encoding="utf-8", errors="replace"))
    except PtxError:
        return {}
    is_known = len(facts.entries) == 1 and facts.tmem_columns is not None
    return {"tmem_size": facts.tmem_columns} if is_known else {}


def _described(path: Path, origin: str) -> Assembler:
    names = (_PACKAGE, _NVVM)
    return _assembler(path, origin, {name: _version_of(path, name) for name in names})


def _assembler(path: Path, origin: str, versions: dict[str, str]) -> Assembler:
    """What it is follows from its packages: the index keeps each version as it is."""
    words = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return Assembler(
        kind=TILEIRAS,
        version=versions[_PACKAGE],
        origin=origin,
        path=path,
        sha256=hashlib.sha256(words.encode()).hexdigest(),
        build=words,
    )


def _version_of(tileiras: Path, package: str) -> str:
    """The version of a package beside a tileiras.

    Raises:
        InfrastructureError: it is not there.
    """
    site = tileiras.parents[3]
    prefix, suffix = f"{package.replace('-', '_')}-", ".dist-info"
    folder = next(iter(sorted(site.glob(f"{prefix}*{suffix}"))), None)
    if folder is None:
        raise InfrastructureError(f"{tileiras}: there is no {package} beside it; install it again")
    return folder.name.removeprefix(prefix).removesuffix(suffix)


# Wordings of 13.2 to 13.5.
_UNSUPPORTED = re.compile(
    r"Cannot find option named '(?:sm_\w+)'"
    r"|unsupported Tile(?: IR bytecode)? version"
    r"|invalid GPU architecture"
)
_ENDED = re.compile(r"^ptxas ended with (\d+)$", re.MULTILINE)
_OF_PTXAS = re.compile(r"^ptxas(?: |$)")
_ERROR = re.compile(r"^(?:loc\(.*\): )?(?:tileiras: )?(?:error: )?(?P<text>.*)$")
# What it says whatever failed.
_SAYS_NOTHING = "failed to compile Tile IR program"


def judge_tileiras(evidence: CellEvidence) -> Verdict:
    """The verdict on a run of tileiras that left no cubin: its own end, or that of its ptxas."""
    assembly, stage = evidence.assembly, Stage.CUBIN
    assert assembly is not None, "it is asked about one that ran"
    if verdict := stopped(assembly.end, stage, "tileiras"):
        return verdict
    own, inner = _apart(assembly)
    if inner is not None and assembly.end.signal is None:
        log = parse_ptxas_log(inner.stderr)
        return judge_assembly(inner, log=log, entry=evidence.kernel, target=evidence.target)
    lines = [_ERROR.sub(r"\g<text>", line.strip()) for line in own.splitlines() if line.strip()]
    error = next((line for line in lines if line and line != _SAYS_NOTHING), "")
    number = death_signal(assembly.end)
    if number is not None:
        reason = f"tileiras {assembly.end.words}" + (after(error) or ", saying nothing")
        message = f"{signal_name(number)}: {error}"
        return failed(VerdictKind.COMPILER_CRASH, stage, reason, message=message)
    if assembly.end.ok:
        reason = "tileiras ended with exit code 0 and left no complete cubin"
        return failed(VerdictKind.PASS_FAILURE, stage, reason)
    if _UNSUPPORTED.search(error):
        reason = f"this tileiras cannot do it: {error}"
        return failed(VerdictKind.UNSUPPORTED, stage, reason, message=error)
    why = error or (lines[0] if lines else "it said nothing")
    reason = f"tileiras ended with {assembly.end.words} before it called ptxas: {why}"
    return failed(VerdictKind.PASS_FAILURE, stage, reason, message=why)


def _apart(assembly: Assembly) -> tuple[str, Assembly | None]:
    """What tileiras said itself, and the run of its ptxas where that failed."""
    lines = assembly.stderr.splitlines()
    own = "\n".join(line for line in lines if not _OF_PTXAS.match(line))
    exit_line = _ENDED.search(assembly.stderr)
    if exit_line is None:
        return own, None
    log = "\n".join(line for line in lines if _OF_PTXAS.match(line) and not _ENDED.match(line))
    process = ProcessEnd(exit_code=int(exit_line[1]))
    inner = Assembly(end=process, flags=assembly.flags, stdout="", stderr=log, has_cubin=False)
    return own, inner


TILEIRAS_BACK_END: BackEnd = _Tileiras()
