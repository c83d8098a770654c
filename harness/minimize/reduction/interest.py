"""Whether a candidate is interesting: which versions are asked, and what each does with a text."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from msgspec import structs
from packaging.version import Version

from gpu_emulator.ptx.text.facts import PtxError, PtxFacts, read_ptx, retarget
from harness.cells.evaluate import cell_evidence, ptxas_flags
from harness.frontends.assemble import Inspection
from harness.frontends.back_end import PTXAS_BACK_END
from harness.frontends.base import CompileRequest, Lowered
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell
from harness.frontends.readings import PtxReading
from harness.frontends.registry import back_end, front_end
from harness.io.files.locations import offline
from harness.io.processes.hub import Hub, ResourceLimits
from harness.io.processes.tasks import in_parallel
from harness.judging.judge import CellEvidence, judge
from harness.judging.signature import template
from harness.minimize.reduction.fingerprint import (
    Answer,
    CheckCost,
    Fingerprint,
    Reaction,
    accepting_neighbours,
    guards_of,
)
from harness.minimize.reduction.minimization import REFUSALS
from harness.values.errors import InfrastructureError, UsageError
from harness.values.kernel import Scalar
from harness.values.limits import limits_of
from harness.values.outcome import ProcessEnd
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, Assembler, Compiler
from harness.values.verdict import Stage, Verdict, VerdictKind

T = TypeVar("T", bound=Compiler | Assembler)
T_contra = TypeVar("T_contra", bound=Compiler | Assembler, contravariant=True)


class Oracle(Protocol[T_contra]):
    """Asks any version about any text."""

    def is_possible(self, text: str) -> bool:
        """Whether it is worth asking: any text, if the oracle does not say otherwise."""
        return True

    async def react(
        self, text: str, tool: T_contra, limits: ResourceLimits | None = None
    ) -> Reaction:
        """All that this version does with the text.

        Raises:
            InfrastructureError: this machine failed.
        """

    async def look(self, text: str, tool: T_contra) -> Reaction:
        """The same, except that it may stop where the failure can no longer come."""
        return await self.react(text, tool)


@dataclass(frozen=True, slots=True)
class PredicateAnswer:
    """What a predicate says of one text.

    `SAME`: it goes wrong in the same way; `ACCEPTS`: it is right; `OTHER`: it goes wrong in another
    way; `UNTOLD`: that could not be determined. Only `SAME` is kept; `reason` is for the report.
    """

    answer: Answer
    reason: str

    @property
    def is_same(self) -> bool:
        """Whether a candidate shows what is looked for."""
        return self.answer is Answer.SAME


class Predicate(Protocol):
    """Decides alone whether a text is interesting: no version of a tool is asked about it."""

    def is_possible(self, text: str) -> bool:
        """Whether it is worth asking: nothing is run for this."""

    async def ask(self, text: str) -> PredicateAnswer:
        """Try one text.

        Raises:
            InfrastructureError: this machine failed.
        """


@dataclass(slots=True, kw_only=True)
class Interest(Generic[T]):
    """Whether a text shows the whole fingerprint.

    The `oracle` asks `versions`, of which the fingerprint names some; or a `predicate` decides
    alone. A failure that comes only now and then is looked for `tries` times. `is_accepted` says
    whether it is accepted for another target, where the fingerprint names one. With
    `keeps_refusals`, a version that refuses the original in another way has to go on doing so.
    """

    fingerprint: Fingerprint
    versions: VersionReactions[T]
    oracle: Oracle[T] | None = None
    predicate: Predicate | None = None
    tries: int = 1
    is_accepted: Callable[[str], Awaitable[bool]] | None = None
    keeps_refusals: bool = False
    calls: int = 0
    costs: defaultdict[str, CheckCost] = field(default_factory=lambda: defaultdict(CheckCost))

    def is_possible(self, text: str) -> bool:
        """Whether a text is worth asking about."""
        judge = self.predicate or self.oracle
        return judge is not None and judge.is_possible(text)

    async def holds(self, text: str) -> bool:
        """Ask until one version refuses, the cheapest refusal first.

        Raises:
            InfrastructureError: this machine failed, twice.
        """
        if not self.is_possible(text):
            return False
        if self.predicate:
            self.calls += 1
            return (await self.predicate.ask(text)).is_same
        # All of them must pass: the order changes nothing but the time.
        for version in sorted(self.fingerprint.checks, key=lambda check: self.costs[check].price):
            if not await self._passes(version, text):
                return False
        return await self.is_held(text)

    async def is_held(self, text: str) -> bool:
        """Whether the target that the fingerprint names accepts it; True where it names none."""
        if self.is_accepted is None:
            return True
        self.calls += 1
        return await self.is_accepted(text)

    async def react_all(self, text: str) -> dict[str, Reaction]:
        """What every version does with a text; a predicate has none.

        Raises:
            InfrastructureError: this machine failed, twice.
        """
        if self.predicate or self.oracle is None:
            return {}
        tools = self.versions.tools
        reactions = await in_parallel(self.oracle.react(text, tool) for tool in tools.values())
        return dict(zip(tools, reactions, strict=True))

    async def _passes(self, version: str, text: str) -> bool:
        assert self.oracle is not None, "a predicate has no versions"
        must_show = self.fingerprint.required(version) is Answer.SAME
        # Where the failure can no longer come, the rest says nothing.
        ask = self.oracle.look if must_show else self.oracle.react
        for _ in range(self.tries if must_show else 1):
            self.calls += 1
            reaction = await ask(text, self.versions.tools[version])
            passes = self.fingerprint.passes(version, reaction)
            self.costs[version].add(refused=not passes, seconds=reaction.end.wall)
            if passes:
                return True
        return False


# What a version may take that is only looked at.
GLANCE_SECONDS = 30.0
_TIMES = 8


@dataclass(slots=True, kw_only=True)
class VersionReactions(Generic[T]):
    """Every version that was tried on the original, and what it did.

    `name` is that of the tool. `text` is the original, with `as_version` (of PTX) where older ones
    can then be tested.
    """

    name: str
    text: str
    as_version: str | None = None
    tools: dict[str, T] = field(default_factory=dict)
    reactions: dict[str, Reaction] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def answers(self, fingerprint: Fingerprint) -> dict[str, Answer]:
        """The pattern, beside the failure that is looked for; oldest first."""
        return {
            version: fingerprint.answer(self.reactions[version])
            for version in sorted(self.reactions, key=Version)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolVersions(Generic[T]):
    """The tool that fails, by its `name` for people, how it is asked, and its other versions.

    All that are `installed` are asked; of those that are `available` up to `steps` more are
    installed on either side, to find one that accepts. One that is only looked at may take a
    `glance` of seconds. `for_target` gives what asks the tool for one of the other `targets`; None
    where it has no such cell.
    """

    name: str
    tool: T
    oracle: Oracle[T]
    installed: Sequence[T]
    available: Callable[[], Sequence[Version]]
    install: Callable[[str], T]
    steps: int
    glance: float = GLANCE_SECONDS
    targets: Sequence[Target] = ()
    for_target: Callable[[Target], Awaitable[Oracle[T] | None]] | None = None


async def hold_in_place(
    held_by: ToolVersions[T],
    versions: VersionReactions[T],
    fingerprint: Fingerprint,
    own: Target,
    *,
    keeps_refusals: bool,
) -> Interest[T]:
    """What a candidate has to show: the failure, and what keeps it from becoming another one.

    Where no version lifts a refusal, that is the nearest target to `own` for which it is none.
    """
    fingerprint = fingerprint.with_errors_of(versions.reactions.values())
    answers, bad = versions.answers(fingerprint), held_by.tool.version
    guards = guards_of(answers, bad, keeps_refusals=keeps_refusals)
    fingerprint = fingerprint.with_guards(answers, guards)
    is_accepted = None
    is_refusal = versions.reactions[bad].verdict in REFUSALS
    if is_refusal and fingerprint.signature and not fingerprint.accepting:
        fingerprint, is_accepted = await held_elsewhere(own, held_by, versions, fingerprint)
    return Interest(
        fingerprint=fingerprint,
        versions=versions,
        oracle=held_by.oracle,
        is_accepted=is_accepted,
        keeps_refusals=keeps_refusals,
    )


async def held_elsewhere(
    own: Target, held_by: ToolVersions[T], versions: VersionReactions[T], fingerprint: Fingerprint
) -> tuple[Fingerprint, Callable[[str], Awaitable[bool]] | None]:
    """The fingerprint with the nearest other target that accepts the original, and its question."""
    for target in sorted(held_by.targets, key=lambda near: abs(near.capability - own.capability)):
        assert held_by.for_target is not None
        oracle = await held_by.for_target(target)
        if oracle and (await oracle.react(versions.text, held_by.tool)).is_accepted:

            async def is_accepted(text: str, oracle: Oracle[T] = oracle) -> bool:
                return (await oracle.react(text, held_by.tool)).is_accepted

            return replace(fingerprint, held_for=str(target)), is_accepted
    nowhere = f", and {fingerprint.bad} for no other target" if held_by.targets else ""
    versions.notes.append(
        f"no {versions.name} that was tried accepts the original{nowhere}: "
        "the kernel itself may be wrong"
    )
    return fingerprint, None


async def ask_installed(
    held_by: ToolVersions[T], text: str, limits: ResourceLimits
) -> VersionReactions[T]:
    """Try every installed version, and the tool in place of the installed one of its version.

    Raises:
        InfrastructureError: the tool cannot be started.
    """
    tool = held_by.tool
    reactions = VersionReactions[T](name=held_by.name, text=text)
    reactions.tools[tool.version] = tool
    reactions.reactions[tool.version] = await held_by.oracle.react(text, tool, limits)
    others = [version for version in held_by.installed if version.version != tool.version]
    # They may take as long as the one that fails, and somewhat longer where it ends early.
    glance = max(held_by.glance, _TIMES * reactions.reactions[tool.version].end.wall)
    await try_on(
        held_by.oracle,
        reactions,
        others,
        structs.replace(limits, timeout=min(limits.timeout, glance)),
    )
    return reactions


async def try_on(
    oracle: Oracle[T], versions: VersionReactions[T], tools: Iterable[T], limits: ResourceLimits
) -> None:
    """Ask versions that were not asked yet; what this machine cannot run is left out."""

    async def one(tool: T) -> None:
        try:
            versions.reactions[tool.version] = await oracle.react(versions.text, tool, limits)
        except InfrastructureError as error:
            versions.notes.append(f"{versions.name} {tool.version} was not asked: {error}")
        else:
            versions.tools[tool.version] = tool

    await in_parallel(map(one, tools))


async def walk_the_index(
    held_by: ToolVersions[T],
    original: VersionReactions[T],
    fingerprint: Fingerprint,
    limits: ResourceLimits,
    tell: Callable[[str], None],
) -> None:
    """Install versions outwards, on each side on which nothing installed accepts.

    Until one accepts, or cannot do this at all, or enough were tried.
    """
    bad = fingerprint.bad
    below, above = accepting_neighbours(original.answers(fingerprint), bad)
    if (below and above) or offline():
        return
    try:
        index = await asyncio.to_thread(held_by.available)
    except (InfrastructureError, UsageError) as error:
        original.notes.append(f"only the installed {held_by.name} were tried: {error}")
        return
    limits = structs.replace(limits, timeout=min(limits.timeout, held_by.glance))

    async def is_tried(version: str) -> bool:
        tell(f"trying {held_by.name} {version}")
        try:
            tool = await asyncio.to_thread(held_by.install, version)
        except (InfrastructureError, UsageError) as error:
            original.notes.append(f"{held_by.name} {version} was not tried: {error}")
            return False
        await try_on(held_by.oracle, original, [tool], limits)
        return version in original.reactions

    here = Version(bad)
    older = [str(version) for version in reversed(index) if version < here]
    newer = [str(version) for version in index if version > here]
    for accepting, outwards in ((below, older), (above, newer)):
        steps = 0
        for version in outwards if accepting is None else ():
            if version not in original.reactions:
                steps += 1
                if steps > held_by.steps or not await is_tried(version):
                    break
            # What cannot do this text or target at all will not learn it further out.
            if fingerprint.answer(original.reactions[version]) in (Answer.ACCEPTS, Answer.UNTOLD):
                break


# What any version of a tool does with a text, judged as any cell is.


@dataclass(slots=True, kw_only=True)
class PtxOracle(Oracle[Assembler]):
    """Asks any ptxas about any text, by turns in `slots`; nothing is kept.

    `flags` name the target, too; `entry` is the one that is meant, if several. Where it
    `retargets`, a text may be for another target.
    """

    hub: Hub
    target: Target
    flags: tuple[str, ...]
    entry: str | None = None
    limits: ResourceLimits
    slots: asyncio.Semaphore
    retargets: bool = False

    def facts(self, text: str) -> PtxFacts | None:
        """The header and the entry; None where this can never be launched."""
        for entry in dict.fromkeys((self.entry, None)):
            try:
                return read_ptx(text, entry)
            except PtxError:
                continue
        return None

    def is_possible(self, text: str) -> bool:
        return self.facts(text) is not None

    async def react(
        self, text: str, tool: Assembler, limits: ResourceLimits | None = None
    ) -> Reaction:
        target = self.target
        text = retarget(text, target=str(target)) if self.retargets else text
        for _ in range(2):
            async with self.slots:
                assembled = await PTXAS_BACK_END.assemble_once(
                    self.hub,
                    text.encode(),
                    tool,
                    flags=self.flags,
                    target=None,
                    limits=limits or self.limits,
                )
            facts = self.facts(text)
            evidence = cell_evidence(
                target=target,
                limits=limits_of(target.capability),
                reading=PtxReading(facts=facts, body_sha256="") if facts else None,
                assembly=assembled.assembly,
                inspection=Inspection(cubin=assembled.cubin) if assembled.cubin else None,
            )
            verdict = judge(evidence)
            if verdict.kind is not VerdictKind.INFRA:
                return reaction_of(verdict, evidence)
        raise InfrastructureError(f"ptxas {tool.version}: {verdict.reason}")

    async def for_target(self, target: Target) -> PtxOracle:
        """Asks about the same PTX for another target."""
        flags = tuple(
            f"--gpu-name={target}" if flag.startswith("--gpu-name") else flag for flag in self.flags
        )
        return replace(self, target=target, flags=flags, retargets=True)


def reaction_of(verdict: Verdict, evidence: CellEvidence) -> Reaction:
    """A verdict with the numbers of its evidence, as fingerprints want them."""
    assembly, needs = evidence.assembly, evidence.resources
    last = assembly or evidence.lowering
    process, occupancy = last.end if last else ProcessEnd(), evidence.occupancy
    # What a user sees, by the compiler and by the assembler.
    lowering = evidence.lowering
    printed = [lowering.log] if lowering else []
    if lowering and lowering.error:
        printed += [lowering.error.traceback, lowering.error.message]
    printed += [assembly.stdout, assembly.stderr] if assembly else []
    fields: dict[str, Scalar | None] = {
        "verdict": verdict.kind.value,
        "stage": verdict.stage.value if verdict.stage else None,
        "signature": verdict.signature.key if verdict.signature else None,
        "code": verdict.code,
        "occupancy_limiter": occupancy.limiter if occupancy else None,
        **needs.columns,
        "occupancy": occupancy.fraction if occupancy else None,
        "exit_code": process.exit_code,
        "signal": process.signal,
        "seconds": process.wall,
    }
    return Reaction(
        verdict=verdict.kind,
        reason=verdict.reason,
        is_accepted=assembly is not None and process.ok and assembly.has_cubin,
        end=process,
        printed="\n".join(printed),
        stage=verdict.stage,
        code=verdict.code,
        signature=verdict.signature,
        fields=fields,
        errors=frozenset(template(error.text) for error in evidence.log.errors)
        if evidence.log
        else frozenset(),
    )


_AFTER_PTX = frozenset({Stage.CUBIN, Stage.LAUNCH, Stage.RUN})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerOracle(Oracle[Compiler | Assembler]):
    """Compiles a text as the cell is compiled, by any version; nothing is stored.

    The text is a file of source with this `suffix`, or the compiler's IR (`is_ir`); it is compiled
    with `options`; the cell's own compiler writes what an assembler is given. `until` is the stage
    of the failure, where one is looked for: what gets past it need not be compiled to the end.
    """

    bench: Workbench
    cell: PlannedCell
    until: Stage | None = None
    suffix: str = ".py"
    is_ir: bool = False
    options: Mapping[str, object] = field(default_factory=dict)

    async def react(
        self, text: str, tool: Compiler | Assembler, limits: ResourceLimits | None = None
    ) -> Reaction:
        return await self._react(text, tool, None, limits or self.bench.limits)

    async def look(self, text: str, tool: Compiler | Assembler) -> Reaction:
        return await self._react(text, tool, self.until, self.bench.limits)

    async def _react(
        self, text: str, tool: Compiler | Assembler, until: Stage | None, limits: ResourceLimits
    ) -> Reaction:
        assert self.cell.launch is not None
        cell, compiler = self.cell, self.cell.launch.compiler
        if isinstance(tool, Assembler):
            cell = structs.replace(cell, ptxas=tool, freeze_ptx=False)
        else:
            compiler = tool
        form = front_end(compiler.kind).source_form
        assert form is not None, "its text was written by it"
        request = CompileRequest(
            text=text,
            ptxas=_seen_by(cell, compiler),
            until=until,
            suffix=self.suffix,
            options=self.options,
            limits=limits,
        )
        launch = structs.replace(self.cell.launch, compiler=compiler)
        lowered = await form.compile(self.bench, launch, request)
        facts = lowered.reading.facts if lowered and lowered.reading else None
        is_before = until is not None and until not in _AFTER_PTX
        is_past = facts is not None and is_before and not facts.does_nothing
        if lowered is None or is_past:
            reason = f"it gets past stage {until.value if until else ''}"
            verdict = Verdict(kind=VerdictKind.INFRA, reason=reason, stage=until)
            return reaction_of(verdict, CellEvidence(target=self.cell.cell.target))
        return await self._assembled(cell, lowered, limits)

    async def _assembled(
        self, cell: PlannedCell, lowered: Lowered, limits: ResourceLimits
    ) -> Reaction:
        target = cell.cell.target
        assembly = inspection = None
        facts = lowered.reading.facts if lowered.reading else None
        is_read = lowered.reading is not None and lowered.reading.problem is None
        if lowered.program is not None and is_read:
            flags = ptxas_flags(target, lowered.lowering.flags)
            if cell.change:
                flags = cell.change.apply(flags)
            back, ptxas = back_end(cell.compiler.kind, target), cell.ptxas
            if ptxas.origin == BUNDLED and lowered.picked_ptxas:
                ptxas = back.brought_along(Path(lowered.picked_ptxas))
            is_other = facts is not None and target.suffix and facts.target != str(target)
            async with self.bench.slot(is_tool=True):
                assembled = await back.assemble_once(
                    self.bench.hub,
                    lowered.program,
                    ptxas,
                    flags=flags,
                    target=str(target) if is_other else None,
                    limits=limits,
                )
            assembly = assembled.assembly
            inspection = Inspection(cubin=assembled.cubin) if assembled.cubin else None
        evidence = cell_evidence(
            kind=cell.compiler.kind,
            target=target,
            limits=cell.limits,
            lowering=lowered.lowering,
            reading=lowered.reading,
            assembly=assembly,
            inspection=inspection,
        )
        verdict = judge(evidence)
        return replace(
            reaction_of(verdict, evidence),
            # A stub, or a kernel that fits no GPU, has a cubin too.
            is_accepted=verdict.kind.compiles,
            # A module of another version cannot be read, which says nothing of the failure.
            is_refusal=not self.is_ir and verdict.kind is VerdictKind.UNSUPPORTED,
        )


def _seen_by(cell: PlannedCell, compiler: Compiler) -> Assembler | None:
    """The ptxas that the compiler is pointed at; None is its own choice."""
    if cell.launch is not None and compiler == cell.launch.compiler:
        return cell.seen_ptxas
    return None if cell.freeze_ptx or cell.ptxas.origin == BUNDLED else cell.ptxas
