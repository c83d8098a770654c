"""Versions that do not go together: the pair as a user would run it, and how to set up one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from packaging.version import Version

from harness.blame.columns import known_versions
from harness.blame.grid import Grid
from harness.blame.lines import Made, Study, as_seen, followed
from harness.frontends.base import PlannedCell
from harness.frontends.registry import front_end
from harness.io.packages.versions import newest_of_minor
from harness.io.toolchains.install import install_ptxas
from harness.io.toolchains.installed import installed_versions
from harness.io.toolchains.offered import available_ptxas
from harness.judging.answers import VerdictAnswer, works
from harness.values.errors import CaptureError, InfrastructureError
from harness.values.toolchain import TRITON, Assembler
from harness.values.verdict import VerdictKind
from harness.workaround.paste import ptxas_environment

# Each one lowers the kernel again.
_MOST_PAIRS = 8


async def as_users_pair(study: Study, case: PlannedCell, made: Sequence[Made]) -> list[Made]:
    """The case's Triton pointed at another ptxas, the nearest newer one with which it works.

    Pointed at a ptxas, Triton writes the PTX version of that one: the PTX that it writes for its
    own ptxas may be too old for the target as well as too new for a ptxas. Empty where the case
    works with a ptxas already, where there is no Triton, or where no pair works.
    """
    if case.launch is None or case.bundled is None:
        return []
    own = case.launch.compiler.version
    mine = (row for each in made if each.triton == own for row in each.all_rows())
    if any(works(VerdictKind(row.verdict), row.stage) for row in mine):
        return []
    candidates = await _newer_ptxas(study, Version(case.bundled.version))
    try:
        cells = (await study.plan(case.launch.compiler, ptxas=candidates)).cells
    except (CaptureError, InfrastructureError):
        return []
    for cell in (cell for cell in cells if followed(cell) == followed(case)):
        row = await study.row(cell)
        if works(VerdictKind(row.verdict), row.stage):
            return [as_seen(cell, row)]
    return []


async def _newer_ptxas(study: Study, bundled: Version) -> tuple[Assembler, ...]:
    versions = known_versions(study.selection, "assembler", study.troubles)
    minors = newest_of_minor(versions, installed_versions("ptxas"))
    newer = [version for version in minors if version > bundled][:_MOST_PAIRS]
    found = []
    for version in newer:
        try:
            found.append(await asyncio.to_thread(install_ptxas, version))
        except InfrastructureError as error:
            study.troubles.append(f"ptxas {version}: {error}")
    return tuple(found)


def remedy_of(grid: Grid, kind: str | None, triton: str | None) -> tuple[str, ...]:
    """What a user types: the combination that works, with the case's compiler if it has one."""
    fitting = [line for line in grid.lines if line.has(VerdictAnswer.OK)]
    mine = [line for line in fitting if triton in line.tritons]
    if triton is not None and mine:
        line = next((each for each in mine if each.made_for), mine[0])
        version = line.made_for or line.ptxas(VerdictAnswer.OK)[-1]
        return _pointed_at(version)
    if triton is not None and fitting:
        newest = max((name for line in fitting for name in line.tritons), key=Version)
        return (front_end(kind or TRITON).install_line(newest),)
    return ()


def _pointed_at(version: str) -> tuple[str, ...]:
    try:
        packages = {str(each): name for each, name in available_ptxas()}
    except InfrastructureError:
        packages = {}
    if version not in packages:
        return (f"export TRITON_PTXAS_PATH=...  # ptxas {version}",)
    return tuple(ptxas_environment(packages[version], version))
