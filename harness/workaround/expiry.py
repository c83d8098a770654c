"""Which cells to run to see whether a workaround is needed, and still works. Pure.

What counts is the newest Triton of the run that could tell, with the ptxas that it bundles where
that was run, else the newest: it is what a user would be on next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from harness.io.packages.versions import toolchain_order
from harness.judging.answers import COULD_NOT_TELL
from harness.values.bug import KeptWorkaround
from harness.values.cell import LaunchLabel
from harness.values.kernel import Config, Scalar
from harness.values.matrix import Extra, MatrixVariant, ToolChoice
from harness.values.row import Facts
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, PTX, compiler_name
from harness.values.verdict import VerdictKind

# So many times the spills that it was found with, and it no longer does what it is for.
_WORSE = 2


def is_about(workaround: KeptWorkaround, facts: Facts) -> bool:
    """Whether a result is of the kernel, launch and GPU that a workaround is for."""
    home = workaround.baseline
    return (facts.kernel, facts.launch, facts.target) == (home.kernel, home.launch, home.target)


def to_run(workaround: KeptWorkaround) -> Extra:
    """The launch that it is for, with all its configs, as one more entry of a matrix."""
    home = workaround.baseline
    return Extra(
        kernel=home.kernel,
        launch=LaunchLabel.parse(home.launch).name,
        set=workaround.overrides,
        targets=(Target.parse(home.target),),
    )


def to_retest(workaround: KeptWorkaround) -> tuple[Extra, ...]:
    """The workaround itself, as one more entry of a matrix; nothing where its setting is not kept.

    It is compiled with the Triton and the ptxas that it names, or with those of the matrix.
    """
    setting, home = workaround.setting, workaround.baseline
    if setting is None:
        return ()
    compiler = ToolChoice(kind=home.compiler or PTX, spec=setting.triton or "")
    assembler = ToolChoice(kind=home.assembler, spec=setting.ptxas or "")
    return (
        replace(
            to_run(replace(workaround, overrides=setting.overrides)),
            variant=MatrixVariant(config=Config.of(setting.config), options=setting.options),
            compiler=compiler if compiler.spec else None,
            assembler=assembler if assembler.spec else None,
        ),
    )


def broken(workarounds: Sequence[KeptWorkaround], facts: Iterable[Facts]) -> list[str]:
    """Those that no longer do what they were found to do, in words; `facts` are of one run.

    What counts is the newest toolchain that could tell, as for `expired`.
    """
    determined, lines = list(filter(_tells, facts)), []
    for workaround in workarounds:
        was = workaround.proof
        if not workaround.setting or was is None:
            continue
        own = [fact for fact in determined if _place(fact) == _place(was)]
        newest = _newest_toolchain(own, [dict(was.config)])
        if newest is None:
            continue
        now = newest[0]
        before, after = (was.spill_stores or 0), (now.spill_stores or 0)
        is_worse = was.verdict is VerdictKind.OK and now.verdict != was.verdict
        if is_worse or not now.verdict.compiles or after > _WORSE * before:
            tools = f"{now.compiler_name}, {now.tool}" if now.compiler else now.tool
            lines.append(
                f"workaround no longer works: {was.kernel} on {was.target}: {workaround.change}: "
                f"{now.verdict} with {tools}: {now.reason} (it was {was.verdict} with "
                f"{was.compiler_name}, {was.tool}, {before:,} B of spill stores)"
            )
    return lines


def _place(of: Facts) -> tuple[object, ...]:
    """Kernel, launch, target, config, and what ptxas is given besides, as a cell's name ends."""
    return of.kernel, of.launch, of.target, _key(of.config), of.flags


def _tells(fact: Facts) -> bool:
    return fact.verdict not in COULD_NOT_TELL


def is_known(workarounds: Iterable[KeptWorkaround], facts: Facts) -> bool:
    """Whether one of them is for this very config: that it fails is not a surprise."""
    config = _key(facts.config)
    return any(
        is_about(workaround, facts)
        and config in {_key(own) for own in (workaround.baseline.config, *workaround.left_out)}
        for workaround in workarounds
    )


def expired(workarounds: Sequence[KeptWorkaround], facts: Iterable[Facts]) -> list[str]:
    """Those that are no longer needed, in words: all of one, or only the configs it leaves out."""
    determined, lines = list(filter(_tells, facts)), []
    for workaround in workarounds:
        was = workaround.baseline
        own = [fact for fact in determined if is_about(workaround, fact)]
        newest = _newest_toolchain(own, [was.config, *workaround.left_out])
        if newest is None:
            continue
        by_config = {_key(fact.config): fact for fact in newest}
        home = by_config.get(_key(was.config))
        others = [by_config.get(_key(config)) for config in workaround.left_out]
        if not all(fact and fact.verdict.compiles for fact in others):
            continue
        if home and home.verdict is VerdictKind.OK:
            reason = "it is ok"
        elif others:
            reason = f"all {len(others)} configs that the patch leaves out compile"
        else:
            continue
        version = newest[0].compiler_version
        compiler = f"{compiler_name(was.compiler, version)}, " if version else ""
        lines.append(
            f"workaround no longer needed: {was.kernel} on {was.target}: {reason} with {compiler}"
            f"{newest[0].tool} (found for {was.compiler_name}, {was.tool}: {workaround.change})"
        )
    return lines


def _newest_toolchain(
    facts: Sequence[Facts], configs: Sequence[dict[str, Scalar]]
) -> list[Facts] | None:
    keys = {_key(config) for config in configs}
    groups: dict[tuple[str | None, str | None, str | None, bool], list[Facts]] = {}
    for fact in facts:
        tools = (fact.compiler_version, fact.ptxas, fact.ptxas_origin, fact.frozen)
        groups.setdefault(tools, []).append(fact)
    having = [
        tools for tools, results in groups.items() if keys & {_key(f.config) for f in results}
    ]
    if not having:
        return None
    having.sort(key=lambda tools: toolchain_order(*tools[:3]))
    of_triton = [tools for tools in having if tools[0] == having[-1][0]]
    bundled = [tools for tools in of_triton if tools[2] == BUNDLED]
    return groups[(bundled or of_triton)[-1]]


def _key(config: Mapping[str, Scalar]) -> frozenset[tuple[str, Scalar]]:
    return frozenset(config.items())
