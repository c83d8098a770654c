"""Which Tritons and which ptxas a blame tries, and where each comes from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from packaging.version import Version

from harness.bisect.axes import version_axis
from harness.blame.choices import order_for_the_first, worth_trying
from harness.frontends.back_end import BackEnd
from harness.frontends.base import Selection
from harness.frontends.registry import back_end, front_end
from harness.io.packages.versions import newest_of_minor
from harness.values.errors import InfrastructureError, TriageError
from harness.values.toolchain import BUNDLED, NO_ASSEMBLER, TRITON, Assembler, Compiler

# Lowering takes seconds, and a Triton that is not there yet is a large download.
_MOST_TRITONS = 8


@dataclass(slots=True, kw_only=True)
class Columns:
    """The ptxas to try, the most telling first; `chosen` says that the user named them."""

    wanted: list[str]
    chosen: bool
    troubles: list[str]
    back_end: BackEnd
    at_hand: dict[str, Assembler] = field(default_factory=dict)

    @property
    def ordered(self) -> list[str]:
        """As versions, oldest first."""
        return sorted(self.wanted, key=Version)

    async def get(self, version: str) -> Assembler | None:
        """That ptxas, installed if it is not yet; None where it is not available."""
        if version not in self.at_hand:
            try:
                found = await asyncio.to_thread(self.back_end.install, version)
            except TriageError as error:
                self.troubles.append(f"{self.back_end.title} {version}: {error}")
                return None
            self.at_hand[version] = found
        return self.at_hand[version]


def choose_tritons(selection: Selection, case: Compiler | None, troubles: list[str]) -> list[str]:
    """The Tritons to try, the case's first: those that were named, else one of each minor."""
    if case is None:
        return []
    if len(selection.compilers) > 1:
        named = [triton.version for triton in selection.compilers]
        return list(dict.fromkeys([case.version, *named]))
    versions = known_versions(selection, "compiler", troubles)
    here = front_end(selection.repro.front_end).installed()
    minors = newest_of_minor(versions, (Version(each.version) for each in here))
    return worth_trying([str(each) for each in minors], case.version, _MOST_TRITONS)


def choose_columns(
    selection: Selection, case: Assembler, bundled: Iterable[Assembler], troubles: list[str]
) -> Columns:
    """The ptxas to try: those that were named, else the bundled, all installed, each minor.

    None where nothing assembles.
    """
    back = back_end(selection.repro.front_end, selection.targets[0])
    if back.kind == NO_ASSEMBLER:
        return Columns(wanted=[], chosen=True, troubles=troubles, back_end=back)
    at_hand = {ptxas.version: _as_such(ptxas) for ptxas in (*bundled, case)}
    named = [ptxas.version if ptxas else case.version for ptxas in selection.ptxas]
    if len(named) > 1:
        at_hand |= {ptxas.version: ptxas for ptxas in selection.ptxas if ptxas}
        wanted = list(dict.fromkeys([case.version, *named]))
        return Columns(
            wanted=wanted, chosen=True, troubles=troubles, back_end=back, at_hand=at_hand
        )
    here = {*map(Version, at_hand), *back.installed()}
    minors = newest_of_minor(here | set(known_versions(selection, "assembler", troubles)), here)
    wanted = order_for_the_first(
        case=case.version,
        bundled=at_hand,
        minors=[str(each) for each in minors],
        installed=[str(each) for each in here],
    )
    return Columns(wanted=wanted, chosen=False, troubles=troubles, back_end=back, at_hand=at_hand)


def _as_such(ptxas: Assembler) -> Assembler:
    """One that a Triton bundles, as a ptxas like any other: for other Tritons it is not bundled."""
    return replace(ptxas, origin=TRITON) if ptxas.origin == BUNDLED else ptxas


def known_versions(selection: Selection, kind: str, troubles: list[str]) -> list[Version]:
    """All that there are; where the index does not answer, those that are installed."""
    try:
        return list(map(Version, version_axis(selection, kind).versions))
    except InfrastructureError as error:
        end = front_end(selection.repro.front_end)
        back = end.back_end(selection.targets[0])
        is_assembler = kind == "assembler"
        what = back.kind if is_assembler else end.kind
        troubles.append(f"what versions of {what} there are: {error}")
        own = sorted({Version(each.version) for each in end.installed()})
        return back.installed() if is_assembler else own
