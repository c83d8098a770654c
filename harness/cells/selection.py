"""What the selection options mean: the same in every command that takes a kernel."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from msgspec import structs

from gpu_emulator.ptx.text.facts import PtxError, header_value
from harness.cells.repros.find import find_kernels
from harness.cells.spelling import SelectionOptions
from harness.frontends.back_end import BackEnd
from harness.frontends.base import FrontEnd, PlannedLaunch, Selection
from harness.frontends.registry import back_end, front_end, kinds, takes, unassembled
from harness.io.packages.versions import LATEST
from harness.values.errors import EmptySelectionError, UsageError
from harness.values.kernel import ConfigFilter, LaunchSpec, Repro, Scalar
from harness.values.limits import KNOWN_CAPABILITIES
from harness.values.target import Target
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
    found = find_kernels(options.kernel)
    if len(found) > 1:
        names = ", ".join(repro.name for repro in found[:8])
        raise UsageError(f"--kernel {options.kernel}: this command takes one; name one of {names}")
    first, *others = _select(options, found[0])
    if others:
        kinds = " and ".join(_back_end(each).title for each in (first, *others))
        raise UsageError(f"--sm: {first.repro.name} goes through {kinds}; name targets of one")
    tool, notes = _back_end(first).disassembler()
    return replace(first, nvdisasm=tool, notes=notes)


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
            found = _select(options, repro)
        except UsageError as error:
            refusals.append(error)
            continue
        for selection in found:
            back = _back_end(selection)
            if back.kind not in tools:
                tools[back.kind] = back.disassembler()
            tool, notes = tools[back.kind]
            selections.append(replace(selection, nvdisasm=tool, notes=notes))
    if not selections:
        raise refusals[0]
    left_out = tuple(dict.fromkeys(f"left out: {error}" for error in refusals))
    return (replace(selections[0], notes=(*selections[0].notes, *left_out)), *selections[1:])


def _back_end(selection: Selection) -> BackEnd:
    return back_end(selection.repro.front_end, selection.targets[0])


def _select(options: SelectionOptions, repro: Repro) -> list[Selection]:
    """One for each assembler that the targets go through."""
    config = ConfigFilter.parse(options.config)
    repro = _narrowed(_in_language(repro, options), options)
    if options.freeze_ptx and not (options.ptxas or options.assembler):
        raise UsageError("--freeze-ptx gives one PTX to several ptxas; name them with --ptxas")
    targets = choose_targets(options, repro)
    launches = choose_launches(options, repro)
    compilers = _compilers(options, repro)
    end = front_end(repro.front_end)
    shared: dict[str, list[Target]] = {}
    for target in targets:
        shared.setdefault(end.back_end(target).kind, []).append(target)
    backs = [end.back_end(mine[0]) for mine in shared.values()]
    named = _assembler_words(options, repro, end, backs)
    return [
        Selection(
            repro=repro,
            launches=launches,
            targets=tuple(shared[back.kind]),
            compilers=compilers,
            ptxas=_assemblers(repro, back, named[back.kind]),
            config=config,
            freeze_ptx=options.freeze_ptx,
            nvdisasm=None,
            is_compiler_named=bool(options.triton or options.compiler),
            formal=options.formal,
            surroundings=tuple(options.surroundings),
        )
        for back in backs
    ]


def _in_language(repro: Repro, options: SelectionOptions) -> Repro:
    """A file may be read by several compilers: `--compiler` says which one is meant."""
    for text in options.compiler:
        kind = _KIND.match(text)
        if not repro.group and kind and kind[0] in kinds() and _takes(kind[0], repro.file.suffix):
            return structs.replace(repro, compiler=kind[0])
    return repro


def _takes(kind: str, suffix: str) -> bool:
    suffixes, modules = takes(kind)
    if suffix == ".py":
        return kind == TRITON or bool(modules)
    return kind != TRITON and suffix in suffixes


def _narrowed(repro: Repro, options: SelectionOptions) -> Repro:
    """A repro that goes on from PTX, where that is the launch chosen, needs no Triton for it."""
    specs = _named_launches(options, repro)
    starts = any(spec.from_ptx for spec in specs)
    if starts and len(specs) > 1:
        raise UsageError(
            f"--launch {options.launch}: {repro.name} starts from PTX or before it; name one of "
            f"{', '.join(spec.name for spec in specs)}"
        )
    return structs.replace(repro, launches=specs) if starts else repro


def choose_targets(options: SelectionOptions, repro: Repro) -> tuple[Target, ...]:
    """The targets that `--sm` names, else the repro's.

    Raises:
        UsageError: one of them is not a GPU that is known.
    """
    words = options.sm or repro.targets
    if not words:
        raise UsageError("--sm is missing: say which GPU, for example --sm 90a or --sm 100a")
    targets = tuple(dict.fromkeys(Target.parse(word) for word in words))
    for target in targets:
        since = SUFFIX_SINCE.get(target.suffix, 0)
        if target.capability < since:
            raise UsageError(f"{target}: the suffix {target.suffix} exists from sm_{since} on")
        if not repro.ptx and target.capability not in KNOWN_CAPABILITIES:
            known = ", ".join(str(capability) for capability in sorted(KNOWN_CAPABILITIES))
            raise UsageError(
                f"{target}: no GPU of this compute capability is known; the known ones are {known}"
            )
    return targets


def choose_launches(options: SelectionOptions, repro: Repro) -> tuple[PlannedLaunch, ...]:
    """The launches that `--launch` and `--set` mean; the first by default.

    Raises:
        UsageError: the repro has no such launch or parameter.
    """
    if repro.ptx and options.config:
        raise UsageError(f"{repro.name}: PTX has no configs; --config does not apply")
    return tuple(
        PlannedLaunch(
            spec=spec,
            overrides=_overrides(options.set, spec, repro),
            given=frozenset(word.partition("=")[0] for word in options.set),
        )
        for spec in _named_launches(options, repro)
    )


def _named_launches(options: SelectionOptions, repro: Repro) -> tuple[LaunchSpec, ...]:
    if not options.launch:
        return repro.launches[:1]
    chosen = tuple(spec for spec in repro.launches if fnmatchcase(spec.name, options.launch))
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
            known = ", ".join(parameters) or "none"
            raise UsageError(
                f"--set {name}: launch {spec.name} of {repro.name} has no such parameter; "
                f"{hint}it has {known}"
            )
        if name in overrides:
            raise UsageError(f"--set {name} is given twice; which one is meant?")
        overrides[name] = _in_header(name, text) if repro.ptx else parameters[name].read(text)
    # In the order of the signature, and a default that is set is not an override: one cell id.
    return {
        name: overrides[name]
        for name, parameter in parameters.items()
        if name in overrides and overrides[name] != parameter.default
    }


def _in_header(name: str, text: str) -> str:
    """The value of a directive at the start of PTX."""
    try:
        return header_value(name, text)
    except PtxError as error:
        raise UsageError(f"--set {name}: {error}") from error


def _compilers(options: SelectionOptions, repro: Repro) -> tuple[Compiler, ...]:
    end = front_end(repro.front_end)
    found: list[Compiler] = []
    # The version that a repro names is that of its compiler; its PTX has been through it.
    own = repro.version if repro.compiler == end.kind else None
    for word in _compiler_words(options, repro, end) or [own or INSTALLED]:
        if word == INSTALLED:
            found.append(end.default())
            continue
        versions = end.select(word)
        if not versions:
            raise EmptySelectionError(
                f"{_option_of(end)} {word}: the package index has no such {end.title}"
            )
        found.extend(end.install(version) for version in versions)
    return tuple(dict.fromkeys(found))


def _compiler_words(options: SelectionOptions, repro: Repro, end: FrontEnd) -> list[str]:
    """The versions that `--triton` and `--compiler` name."""
    if options.triton and end.kind != TRITON:
        said = "PTX has been through Triton" if repro.ptx else f"it is compiled by {end.title}"
        raise UsageError(f"{repro.name}: {said}; --triton does not apply")
    words = list(options.triton)
    for text in options.compiler:
        kind, spec = _kind_and_spec("--compiler", text, (INSTALLED, LATEST), "triton==3.6.0")
        if kind != repro.front_end:
            raise UsageError(
                f"--compiler {text}: {repro.name} is compiled by {end.title} ({end.kind})"
            )
        words.append(spec or INSTALLED)
    return words


def _kind_and_spec(option: str, text: str, words: Sequence[str], example: str) -> tuple[str, str]:
    """The two parts of `KIND==VERSION`; the second is empty where only a kind is named."""
    kind = _KIND.match(text)
    spec = text[kind.end() :].strip() if kind else text
    if spec.removeprefix("==") in words:
        spec = spec.removeprefix("==")
    elif kind is None or (spec and not _SPEC.match(spec)):
        raise UsageError(f"{option} {text}: write KIND==VERSION, for example {example}")
    return kind[0] if kind else "", spec


def _option_of(end: FrontEnd) -> str:
    """The option that names a version of this compiler."""
    return "--triton" if end.kind == TRITON else "--compiler"


def _assembler_words(
    options: SelectionOptions, repro: Repro, end: FrontEnd, backs: Sequence[BackEnd]
) -> dict[str, list[str]]:
    """For each of `backs` the versions that `--ptxas` and `--assembler` name, by kind.

    Raises:
        UsageError: what they name assembles none of the targets.
    """
    defaults = {back.kind: back.default for back in backs}
    words: dict[str, list[str]] = {kind: [] for kind in defaults}
    real = [back for back in backs if back.kind != NO_ASSEMBLER]
    who = " or ".join(back.title for back in real)
    if options.ptxas:
        if PTXAS not in words:
            said = f"it is assembled by {who}" if who else unassembled(end)
            hint = "".join(f", write --assembler {back.kind}==VERSION" for back in real[:1])
            raise UsageError(f"{repro.name}: {said}; --ptxas does not apply{hint}")
        words[PTXAS] += options.ptxas
    for text in options.assembler:
        kind, spec = _kind_and_spec("--assembler", text, (BUNDLED, LATEST), "ptxas==13.1.115")
        if kind not in [back.kind for back in real]:
            kinds = ", ".join(back.kind for back in real)
            said = f"{repro.name} is assembled by {who} ({kinds})" if who else unassembled(end)
            raise UsageError(f"--assembler {text}: {said}")
        words[kind].append(spec or defaults[kind])
    return {kind: found or [defaults[kind]] for kind, found in words.items()}


def _assemblers(repro: Repro, back: BackEnd, words: Sequence[str]) -> tuple[Assembler | None, ...]:
    """The versions of one assembler; None for the bundled one."""
    found: list[Assembler | None] = []
    option = "--ptxas" if back.kind == PTXAS else "--assembler"
    for word in words:
        if word == NO_ASSEMBLER:
            found.append(back.install(word))
        elif word == BUNDLED and back.default != BUNDLED:
            raise UsageError(
                f"{repro.name}: {option} bundled needs a compiler that brings one along; name "
                "a version, or `latest`"
            )
        elif word == BUNDLED:
            found.append(None)
        else:
            versions = back.select(word)
            if not versions:
                raise EmptySelectionError(
                    f"{option} {word}: the package index has no such {back.title}"
                )
            found.extend(back.install(version) for version in versions)
    return tuple(dict.fromkeys(found))


def for_target(selection: Selection, target: Target) -> Selection:
    """The same on another GPU; where that has another assembler, with the default of that one.

    Raises:
        UsageError, InfrastructureError: that is not available.
    """
    back = back_end(selection.repro.front_end, target)
    mine = selection.ptxas
    if back.kind != _back_end(selection).kind:
        mine = _assemblers(selection.repro, back, [back.default])
    return replace(selection, targets=(target,), ptxas=mine)


def small_launch(selection: Selection, launch: PlannedLaunch) -> PlannedLaunch:
    """The launch with the repro's small parameters; what the user set stays."""
    known = {parameter.name for parameter in launch.spec.parameters}
    small: Mapping[str, Scalar | None] = {
        name: value
        for name, value in selection.repro.check
        if name in known and name not in launch.given
    }
    return replace(launch, overrides={**small, **launch.overrides})
