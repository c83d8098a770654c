"""From a matrix to the places it is run at: kernels x launches x targets x Tritons, with ptxas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar

from msgspec import structs
from packaging.version import Version

from harness.cells.matrix_rules import Rules, spec_hint
from harness.cells.repros.find import find_kernels, list_repros
from harness.cells.selection import choose_launches, choose_targets
from harness.cells.spelling import SelectionOptions
from harness.frontends.back_end import PTXAS_BACK_END, BackEnd
from harness.frontends.plan import CapturePlace, PlannedLaunch, Selection
from harness.frontends.registry import back_end, front_end, kinds, takes
from harness.io.packages.versions import LATEST, exact_version, newest_of_minor, select
from harness.io.toolchains.installed import installed_versions
from harness.store.store import Shard
from harness.values.bug import KeptWorkaround
from harness.values.errors import InfrastructureError, OfflineError, UsageError
from harness.values.kernel import ConfigFilter, Repro
from harness.values.matrix import Extra, Matrix, MatrixPlace, VersionChoice
from harness.values.target import Target
from harness.values.toolchain import (
    BUNDLED,
    INSTALLED,
    NO_ASSEMBLER,
    PTX,
    PTXAS,
    TRITON,
    Assembler,
    Compiler,
    Tool,
)
from harness.workaround.expiry import to_retest, to_run

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class MatrixPlan:
    """Where to work; `extras` are the places (by index) that no exclusion speaks of.

    `dropped` are places whose cells are all left out, with the reason. `failures` is what this
    machine could not provide, `versions` all of each tool that take part.
    """

    rules: Rules
    places: list[CapturePlace] = field(default_factory=list)
    extras: set[int] = field(default_factory=set)
    dropped: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    versions: dict[str, set[Version]] = field(default_factory=lambda: {TRITON: set(), PTXAS: set()})


def plan_matrix(
    rules: Rules, shard: Shard, kept: Sequence[KeptWorkaround] = (), *, installs: bool = True
) -> MatrixPlan:
    """Expand a matrix; `installs` the toolchains that are needed, or only says which they are.

    What the workarounds that are kept are for takes part, whether or not the matrix names it, and
    so do the workarounds themselves: with its Tritons, each with the ptxas that it bundles, unless
    the workaround names others.

    Raises:
        UsageError: a target is not a GPU that is known.
        InfrastructureError: the package index cannot be asked.
    """
    planner = _Planner(plan=MatrixPlan(rules=rules), shard=shard, installs=installs)
    planner.fill(kept)
    return planner.plan


@dataclass(slots=True, kw_only=True)
class _Planner:
    plan: MatrixPlan
    shard: Shard
    installs: bool = True
    _compilers: dict[tuple[str, str], Compiler | None] = field(default_factory=dict)
    _words: dict[str, list[str]] = field(default_factory=dict)
    _assemblers: dict[str, BackEnd] = field(default_factory=lambda: {PTXAS: PTXAS_BACK_END})
    _tools: dict[tuple[str, str], Assembler | None] = field(default_factory=dict)
    _disassemblers: dict[str, Tool | None] = field(default_factory=dict)

    @property
    def matrix(self) -> Matrix:
        return self.plan.rules.matrix

    def fill(self, kept: Sequence[KeptWorkaround]) -> None:
        self._words[TRITON] = self._versions(TRITON, self.matrix.triton)
        ptxas = self._versions(PTXAS, self.matrix.ptxas)
        for repro in self._kernels():
            launches = self._launches(repro)
            targets = tuple(str(target) for target in self.matrix.targets)
            for target in choose_targets(SelectionOptions(kernel=repro.name, sm=targets), repro):
                mine = self._assembler_words(back_end(repro.front_end, target), ptxas)
                for launch in launches:
                    for word in self._words_for(repro, launch):
                        self._place(repro, launch, target, word, mine, ConfigFilter())
        for extra in self.matrix.include:
            self._extra(extra, ptxas, f"{self.matrix.file}:{extra.line}: include")
        for workaround in kept:
            own = [BUNDLED] if workaround.baseline.triton else ptxas
            for extra in (to_run(workaround), *to_retest(workaround)):
                self._extra(extra, own, f"workaround for {workaround.baseline.cell}")

    def _warn(self, entry: str, message: str) -> None:
        line = self.matrix.lines.get(entry)
        place = f"{self.matrix.file}:{line}" if line else self.matrix.file
        self.plan.warnings.append(f"{place}: {entry}: {message}")

    def _kernels(self) -> list[Repro]:
        repros, errors = list_repros()
        self.plan.warnings += [str(error) for error in errors]
        by_name: dict[str, Repro] = {}
        for index, pattern in enumerate(self.matrix.kernels):
            suffixes = (".py", *(suffix for kind in kinds() for suffix in takes(kind)[0]))
            if "@" in pattern or pattern.partition("::")[0].endswith(suffixes):
                mine = find_kernels(pattern)
            else:
                mine = [repro for repro in repros if fnmatchcase(repro.name, pattern)]
            if not mine:
                self._warn(f"kernels[{index}]", f"{pattern!r} matches no kernel")
            by_name.update((repro.name, repro) for repro in mine)
        return list(by_name.values())

    def _versions(self, tool: str, choice: VersionChoice) -> list[str]:
        """Versions and words, in order, each once; versions are sorted within the specs."""
        versions: list[str] = []
        for spec in choice.specs:
            if spec in (INSTALLED, BUNDLED, NO_ASSEMBLER):
                versions.append(spec)
                continue
            chosen = self._chosen(tool, spec, prereleases=choice.prereleases)
            if choice.newest_of_minor and spec != LATEST and exact_version(spec) is None:
                chosen = newest_of_minor(chosen)
            self.plan.versions.setdefault(tool, set()).update(chosen)
            versions += [str(version) for version in chosen]
        return list(dict.fromkeys(versions))

    def _chosen(self, tool: str, spec: str, *, prereleases: bool) -> list[Version]:
        toolchain = self._assemblers.get(tool) or front_end(tool)
        entry = f"toolchains.{tool}"
        try:
            # `==12.8` is one version that may not exist: said as what it is, not as an error.
            chosen = toolchain.select(spec, prereleases=prereleases)
        except OfflineError as error:
            self._warn(entry, f"only what is installed is used: {error}")
            chosen = select(installed_versions(tool), spec, what=tool, prereleases=prereleases)
        except UsageError as error:
            self._warn(entry, str(error))
            return []
        if not chosen:
            hint = spec_hint(spec, toolchain.available())
            self._warn(entry, hint or f"{spec} names pre-releases only")
        return chosen

    def _words_for(self, repro: Repro, launch: PlannedLaunch) -> list[str]:
        """The versions of the compiler of a launch, as the matrix names them.

        Where it names none it is the repro's, which is the same every night and on every machine.
        """
        kind = _kind_of(repro, launch)
        if kind not in self._words:
            choice = self.matrix.compilers.get(kind)
            if choice is None:
                return [repro.version or INSTALLED]
            self._words[kind] = self._versions(kind, choice)
        return self._words[kind]

    def _assembler_words(self, back: BackEnd, ptxas: list[str]) -> list[str]:
        kind = back.kind
        if kind == PTXAS:
            return ptxas
        if kind not in self._words:
            self._assemblers[kind] = back
            default = VersionChoice(specs=(back.default,))
            self._words[kind] = self._versions(kind, self.matrix.assemblers.get(kind, default))
        return self._words[kind]

    def _launches(self, repro: Repro) -> tuple[PlannedLaunch, ...]:
        options = SelectionOptions(kernel=repro.name)
        if not self.matrix.launches:
            return choose_launches(options, repro)
        every = choose_launches(structs.replace(options, launch="*"), repro)
        patterns = self.matrix.launches
        matches = [
            launch for launch in every if any(fnmatchcase(launch.spec.name, w) for w in patterns)
        ]
        if not matches:
            names = ", ".join(launch.spec.name for launch in every)
            self._warn("launches[0]", f"no launch of {repro.name} matches; it has {names}")
        return tuple(matches)

    def _extra(self, extra: Extra, ptxas: list[str], where: str) -> None:
        try:
            repros = find_kernels(extra.kernel)
            words = [f"{name}={'none' if value is None else value}" for name, value in extra.set]
            targets = tuple(map(str, extra.targets or self.matrix.targets))
            for repro in repros:
                options = SelectionOptions(
                    kernel=repro.name, launch=extra.launch, set=words, sm=targets
                )
                self._extra_places(extra, repro, options, ptxas)
        except UsageError as error:
            self.plan.warnings.append(f"{where}: {error}")

    def _extra_places(
        self, extra: Extra, repro: Repro, options: SelectionOptions, ptxas: list[str]
    ) -> None:
        front = front_end(repro.front_end)
        if extra.compiler and front.kind not in (extra.compiler.kind, PTX):
            raise UsageError(f"{repro.name} is compiled by {front.title} ({front.kind})")
        named = (
            self._versions(front.kind, VersionChoice(specs=(extra.compiler.spec,)))
            if extra.compiler and front.kind == extra.compiler.kind
            else None
        )
        for target in choose_targets(options, repro):
            back = back_end(repro.front_end, target)
            mine = self._assembler_words(back, ptxas)
            if extra.assembler and extra.assembler.kind != back.kind:
                raise UsageError(f"{repro.name} on {target} goes through {back.title}")
            if extra.assembler:
                mine = self._versions(back.kind, VersionChoice(specs=(extra.assembler.spec,)))
            for launch in choose_launches(options, repro):
                words = self._words_for(repro, launch)
                for word in words if launch.spec.from_ptx or not named else named:
                    self._place(repro, launch, target, word, mine, extra.config, extra=extra)

    def _place(
        self,
        repro: Repro,
        launch: PlannedLaunch,
        target: Target,
        word: str,
        ptxas: Sequence[str],
        config: ConfigFilter,
        *,
        extra: Extra | None = None,
    ) -> None:
        kind = _kind_of(repro, launch)
        version = None if kind == PTX else word
        if version == INSTALLED:
            found = self._compiler(kind, word)
            version = found.version if found else None
        at = MatrixPlace(
            kernel=repro.name,
            launch=launch.label,
            target=str(target),
            compiler=kind,
            version=version,
        )
        plan = self.plan
        if not plan.rules.is_wanted_early(at):
            return
        reason = None if extra else plan.rules.excluded_early(at)
        if reason is not None:
            label = f"{kind}-{version}" if version else kind
            plan.dropped[f"{repro.name}/{launch.label}/*@{target}/{label}/*"] = reason
            return
        # Kernels that share a capture are in the same shard.
        if not self.shard.has(f"{repro.group or repro.name}/{launch.label}@{target}/{version}"):
            return
        compiler = self._compiler(kind, word)
        back = back_end(kind, target)
        bundles = back.default == BUNDLED
        chosen = [self._assembler(back, name) for name in ptxas if bundles or name != BUNDLED]
        tools = tuple(tool for is_found, tool in chosen if is_found)
        if compiler is None or not tools:
            plan.rules.unseen(at)
            return
        if compiler.version:
            plan.versions.setdefault(kind, set()).add(Version(compiler.version))
        if extra:
            plan.extras.add(len(plan.places))
        plan.places.append(
            CapturePlace(
                selection=Selection(
                    repro=structs.replace(repro, launches=(launch.spec,)) if kind == PTX else repro,
                    launches=(launch,),
                    targets=(target,),
                    compilers=(compiler,),
                    ptxas=tools,
                    config=config,
                    freeze_ptx=self.matrix.freeze_ptx and kind != PTX,
                    nvdisasm=self._disassembler(back),
                ),
                target=target,
                compiler=compiler,
                launch=launch,
                variant=extra.variant if extra else None,
            )
        )

    def _compiler(self, kind: str, word: str) -> Compiler | None:
        if (kind, word) not in self._compilers:
            front = front_end(kind)
            get = front.install if self.installs else front.planned
            install = front.default if word == INSTALLED else lambda: get(word)
            self._compilers[kind, word] = self._had(install)
        return self._compilers[kind, word]

    def _assembler(self, back: BackEnd, word: str) -> tuple[bool, Assembler | None]:
        if word == BUNDLED:
            return True, None
        at = back.kind, word
        if at not in self._tools:
            get = back.install if self.installs else back.planned
            self._tools[at] = self._had(lambda: get(word))
        return self._tools[at] is not None, self._tools[at]

    def _disassembler(self, back: BackEnd) -> Tool | None:
        if back.kind not in self._disassemblers:
            tool, notes = back.disassembler(installs=self.installs)
            self._disassemblers[back.kind] = tool
            self.plan.warnings[:0] = notes
        return self._disassemblers[back.kind]

    def _had(self, install: Callable[[], T]) -> T | None:
        try:
            return install()
        except (InfrastructureError, UsageError) as error:
            self.plan.failures.append(str(error))
            return None


def _kind_of(repro: Repro, launch: PlannedLaunch) -> str:
    return PTX if launch.spec.from_ptx else repro.compiler
