"""What the selection options mean: the same in every command that takes a kernel."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from harness.ptx.facts import PtxError, header_value
from harness.repros.find import find_kernels
from harness.toolchains.bundled import installed_triton
from harness.toolchains.install import (
    find_nvdisasm,
    install_ptxas,
    install_triton,
    select_ptxas,
    select_triton,
)
from harness.values.errors import EmptySelectionError, InfrastructureError, UsageError
from harness.values.kernel import ConfigFilter, LaunchSpec, Repro, Scalar
from harness.values.limits import KNOWN_CAPABILITIES
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, INSTALLED, Ptxas, Tool, Triton

__all__ = [
    "SUFFIX_SINCE",
    "PlannedLaunch",
    "Selection",
    "SelectionOptions",
    "choose_launches",
    "choose_nvdisasm",
    "choose_targets",
    "select",
    "select_all",
    "small_launch",
]


SUFFIX_SINCE = {"a": 90, "f": 100}
"""From which compute capability on ptxas knows a suffix (PTX ISA, `.target`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOptions:
    """The options as the user wrote them."""

    kernel: str
    sm: Sequence[str] = ()
    triton: Sequence[str] = ()
    ptxas: Sequence[str] = ()
    launch: str | None = None
    set: Sequence[str] = ()
    config: str = ""
    freeze_ptx: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLaunch:
    """A launch function with its overrides; `label` is how cells spell both."""

    spec: LaunchSpec
    overrides: Mapping[str, Scalar | None]

    @property
    def label(self) -> str:
        """As in a cell id: `default:chunk_size=32`."""
        words = ",".join(f"{name}={value}" for name, value in self.overrides.items())
        return f"{self.spec.name}:{words}" if words else self.spec.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is to be compiled with what. None among `ptxas` is the one that each Triton bundles.

    `is_triton_named`: the user named the Triton; else it is the repro's, or the installed one.
    """

    repro: Repro
    launches: tuple[PlannedLaunch, ...]
    targets: tuple[Target, ...]
    tritons: tuple[Triton, ...]
    ptxas: tuple[Ptxas | None, ...]
    config: ConfigFilter
    freeze_ptx: bool
    nvdisasm: Tool | None
    notes: tuple[str, ...] = ()
    is_triton_named: bool = False


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
    return _select(options, found[0], *choose_nvdisasm())


def select_all(options: SelectionOptions) -> tuple[Selection, ...]:
    """Resolve the options for every kernel that `--kernel` means, installing the toolchains.

    Of several kernels, those to which the options do not apply are left out, and a note says so.

    Raises:
        UsageError: something named does not exist; the message has the nearest that does.
        InfrastructureError: a toolchain cannot be installed.
    """
    nvdisasm, notes = choose_nvdisasm()
    selections: list[Selection] = []
    refusals: list[UsageError] = []
    for repro in find_kernels(options.kernel):
        try:
            selections.append(_select(options, repro, nvdisasm, notes))
        except UsageError as error:
            refusals.append(error)
    if not selections:
        raise refusals[0]
    left_out = tuple(dict.fromkeys(f"left out: {error}" for error in refusals))
    return (replace(selections[0], notes=(*notes, *left_out)), *selections[1:])


def choose_nvdisasm() -> tuple[Tool | None, tuple[str, ...]]:
    """The newest nvdisasm there is; without one, a note of what that means."""
    try:
        return find_nvdisasm(), ()
    except (InfrastructureError, UsageError) as error:  # an index of one's own may lack it
        return None, (f"instructions are not counted: {error}",)


def _select(
    options: SelectionOptions, repro: Repro, nvdisasm: Tool | None, notes: tuple[str, ...]
) -> Selection:
    config = ConfigFilter.parse(options.config)
    repro = _narrowed(repro, options)
    if repro.ptx and options.triton:
        raise UsageError(f"{repro.name}: PTX has been through Triton; --triton does not apply")
    if options.freeze_ptx and not options.ptxas:
        raise UsageError("--freeze-ptx gives one PTX to several ptxas; name them with --ptxas")
    targets = choose_targets(options, repro)
    launches = choose_launches(options, repro)
    return Selection(
        repro=repro,
        launches=launches,
        targets=targets,
        tritons=() if repro.ptx else _tritons(options, repro),
        ptxas=_ptxas(options, repro),
        config=config,
        freeze_ptx=options.freeze_ptx,
        nvdisasm=nvdisasm,
        notes=notes,
        is_triton_named=bool(options.triton),
    )


def _narrowed(repro: Repro, options: SelectionOptions) -> Repro:
    """A repro that goes on from PTX, where that is the launch chosen, needs no Triton for it."""
    specs = _named_launches(options, repro)
    starts = any(spec.from_ptx for spec in specs)
    if starts and len(specs) > 1:
        raise UsageError(
            f"--launch {options.launch}: {repro.name} starts from PTX or before it; name one of "
            f"{', '.join(spec.name for spec in specs)}"
        )
    return replace(repro, launches=specs) if starts else repro


def choose_targets(options: SelectionOptions, repro: Repro) -> tuple[Target, ...]:
    """The targets that `--sm` names, else the repro's.

    Raises:
        UsageError: one of them is no GPU that is known.
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
            raise UsageError(f"{target}: no GPU with this capability is known; known are {known}")
    return targets


def choose_launches(options: SelectionOptions, repro: Repro) -> tuple[PlannedLaunch, ...]:
    """The launches that `--launch` and `--set` mean; the first by default.

    Raises:
        UsageError: the repro has no such launch or parameter.
    """
    if repro.ptx and options.config:
        raise UsageError(f"{repro.name}: PTX has no configs; --config does not apply")
    return tuple(
        PlannedLaunch(spec=spec, overrides=_overrides(options.set, spec, repro))
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
    # In the order of the signature, and a default that is set is no override: one cell id.
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


def _tritons(options: SelectionOptions, repro: Repro) -> tuple[Triton, ...]:
    found: list[Triton] = []
    for word in options.triton or [repro.triton or INSTALLED]:
        if word == INSTALLED:
            found.append(installed_triton())
            continue
        versions = select_triton(word)
        if not versions:
            raise EmptySelectionError(f"--triton {word}: the package index has no such Triton")
        found.extend(install_triton(version) for version in versions)
    return tuple(dict.fromkeys(found))


def _ptxas(options: SelectionOptions, repro: Repro) -> tuple[Ptxas | None, ...]:
    found: list[Ptxas | None] = []
    # Raw PTX comes with no Triton that could bundle one.
    words = options.ptxas or (["latest"] if repro.ptx else [BUNDLED])
    for word in words:
        if word == BUNDLED:
            if repro.ptx:
                raise UsageError(
                    f"{repro.name}: --ptxas bundled needs a Triton; name a version, or `latest`"
                )
            found.append(None)
            continue
        versions = select_ptxas(word)
        if not versions:
            raise EmptySelectionError(f"--ptxas {word}: the package index has no such ptxas")
        found.extend(install_ptxas(version) for version in versions)
    return tuple(dict.fromkeys(found))


def small_launch(selection: Selection, launch: PlannedLaunch) -> PlannedLaunch:
    """The launch with the repro's small parameters; what the user set stays."""
    known = {parameter.name for parameter in launch.spec.parameters}
    small: Mapping[str, Scalar | None] = {
        name: value for name, value in selection.repro.check if name in known
    }
    return PlannedLaunch(spec=launch.spec, overrides={**small, **launch.overrides})
