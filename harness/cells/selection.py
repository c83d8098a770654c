"""What the selection options mean: the same in every command that takes a kernel."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from msgspec import structs
from packaging.version import Version

from gpu_emulator.ptx.text.facts import PtxError, header_value
from harness.cells.repros.find import find_kernels
from harness.cells.spelling import SelectionOptions
from harness.frontends.back_end import BackEnd
from harness.frontends.base import FrontEnd
from harness.frontends.plan import PlannedLaunch, Selection
from harness.frontends.registry import front_end, reader_of, unassembled
from harness.frontends.texts.ir_inputs import OPTIONS_ARGUMENT
from harness.io.packages.versions import LATEST
from harness.io.processes.machine import gpus
from harness.judging.ptxas.ptxas_options import read_options
from harness.values.cell import LaunchLabel
from harness.values.errors import EmptySelectionError, UsageError
from harness.values.kernel import LaunchSpec, Repro, Scalar
from harness.values.limits import KNOWN_CAPABILITIES
from harness.values.target import EXAMPLES, Target
from harness.values.toolchain import (
    BUNDLED,
    INSTALLED,
    NO_ASSEMBLER,
    PTXAS,
    TRITON,
    Assembler,
    Compiler,
    Tool,
)

_KIND = re.compile(r"[a-z][a-z0-9_]*")
_SPEC = re.compile(r"[=<>~!]=?|[0-9]")

SUFFIX_SINCE = {"a": 90, "f": 100}
"""From which compute capability on ptxas knows a suffix (PTX ISA, `.target`)."""


def select(options: SelectionOptions) -> Selection:
    """Resolve the options of a command that works on one kernel.

    Raises:
        UsageError: something named does not exist, or `--kernel` means several kernels.
        InfrastructureError: a toolchain cannot be installed.
    """
    repros = find_kernels(options.kernel)
    if len(repros) > 1:
        names = ", ".join(repro.name for repro in repros[:8])
        raise UsageError(f"--kernel {options.kernel}: this command takes one; name one of {names}")
    by_assembler = _select(options, repros[0])
    if len(by_assembler) > 1:
        kinds = " and ".join(back.title for _, back in by_assembler)
        raise UsageError(f"--sm: {repros[0].name} goes through {kinds}; name targets of one")
    selection, back = by_assembler[0]
    tool, notes = back.disassembler()
    return structs.replace(selection, nvdisasm=tool, notes=(*selection.notes, *notes))


def select_all(options: SelectionOptions) -> tuple[Selection, ...]:
    """Resolve the options for every kernel that `--kernel` means, installing the toolchains.

    Targets that do not share an assembler are selections of their own. Of several kernels, those to
    which the options do not apply are left out, and a note says so.

    Raises:
        UsageError: something named does not exist; the message has the nearest that does.
        InfrastructureError: a toolchain cannot be installed.
    """
    return select_repros(options, find_kernels(options.kernel))


def select_repros(options: SelectionOptions, repros: Sequence[Repro]) -> tuple[Selection, ...]:
    """As `select_all`, for these repros, whatever `--kernel` says."""
    selections: list[Selection] = []
    refusals: list[UsageError] = []
    tools: dict[str, tuple[Tool | None, tuple[str, ...]]] = {}
    for repro in repros:
        try:
            by_assembler = _select(options, repro)
        except UsageError as error:
            refusals.append(error)
            continue
        for selection, back in by_assembler:
            if back.kind not in tools:
                tools[back.kind] = back.disassembler()
            tool, notes = tools[back.kind]
            notes = (*selection.notes, *notes)
            selections.append(structs.replace(selection, nvdisasm=tool, notes=notes))
    if not selections:
        raise refusals[0]
    left_out = tuple(dict.fromkeys(f"left out: {error}" for error in refusals))
    return (
        structs.replace(selections[0], notes=(*selections[0].notes, *left_out)),
        *selections[1:],
    )


def _select(options: SelectionOptions, repro: Repro) -> list[tuple[Selection, BackEnd]]:
    """One for each assembler that the targets go through."""
    config = options.filter
    specs = _named_launches(options, repro)
    if any(spec.from_ptx for spec in specs):
        # What goes on from PTX needs no compiler for it.
        if len(specs) > 1:
            raise UsageError(
                f"--launch {options.launch}: {repro.name} starts from PTX or before it; name one "
                f"of {', '.join(spec.name for spec in specs)}"
            )
        repro = structs.replace(repro, launches=specs)
    if options.freeze_ptx and not (options.ptxas or options.assembler):
        raise UsageError("--freeze-ptx gives one PTX to several ptxas; name them with --ptxas")
    here = () if options.sm or repro.targets else gpus()
    targets = choose_targets(structs.replace(options, sm=here) if here else options, repro)
    launches = choose_launches(options, repro)
    front = reader_of(repro, options.compiler)
    if not repro.ptx:
        repro = structs.replace(repro, compiler=front.kind)
    by_kind: dict[str, tuple[BackEnd, list[Target]]] = {}
    for target in targets:
        back = front.back_end(target)
        by_kind.setdefault(back.kind, (back, []))[1].append(target)
    words = _assembler_words(options, repro, front, [back for back, _ in by_kind.values()])
    assemblers = {kind: _assemblers(repro, by_kind[kind][0], words[kind]) for kind in by_kind}
    compilers = _compilers(options, repro, front)
    return [
        (
            Selection(
                repro=repro,
                launches=launches,
                targets=tuple(group),
                compilers=compilers,
                ptxas=assemblers[kind],
                config=config,
                freeze_ptx=options.freeze_ptx,
                nvdisasm=None,
                is_compiler_named=bool(options.triton or options.compiler),
                formal=options.formal,
                surroundings=tuple(options.surroundings),
                notes=(f"--sm is this machine's GPU: {', '.join(here)}",) if here else (),
            ),
            back,
        )
        for kind, (back, group) in by_kind.items()
    ]


def choose_targets(options: SelectionOptions, repro: Repro) -> tuple[Target, ...]:
    """The targets that `--sm` names, else the repro's.

    Raises:
        UsageError: one of them is not a GPU that is known.
    """
    words = options.sm or repro.targets
    if not words:
        raise UsageError(f"--sm is missing: say which GPU, by its target or name: {EXAMPLES}")
    targets = tuple(dict.fromkeys(Target.parse(word) for word in words))
    for target in targets:
        since = SUFFIX_SINCE.get(target.suffix, 0)
        if target.capability < since:
            raise UsageError(f"{target}: the suffix {target.suffix} exists from sm_{since} on")
        if not repro.ptx and target.capability not in KNOWN_CAPABILITIES:
            numbers = ", ".join(map(str, sorted(KNOWN_CAPABILITIES)))
            raise UsageError(
                f"{target}: no GPU of this compute capability is known; "
                f"the known ones are {numbers}"
            )
    return targets


def choose_launches(options: SelectionOptions, repro: Repro) -> tuple[PlannedLaunch, ...]:
    """The launches that `--launch` and `--set` mean; the first by default.

    `--launch` takes what a table prints, too: `default:chunk_size=32#2` is `--set chunk_size=32`,
    and the second launch of each kernel.

    Raises:
        UsageError: the repro has no such launch or parameter.
    """
    if repro.ptx and options.config:
        raise UsageError(f"{repro.name}: PTX has no configs; --config does not apply")
    label = LaunchLabel.parse(options.launch or "")
    changed = dict.fromkeys((*label.overrides, *options.set))
    return tuple(
        PlannedLaunch(
            spec=spec,
            overrides=_overrides([*changed], spec, repro),
            named=frozenset(word.partition("=")[0] for word in changed),
            number=label.number if (options.launch or "").endswith(f"#{label.number}") else None,
        )
        for spec in _named_launches(options, repro)
    )


def _named_launches(options: SelectionOptions, repro: Repro) -> tuple[LaunchSpec, ...]:
    if not options.launch:
        return repro.launches[:1]
    name = LaunchLabel.parse(options.launch).name
    chosen = tuple(spec for spec in repro.launches if fnmatchcase(spec.name, name))
    if not chosen:
        names = [launch.name for launch in repro.launches]
        raise UsageError(f"--launch {options.launch}: {repro.name} has {', '.join(names)}")
    return chosen


def _overrides(words: Sequence[str], spec: LaunchSpec, repro: Repro) -> dict[str, Scalar | None]:
    parameters = {parameter.name: parameter for parameter in spec.parameters}
    overrides: dict[str, Scalar | None] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"--set {word}: write NAME=VALUE, for example --set chunk_size=32")
        if name not in parameters:
            near = difflib.get_close_matches(name, parameters, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageError(
                f"--set {name}: launch {spec.name} of {repro.name} has no such parameter; "
                f"{hint}it has {', '.join(parameters) or 'none'}"
            )
        if name in overrides:
            raise UsageError(f"--set {name} is given twice; which one is meant?")
        try:
            is_options = repro.ptx is not None and name == OPTIONS_ARGUMENT
            is_header = repro.ptx is not None and not is_options
            overrides[name] = header_value(name, text) if is_header else parameters[name].read(text)
            if is_options:
                read_options(text)
        except PtxError as error:
            raise UsageError(f"--set {name}: {error}") from error
    # In the order of the signature, and a default that is set is not an override: one cell id.
    return {
        name: overrides[name]
        for name, parameter in parameters.items()
        if name in overrides and overrides[name] != parameter.default
    }


def _compilers(options: SelectionOptions, repro: Repro, front: FrontEnd) -> tuple[Compiler, ...]:
    """The versions that `--triton` and `--compiler` name; else the repro's, or the default."""
    if options.triton and front.kind != TRITON:
        why = "PTX has been through Triton" if repro.ptx else f"it is compiled by {front.title}"
        raise UsageError(f"{repro.name}: {why}; --triton does not apply")
    words = list(options.triton)
    for text in options.compiler:
        kind, spec = _kind_and_spec("--compiler", text, (INSTALLED, LATEST), "triton==3.6.0")
        if kind != front.kind:
            raise UsageError(
                f"--compiler {text}: {repro.name} is compiled by {front.title} ({front.kind})"
            )
        words.append(spec or INSTALLED)
    # The version that a repro names is that of its compiler; its PTX has been through it.
    own = repro.version if repro.compiler == front.kind else None
    compilers: list[Compiler] = []
    option = "--triton" if front.kind == TRITON else "--compiler"
    for word in words or [own or INSTALLED]:
        if word != INSTALLED:
            compilers += map(front.install, _versions(front, option, word))
        else:
            compilers.append(front.default())
    return tuple(dict.fromkeys(compilers))


def _versions(tool: FrontEnd | BackEnd, option: str, spec: str) -> list[Version]:
    versions = tool.select(spec)
    if not versions:
        raise EmptySelectionError(f"{option} {spec}: the package index has no such {tool.title}")
    return versions


def _kind_and_spec(option: str, text: str, words: Sequence[str], example: str) -> tuple[str, str]:
    """The two parts of `KIND==VERSION`; the second is empty where only a kind is named."""
    kind = _KIND.match(text)
    spec = text[kind.end() :].strip() if kind else text
    if spec.removeprefix("==") in words:
        spec = spec.removeprefix("==")
    elif kind is None or (spec and not _SPEC.match(spec)):
        raise UsageError(f"{option} {text}: write KIND==VERSION, for example {example}")
    return kind[0] if kind else "", spec


def _assembler_words(
    options: SelectionOptions, repro: Repro, front: FrontEnd, backs: Sequence[BackEnd]
) -> dict[str, list[str]]:
    """For each of `backs` the versions that `--ptxas` and `--assembler` name, by kind.

    Raises:
        UsageError: what they name assembles none of the targets.
    """
    defaults = {back.kind: back.default for back in backs}
    words: dict[str, list[str]] = {kind: [] for kind in defaults}
    real = [back for back in backs if back.kind != NO_ASSEMBLER]
    titles = " or ".join(back.title for back in real)
    if options.ptxas:
        if PTXAS not in words:
            why = f"it is assembled by {titles}" if titles else unassembled(front)
            hint = "".join(f", write --assembler {back.kind}==VERSION" for back in real[:1])
            raise UsageError(f"{repro.name}: {why}; --ptxas does not apply{hint}")
        words[PTXAS] += options.ptxas
    for text in options.assembler:
        kind, spec = _kind_and_spec("--assembler", text, (BUNDLED, LATEST), "ptxas==13.1.115")
        kinds = [back.kind for back in real]
        if kind not in kinds:
            who = f"{repro.name} is assembled by {titles} ({', '.join(kinds)})"
            raise UsageError(f"--assembler {text}: {who if titles else unassembled(front)}")
        words[kind].append(spec or defaults[kind])
    return {kind: versions or [defaults[kind]] for kind, versions in words.items()}


def _assemblers(repro: Repro, back: BackEnd, words: Sequence[str]) -> tuple[Assembler | None, ...]:
    """The versions of one assembler; None for the bundled one."""
    assemblers: list[Assembler | None] = []
    option = "--ptxas" if back.kind == PTXAS else "--assembler"
    for word in words:
        if word == NO_ASSEMBLER:
            assemblers.append(back.install(word))
        elif word == BUNDLED and back.default != BUNDLED:
            raise UsageError(
                f"{repro.name}: {option} bundled needs a compiler that brings one along; name "
                "a version, or `latest`"
            )
        elif word == BUNDLED:
            assemblers.append(None)
        else:
            assemblers += map(back.install, _versions(back, option, word))
    return tuple(dict.fromkeys(assemblers))


def for_target(selection: Selection, target: Target) -> Selection:
    """The same on another GPU; where that has another assembler, with the default of that one.

    Raises:
        UsageError, InfrastructureError: that is not available.
    """
    front = front_end(selection.repro.front_end)
    back, ptxas = front.back_end(target), selection.ptxas
    if back.kind != front.back_end(selection.targets[0]).kind:
        ptxas = _assemblers(selection.repro, back, [back.default])
    return structs.replace(selection, targets=(target,), ptxas=ptxas)


def small_launch(selection: Selection, launch: PlannedLaunch) -> PlannedLaunch:
    """The launch with the small parameters of its repro, where they are smaller and not set."""
    defaults = {parameter.name: parameter.default for parameter in launch.spec.parameters}
    small: dict[str, Scalar | None] = {}
    for name, value in selection.repro.check:
        default = defaults.get(name)
        is_smaller = type(default) is int and type(value) is int and default < value
        if name in defaults and name not in launch.named and not is_smaller:
            small[name] = value
    return structs.replace(launch, overrides={**small, **launch.overrides})
