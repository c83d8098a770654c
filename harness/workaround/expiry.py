"""Which cells to run to see whether a workaround is needed, and still works. Pure.

What counts is the newest Triton of the run that could tell, with the ptxas that it bundles where
that was run, else the newest: it is what a user would be on next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from harness.io.packages.versions import toolchain_order
from harness.values.bug import KeptWorkaround
from harness.values.cell import LaunchLabel
from harness.values.change import Facts
from harness.values.kernel import Config, Scalar
from harness.values.matrix import Extra, MatrixVariant, ToolChoice
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, PTX, compiler_name
from harness.values.verdict import VerdictKind

# So many times the spills that it was found with, and it no longer does what it is for.
_WORSE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """A workaround that a run shows no need of: all of it, or only the configs it leaves out."""

    kept: KeptWorkaround
    what: str
    triton: str | None
    tool: str

    @property
    def words(self) -> str:
        """As the nightly diff says it."""
        was = self.kept.baseline
        compiler = f"{compiler_name(was.compiler, self.triton)}, " if self.triton else ""
        tools = f"{compiler}{self.tool}"
        return (
            f"workaround no longer needed: {was.kernel} on {was.target}: {self.what} with {tools} "
            f"(found for {was.compiler_name}, {was.tool}: {self.kept.change})"
        )


def is_about(kept: KeptWorkaround, facts: Facts) -> bool:
    """Whether a result is of the kernel, launch and GPU that a workaround is for."""
    home = kept.baseline
    return (facts.kernel, facts.launch, facts.target) == (home.kernel, home.launch, home.target)


def to_run(kept: KeptWorkaround) -> Extra:
    """The launch that it is for, with all its configs, as one more entry of a matrix."""
    home = kept.baseline
    return Extra(
        kernel=home.kernel,
        launch=LaunchLabel.parse(home.launch).name,
        set=kept.overrides,
        targets=(Target.parse(home.target),),
    )


def to_retest(kept: KeptWorkaround) -> tuple[Extra, ...]:
    """The workaround itself, as one more entry of a matrix; nothing where its setting is not kept.

    It is compiled with the Triton and the ptxas that it names, or with those of the matrix.
    """
    setting = kept.setting
    if setting is None:
        return ()
    variant = MatrixVariant(config=Config.of(setting.config), options=setting.options)
    extra = to_run(replace(kept, overrides=setting.overrides))
    home = kept.baseline
    compiler = ToolChoice(kind=home.compiler or PTX, spec=setting.triton or "")
    assembler = ToolChoice(kind=home.assembler, spec=setting.ptxas or "")
    return (
        replace(
            extra,
            variant=variant,
            compiler=compiler if compiler.spec else None,
            assembler=assembler if assembler.spec else None,
        ),
    )


def broken(kept: Sequence[KeptWorkaround], facts: Iterable[Facts]) -> list[str]:
    """Those that no longer do what they were found to do, in words; `facts` are of one run.

    What counts is the newest toolchain that could tell, as for `expired`.
    """
    facts = list(facts)
    return [words for each in kept if (words := _broken(each, facts))]


def _broken(kept: KeptWorkaround, facts: Sequence[Facts]) -> str | None:
    was = kept.proof
    if not kept.setting or was is None:
        return None
    own = [fact for fact in facts if _tells(fact) and _place(fact) == _place(was)]
    newest = _newest_toolchain(own, [dict(was.config)])
    if newest is None:
        return None
    now = newest[0]
    before, after = (was.spill_stores or 0), (now.spill_stores or 0)
    is_worse = was.verdict is VerdictKind.OK and now.verdict != was.verdict
    if now.verdict.compiles and not is_worse and after <= _WORSE * before:
        return None
    tools = f"{now.compiler_name}, {now.tool}" if now.compiler else now.tool
    return (
        f"workaround no longer works: {was.kernel} on {was.target}: {kept.change}: {now.verdict} "
        f"with {tools}: {now.reason} (it was {was.verdict} with {was.compiler_name}, "
        f"{was.tool}, {before:,} B of spill stores)"
    )


def _place(of: Facts | Row) -> tuple[object, ...]:
    """Kernel, launch, target, config, and what ptxas is given besides, as a cell's name ends."""
    options = of.cell.rpartition("/")[2].partition(",")[2]
    return of.kernel, of.launch, of.target, _key(of.config), options


def _tells(fact: Facts) -> bool:
    return not fact.verdict.tells_nothing


def is_known(kept: Iterable[KeptWorkaround], facts: Facts) -> bool:
    """Whether one of them is for this very config: that it fails is not a surprise."""
    config = _key(facts.config)
    return any(
        is_about(each, facts)
        and config in {_key(own) for own in (each.baseline.config, *each.left_out)}
        for each in kept
    )


def expired(kept: Sequence[KeptWorkaround], facts: Iterable[Facts]) -> list[Expired]:
    """Those that are no longer needed, in their order; `facts` are the results of one run."""
    facts = list(facts)
    return [found for each in kept if (found := _expired(each, facts))]


def _expired(kept: KeptWorkaround, facts: Sequence[Facts]) -> Expired | None:
    own = [fact for fact in facts if _tells(fact) and is_about(kept, fact)]
    newest = _newest_toolchain(own, [kept.baseline.config, *kept.left_out])
    if newest is None:
        return None
    by_config = {_key(fact.config): fact for fact in newest}
    home = by_config.get(_key(kept.baseline.config))
    others = [by_config.get(_key(config)) for config in kept.left_out]
    all_compile = all(each and each.verdict.compiles for each in others)
    tools = newest[0]
    if home and home.verdict is VerdictKind.OK and all_compile:
        what = "it is ok"
    elif others and all_compile:
        what = f"all {len(others)} configs that the patch leaves out compile"
    else:
        return None
    return Expired(kept=kept, what=what, triton=tools.compiler_version, tool=tools.tool)


def _newest_toolchain(
    facts: Sequence[Facts], wanted: Sequence[dict[str, Scalar]]
) -> list[Facts] | None:
    keys = {_key(config) for config in wanted}
    groups: dict[tuple[str | None, str | None, str | None, bool], list[Facts]] = {}
    for fact in facts:
        tools = (fact.compiler_version, fact.ptxas, fact.ptxas_origin, fact.frozen)
        groups.setdefault(tools, []).append(fact)
    having = [tools for tools, found in groups.items() if keys & {_key(f.config) for f in found}]
    if not having:
        return None
    having.sort(key=lambda tools: toolchain_order(*tools[:3]))
    of_triton = [tools for tools in having if tools[0] == having[-1][0]]
    bundled = [tools for tools in of_triton if tools[2] == BUNDLED]
    return groups[(bundled or of_triton)[-1]]


def _key(config: Mapping[str, Scalar]) -> frozenset[tuple[str, Scalar]]:
    return frozenset(config.items())
