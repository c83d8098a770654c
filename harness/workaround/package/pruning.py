"""What would save a tuning list: a function for `early_config_prune` that leaves out what fails."""

from __future__ import annotations

from pathlib import Path

from harness.frontends.launch_code import read_source
from harness.frontends.registry import front_end
from harness.tables.survivors import common_reason
from harness.values.errors import TriageError
from harness.values.kernel import Config
from harness.values.target import Target
from harness.values.toolchain import BUNDLED
from harness.values.verdict import Stage
from harness.workaround.package.losses import Loss, Pruning, TuningList
from harness.workaround.patch import tuned_arguments
from harness.workaround.result import Guard
from harness.workaround.tuning_list import (
    GuardedRelease,
    PatchError,
    find_tuner,
    make_guard,
    pruning_source,
)

_NAME = "_drop_broken_configs"


def pruning_of(one: TuningList) -> Pruning | None:
    """What leaves out the configs that fail; None where nothing fails.

    It follows from the results of the compiled configs; the pruned kernel itself is not compiled.
    """
    if one.loss in (Loss.NONE, Loss.UNKNOWN):
        return None
    row = one.lost[0]
    if not one.record.autotuned:
        return _none("the kernel has no tuner: its launch gives it one config")
    if not one.works:
        return _none("no config is left that a tuner could choose: it needs another one")
    if row.compiler is None or not front_end(row.compiler).patches:
        return _none("no way is known to leave out configs of this language")
    if row.ptxas_origin != BUNDLED and any(each.stage == Stage.CUBIN.value for each in one.lost):
        return _none(f"{row.tool} fails, which a tuner cannot tell from the bundled one")
    try:
        key = find_tuner(read_source(Path(one.record.file)), one.kernel).key
    except (PatchError, TriageError) as error:
        return _none(f"{one.file}: {error}")
    guard = _guard(one, key)
    if guard is None:
        return _none("nothing tells the configs that fail from those that work")
    because = common_reason(one.lost)
    source = pruning_source(_NAME, guard, because, imported=("torch", "triton"), wraps=False)
    return Pruning(source=source, keeps=len(one.works) + len(one.unknown))


def _none(why: str) -> Pruning:
    return Pruning(source=None, why_none=why)


def _guard(one: TuningList, key: tuple[str, ...]) -> Guard | None:
    fails = tuple(Config.of(row.config) for row in one.lost)
    works = tuple(Config.of(row.config) for row in (*one.works, *one.unknown))
    version = one.rows[0].compiler_version
    assert version is not None
    release = GuardedRelease(triton=version, fails=fails, works=works)
    guard = make_guard(
        [release],
        capability=Target.parse(one.target).capability,
        arguments=tuned_arguments(one.record, key),
    )
    if guard is None:
        return None
    drops = {config for config in (*fails, *works) if any(c.fails(config) for c in guard.clauses)}
    return guard if drops == set(fails) else None
