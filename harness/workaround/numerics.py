"""Whether a workaround still computes the same function, as far as that can be known here."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from harness.cells.repros.find import find_kernel
from harness.frontends.bench import TimeIsUpError, Workbench, until
from harness.frontends.launch_code import fetch_launch_code
from harness.frontends.registry import front_end, interpreter_for
from harness.frontends.sessions import LaunchCode
from harness.values.errors import TriageError
from harness.values.execution import Departure, SameProgram
from harness.values.kernel import LaunchSpec, Scalar
from harness.values.outcome import LaunchFacts
from harness.values.toolchain import Compiler
from harness.workaround.result import Equivalence, Numerics
from harness.workaround.settings import Setting, SettingKind, SettingStep
from harness.workaround.trials import Trials

_MOST_SECONDS = 90.0
_LEVELS = {
    "source": "the source, which does not see the difference,",
    "buffers": "all that it writes",
    "results": "all that is returned",
}


@dataclass(slots=True, kw_only=True)
class Judge:
    """Tells what is known of each setting; what depends on the same steps is asked once.

    Nothing is started after `until` (by `time.monotonic`).
    """

    trials: Trials
    until: float
    _known: dict[object, Numerics] = field(default_factory=dict)

    async def numerics(self, setting: Setting) -> Numerics:
        """What is known, and why."""
        steps = self.trials.steps(setting)
        launch = tuple(step for step in steps if step.kind is SettingKind.LAUNCH)
        tiles = tuple(
            step for step in steps if step.kind is SettingKind.CONFIG and step.sizes_a_tile
        )
        if not launch and not tiles:
            names = ", ".join(step.name for step in steps)
            reason = f"{names}: the source's meaning is left alone; the compiler may still be wrong"
            return Numerics(known=Equivalence.COMPILED, reason=reason)
        front = front_end(self.trials.home.compiler.kind)
        if not front.interprets:
            return _not_checked(f"{front.title} has no interpreter to compare the results with")
        key = (launch, tiles)
        if key not in self._known:
            try:
                departure = self._operation(setting, launch) if launch else self._tile(setting)
                self._known[key] = await until(self.trials.stop_at, departure)
            except TimeIsUpError:
                self._known[key] = _not_checked("the time was up (--max-time)")
            except TriageError as error:
                self._known[key] = _not_checked(str(error))
        return self._known[key]

    async def _operation(self, setting: Setting, launch: tuple[SettingStep, ...]) -> Numerics:
        names = ", ".join(step.name for step in launch)
        operation = self.trials.selection.repro.operation
        if operation is None:
            return _not_checked(
                f"{names} changes what the kernel is given, and its repro declares no operation "
                "at whose level the results could be compared"
            )
        repro = find_kernel(operation.kernel)
        spec = next((s for s in repro.launches if operation.launch in (None, s.name)), None)
        missing = [step.name for step in launch if spec is None or not _has(spec, step.name)]
        if spec is None or missing:
            missing_name = missing[0] if spec else f"launch {operation.launch}"
            return _not_checked(f"the operation {operation.kernel} has no {missing_name}")
        small = dict(operation.parameters)
        original = fetch_launch_code(repro, spec, {**small, **{s.name: s.before for s in launch}})
        changed = fetch_launch_code(repro, spec, {**small, **{s.name: s.after for s in launch}})
        record, triton = self._launched()
        configs = [self.trials.origin.setting.config, setting.config]
        [comparison] = await interpreter_for(triton).compare_variants(
            self._bench(),
            original.with_configs(record.kernel, [configs[0].as_dict()]),
            [changed.with_configs(record.kernel, [configs[1].as_dict()])],
            target=self.trials.target,
            compiler=triton,
        )
        if comparison.error:
            return _not_checked(f"the interpreter fails: {comparison.error}")
        sizes = ", ".join(f"{name} {value}" for name, value in small.items())
        apart = ""
        if comparison.stable_max_rel is not None and comparison.allowed is not None:
            error, allowed = comparison.stable_max_rel, comparison.allowed
            apart = f", {error:.2g} apart where rounding explains {allowed:.2g}"
        launched = f", launch {operation.launch}" if operation.launch else ""
        verdict = "differ" if comparison.differs else "agree"
        reason = (
            f"all results of the operation ({operation.kernel}{launched}) {verdict} with and "
            f"without the change{apart}; on a small input ({sizes})"
        )
        return _interpreted(comparison, reason, differs=comparison.differs)

    async def _tile(self, setting: Setting) -> Numerics:
        record, triton = self._launched()
        configs = [self.trials.origin.setting.config.as_dict(), setting.config.as_dict()]
        comparison = await interpreter_for(triton).compare_configs(
            self._bench(),
            self._small().with_configs(record.kernel, configs),
            kernels=[record.kernel],
            target=self.trials.target,
            compiler=triton,
        )
        if comparison.error:
            return _not_checked(f"the small launch raised {comparison.error.type}")
        if record.kernel in comparison.skipped:
            return _not_checked(
                f"the interpreter cannot run it: {comparison.skipped[record.kernel]}"
            )
        for finding in comparison.findings:
            for variant in finding.variants:
                if configs[1] not in variant.configs:
                    continue
                if variant.group is None and finding.level != "source":
                    return _not_checked(variant.error)
                if variant.suspect:
                    return _not_checked(f"statically suspect: {variant.suspect}")
                level = _LEVELS[finding.level]
                result = f"{variant.tensor} differs" if variant.group else f"{level} agrees"
                reason = f"against the user's config, on a small input: {result}"
                return _interpreted(variant, reason, differs=bool(variant.group))
        return _not_checked("the reduced launch does not reach it, or prunes it away")

    def _small(self) -> LaunchCode:
        """The launch with the repro's small parameters; what the user set stays."""
        selection = self.trials.selection
        launch = selection.launches[0]
        small: dict[str, Scalar | None] = {
            name: value for name, value in selection.repro.check if _has(launch.spec, name)
        }
        return fetch_launch_code(selection.repro, launch.spec, {**small, **launch.overrides})

    def _launched(self) -> tuple[LaunchFacts, Compiler]:
        record, launch = self.trials.home.record, self.trials.home.launch
        assert record is not None, "only a launch has a config or parameters"
        assert launch is not None, "only a launch has a config or parameters"
        return record, launch.compiler

    def _bench(self) -> Workbench:
        bench = self.trials.bench
        seconds = min(bench.limits.timeout, _MOST_SECONDS)
        mine = bench.apart(limits=replace(bench.limits, timeout=seconds), uncached=False)
        mine.deadline = self.until
        return mine


def _has(spec: LaunchSpec, name: str) -> bool:
    return any(parameter.name == name for parameter in spec.parameters)


def _interpreted(measured: Departure | SameProgram, reason: str, *, differs: bool) -> Numerics:
    return Numerics(
        known=Equivalence.DIFFERS if differs else Equivalence.INTERPRETED,
        reason=reason,
        tensor=measured.tensor or None,
        rel_err=measured.rel_err,
        stable_max_rel=measured.stable_max_rel,
        bad_frac=measured.bad_frac,
    )


def _not_checked(reason: str) -> Numerics:
    return Numerics(known=Equivalence.NOT_CHECKED, reason=reason)
