"""Known failures: which expectation speaks of a cell, and whether what happened is what it says.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from harness.values.change import Facts
from harness.values.kernel import Config, ConfigFilter
from harness.values.matrix import Coordinates, Expectation, Matrix
from harness.values.toolchain import EMULATOR, PTX
from harness.values.verdict import VerdictKind


class Expectations:
    """All expectations of a matrix, asked of one cell after the other.

    Which of them may speak of a cell is remembered by kernel, launch, target and toolchain, so
    that only configs are looked at for each of a hundred thousand cells.
    """

    def __init__(self, expectations: Sequence[Expectation] = ()) -> None:
        """Several may speak of one cell; see `of`."""
        self._coarse = [
            (each, replace(each.selector, config=ConfigFilter(), cell=None))
            for each in expectations
        ]
        self._candidates: dict[tuple[str | None, ...], list[Expectation]] = {}

    def of(self, facts: Facts) -> Expectation | None:
        """The expectation for this cell; of several one that happened, else the first."""
        if not self._coarse:
            return None
        config = Config.of(dict(facts.config))
        found = [
            each
            for each in self._candidates_for(facts)
            if each.selector.config.matches(config)
            and (each.selector.cell is None or fnmatchcase(facts.cell, each.selector.cell))
        ]
        return next((each for each in found if happened(facts, each)), next(iter(found), None))

    def _candidates_for(self, facts: Facts) -> list[Expectation]:
        compiler = (facts.compiler, facts.compiler_version)
        toolchain = (*compiler, facts.assembler, facts.ptxas, facts.ptxas_origin)
        key = (facts.kernel, facts.launch, facts.target, *toolchain)
        if key not in self._candidates:
            place = replace(_coordinates(facts), config=Config())
            self._candidates[key] = [
                each
                for each, coarse in self._coarse
                if coarse.matches(place) and _is_of_run(each) == (facts.ptxas == EMULATOR)
            ]
        return self._candidates[key]


def _coordinates(facts: Facts) -> Coordinates:
    """A cell as selectors see it."""
    return Coordinates(
        cell=facts.cell,
        kernel=facts.kernel,
        launch=facts.launch,
        config=Config.of(dict(facts.config)),
        target=facts.target,
        compiler=facts.compiler or PTX,
        version=facts.compiler_version,
        assembler=facts.assembler,
        ptxas=facts.ptxas,
        ptxas_origin=facts.ptxas_origin,
    )


def exclusion_of(matrix: Matrix | None, facts: Facts) -> str | None:
    """Why the matrix leaves a cell out; None where it does not, or may include it all the same."""
    if matrix is None:
        return None
    for extra in matrix.include:
        targets = {str(target) for target in extra.targets} or {facts.target}
        if facts.target in targets and fnmatchcase(facts.kernel, extra.kernel):
            return None
    cell = _coordinates(facts)
    return next((each.reason for each in matrix.exclude if each.selector.matches(cell)), None)


def _is_of_run(expectation: Expectation) -> bool:
    """Whether it is about what comes out when the PTX is executed; else it is about compiling."""
    return VerdictKind(expectation.verdict).is_of_run


def happened(facts: Facts, expectation: Expectation) -> bool:
    """Whether the cell does what is expected; without a signature, any of that verdict."""
    return facts.verdict == expectation.verdict and expectation.signature in (None, facts.signature)
