"""Which of a matrix' cells are run: exclusions with their reasons, shards, and in which order.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise, product
from typing import TypeAlias

from msgspec.structs import replace
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from harness.io.packages.versions import exact_of_distribution, parse_version, split_distribution
from harness.values.errors import UsageError
from harness.values.kernel import Config, ConfigFilter
from harness.values.matrix import (
    Coordinates,
    Excluded,
    Expectation,
    Matrix,
    MatrixPlace,
    Override,
    Selector,
    ToolRange,
)
from harness.values.row import Facts
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, PTX, PTXAS, TRITON
from harness.values.verdict import VerdictKind

_TOOL = re.compile(r"([a-z][a-z0-9_]*)\s*([<>=!~].*|)")
_WILD = re.compile(r"[*?\[]")


def read_specifiers(text: str) -> SpecifierSet:
    """A range of versions (`>=3.5,<3.8`), or one version, of another distribution `NAME==VERSION`.

    Raises:
        UsageError: it is neither.
    """
    if split_distribution(text)[0] and (exact := exact_of_distribution(text)):
        return SpecifierSet(f"=={exact}")
    try:
        if text.strip():
            return SpecifierSet(text)
    except InvalidSpecifier:
        pass
    try:
        return SpecifierSet(f"=={Version(text)}")
    except InvalidVersion as error:
        raise UsageError(
            f"{text[:80]!r} is not a specifier of versions; write '>=3.5,<3.8', '==12.9.*' or 3.6.0"
        ) from error


def read_tool(text: str) -> ToolRange:
    """A kind of compiler or assembler, alone or with versions: `kettle`, `kettle>=1,<2`.

    Raises:
        UsageError: it is neither.
    """
    match = _TOOL.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text[:80]!r} names no kind; write KIND or KIND==VERSION")
    return ToolRange(kind=match[1], versions=read_specifiers(match[2]) if match[2] else None)


def make_selector(
    *,
    cell: str | None = None,
    kernel: str | None = None,
    launch: str | None = None,
    target: str | None = None,
    triton: str | None = None,
    ptxas: str | None = None,
    compiler: str | None = None,
    assembler: str | None = None,
    config: str | None = None,
) -> Selector:
    """The selector with these parts; `ptxas` may also be `bundled`.

    `triton` and `ptxas` are versions of these, `compiler` and `assembler` a kind with versions.

    Raises:
        UsageError: one of them makes no sense.
    """
    if target is not None:
        words = [word.strip() for word in target.split("|")]
        target = "|".join(w if _WILD.search(w) else str(Target.parse(w)) for w in words)
    bundled = ptxas == BUNDLED
    return Selector(
        cell=cell,
        kernel=kernel,
        launch=launch,
        target=target,
        compilers=_ranges(TRITON, triton, compiler),
        assemblers=_ranges(PTXAS, None if bundled else ptxas, assembler),
        bundled=True if bundled else None,
        config=ConfigFilter.parse(config or ""),
    )


def select_stored(
    *,
    kernel: str | None = None,
    sm: Sequence[str] = (),
    launch: str | None = None,
    set: Sequence[str] = (),  # noqa: A002 - as the option
    triton: Sequence[str] = (),
    compiler: Sequence[str] = (),
    ptxas: Sequence[str] = (),
    assembler: Sequence[str] = (),
    config: str | None = None,
) -> tuple[Selector, ...]:
    """The cells that options mean: of a repeated one any value, of different ones all.

    Raises:
        UsageError: one of them makes no sense.
    """
    target = "|".join(str(Target.parse(word)) for word in sm) or None
    compilers = [("triton", text) for text in triton] + [("compiler", text) for text in compiler]
    assemblers = [("ptxas", text) for text in ptxas] + [("assembler", text) for text in assembler]
    for option, text in (*compilers, *assemblers):
        try:
            make_selector(**{option: text})
        except UsageError as error:
            raise UsageError(f"--{option} {error}") from error
    selectors = [
        make_selector(kernel=kernel, launch=launch, target=target, config=config, **dict(tools))
        for tools in product(*filter(None, (compilers, assemblers)))
    ]
    return tuple(replace(selector, set=tuple(set)) for selector in selectors)


def _ranges(kind: str, versions: str | None, tool: str | None) -> tuple[ToolRange, ...]:
    own = [] if versions is None else [ToolRange(kind=kind, versions=read_specifiers(versions))]
    return (*own, *([] if tool is None else [read_tool(tool)]))


# Known failures: which expectation speaks of a cell, and whether what happened is what it says.


class Expectations:
    """All expectations of a matrix, asked of one cell after the other.

    Which of them may speak of a cell is remembered by kernel, launch, target and toolchain, so
    that only configs are looked at for each of a hundred thousand cells.
    """

    def __init__(self, expectations: Sequence[Expectation] = ()) -> None:
        """Several may speak of one cell; see `of`."""
        self._coarse = [
            (expectation, replace(expectation.selector, config=ConfigFilter(), cell=None))
            for expectation in expectations
        ]
        self._candidates: dict[tuple[str | bool | None, ...], list[Expectation]] = {}

    def of(self, facts: Facts) -> Expectation | None:
        """The expectation for this cell; of several one that happened, else the first."""
        if not self._coarse:
            return None
        config = Config.of(dict(facts.config))
        matches = [
            expectation
            for expectation in self._candidates_for(facts)
            if expectation.selector.config.matches(config)
            and (
                expectation.selector.cell is None
                or fnmatchcase(facts.cell, expectation.selector.cell)
            )
        ]
        return next(
            (expectation for expectation in matches if happened(facts, expectation)),
            next(iter(matches), None),
        )

    def _candidates_for(self, facts: Facts) -> list[Expectation]:
        compiler = (facts.compiler, facts.compiler_version)
        toolchain = (*compiler, facts.assembler, facts.ptxas, facts.ptxas_origin)
        key = (facts.kernel, facts.launch, facts.target, *toolchain, facts.is_executed)
        if key not in self._candidates:
            place = replace(coordinates_of_row(facts), config=Config())
            self._candidates[key] = [
                expectation
                for expectation, coarse in self._coarse
                if coarse.matches(place) and expectation.verdict.is_of_run == facts.is_executed
            ]
        return self._candidates[key]


def coordinates_of_row(facts: Facts) -> Coordinates:
    """The coordinates of a stored cell."""
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


EVERY = (Selector(),)
"""What `select_stored` gives without any option."""


def is_meant(facts: Facts, only: Sequence[Selector]) -> bool:
    """Whether one of the selectors means a stored cell."""
    return only == EVERY or any(one.matches(coordinates_of_row(facts)) for one in only)


def exclusion_of(matrix: Matrix | None, facts: Facts) -> str | None:
    """Why the matrix leaves a cell out; None where it does not, or may include it all the same."""
    if matrix is None:
        return None
    for extra in matrix.include:
        targets = {str(target) for target in extra.targets} or {facts.target}
        if facts.target in targets and fnmatchcase(facts.kernel, extra.kernel):
            return None
    cell = coordinates_of_row(facts)
    return next((rule.reason for rule in matrix.exclude if rule.selector.matches(cell)), None)


def happened(facts: Facts, expectation: Expectation) -> bool:
    """Whether the cell does what is expected; without a signature, any of that verdict."""
    return facts.verdict == expectation.verdict and expectation.signature in (None, facts.signature)


_FAILED = 1

_Rule: TypeAlias = Excluded | Override | Expectation


@dataclass(slots=True, kw_only=True)
class Rules:
    """A matrix' exclusions, and what is selected; remembers which selectors matched."""

    matrix: Matrix
    only: Sequence[Selector] = ()
    _matched: set[int] = field(default_factory=set)

    def excluded_early(self, place: MatrixPlace) -> str | None:
        """Why a whole place is left out, before anything is installed or captured."""
        early = (rule for rule in self.matrix.exclude if rule.selector.is_known_early)
        rules = [rule for rule in early if rule.selector.matches_early(place)]
        if not rules:
            return None
        # Rules that speak of single cells never see those of this place.
        self.unseen(place)
        return rules[0].reason

    def excluded(self, cell: Coordinates) -> str | None:
        """Why this cell is left out; None where it is not."""
        rules = [rule for rule in self.matrix.exclude if rule.selector.matches(cell)]
        self._matched.update(map(id, rules))
        return rules[0].reason if rules else None

    def is_wanted_early(self, place: MatrixPlace) -> bool:
        """Whether the selection may mean cells of this place."""
        return not self.only or any(one.matches_early(place) for one in self.only)

    def is_wanted(self, cell: Coordinates) -> bool:
        """Whether the selection means this cell."""
        matches = [selector for selector in self.only if selector.matches(cell)]
        self._matched.update(map(id, matches))
        return bool(matches) or not self.only

    def override_of(self, cell: Coordinates) -> Override:
        """All overrides of this cell in one; the last that says something counts."""
        timeout, memory, repeat = self.matrix.timeout, None, self.matrix.repeat
        for rule in self.matrix.overrides:
            if rule.selector.matches(cell):
                self._matched.add(id(rule))
                timeout = rule.timeout or timeout
                memory = rule.memory or memory
                repeat = rule.repeat or repeat
        return Override(selector=Selector(), timeout=timeout, memory=memory, repeat=repeat)

    def expected(self, cell: Coordinates) -> None:
        """Note which expectations speak of this cell."""
        for rule in self.matrix.expect:
            if id(rule) not in self._matched and rule.selector.matches(cell):
                self._matched.add(id(rule))

    def is_expected(self, cell: Coordinates) -> bool:
        """Whether this cell is known to fail."""
        return any(rule.selector.matches(cell) for rule in self.matrix.expect)

    def unseen(self, place: MatrixPlace) -> None:
        """The cells of this place stay unknown: what may speak of them is not called useless."""
        every: list[_Rule] = [*self.matrix.exclude, *self.matrix.overrides, *self.matrix.expect]
        self._matched.update(id(rule) for rule in every if rule.selector.matches_early(place))

    def matched(self) -> list[int]:
        """Which rules and words of `only` have matched, by their place among all of them."""
        return [n for n, rule in enumerate(self._every()) if id(rule) in self._matched]

    def have_matched(self, places: Sequence[int]) -> None:
        """Note what `matched` said elsewhere, of the same rules."""
        every = self._every()
        self._matched.update(id(every[n]) for n in places if n < len(every))

    def _every(self) -> list[object]:
        listed = self.matrix
        return [*listed.exclude, *listed.overrides, *listed.expect, *self.only]

    def unmatched_only(self) -> list[str]:
        """Which of `only` mean no cell, in words."""
        return [str(selector) for selector in self.only if id(selector) not in self._matched]

    def unmatched(self, versions: Mapping[str, Sequence[Version]]) -> list[str]:
        """One line for each selector that matched nothing; `versions` are those of each tool."""
        lines = []
        lists: dict[str, Sequence[_Rule]] = {
            "exclude": self.matrix.exclude,
            "overrides": self.matrix.overrides,
            "expect": self.matrix.expect,
        }
        for name, rules in lists.items():
            for index, rule in enumerate(rules):
                if id(rule) not in self._matched:
                    hints = [
                        f"; {tool.kind} {hint}"
                        for tool in (*rule.selector.compilers, *rule.selector.assemblers)
                        if tool.versions is not None
                        and (hint := spec_hint(str(tool.versions), versions.get(tool.kind, ())))
                    ]
                    hint = "".join(hints)
                    where = f"{self.matrix.file}:{rule.line}: {name}[{index}]"
                    lines.append(f"{where} matches no cell{hint}")
        return lines


def spec_hint(spec: str, versions: Sequence[Version]) -> str:
    """What a specifier that matches no version should have been; nothing where one matches."""
    specifiers = SpecifierSet(spec)
    if any(specifiers.contains(version, prereleases=True) for version in versions):
        return ""
    for specifier in specifiers:
        if specifier.operator != "==" or specifier.version.endswith(".*"):
            continue
        series = SpecifierSet(f"=={specifier.version}.*")
        if matches := [
            str(match) for match in versions if series.contains(match, prereleases=True)
        ]:
            return f"{spec} is one version; =={specifier.version}.* takes {', '.join(matches)}"
    listed = ", ".join(str(version) for version in sorted(versions)) or "none"
    return f"{spec} matches none of the versions, which are {listed}"


def by_information(
    cells: Sequence[Coordinates], last: Sequence[str | None]
) -> list[tuple[tuple[object, ...], int]]:
    """An order in which to run cells: (rank, index), the most telling first.

    `last` is the last verdict of each, None where it has never run. First what has never run, then
    what did not compile or could not be determined last time. Of the rest, what is expected to tell
    most: a cell beside a boundary - the same config with the next older or newer ptxas had another
    verdict - since that is where a change shows first and where it narrows a regression range; then
    the newest toolchains, which people will upgrade to; then the others.
    """
    rows: dict[tuple[object, ...], list[int]] = {}
    for index, cell in enumerate(cells):
        config = (cell.kernel, cell.launch, cell.config, cell.target, cell.compiler, cell.version)
        rows.setdefault(config, []).append(index)
    boundary: set[int] = set()
    for row in rows.values():
        row.sort(key=lambda index: _release(cells[index].ptxas))
        for older, newer in pairwise(row):
            if last[older] != last[newer]:
                boundary |= {older, newer}
    ranks = []
    for index, (cell, verdict) in enumerate(zip(cells, last, strict=True)):
        standing = 0 if verdict is None else _FAILED if not VerdictKind(verdict).compiles else 2
        newest = tuple(-part for part in (*_release(cell.version), *_release(cell.ptxas)))
        ranks.append(((standing, index not in boundary, newest, index), index))
    return sorted(ranks)


def _release(version: str | None) -> tuple[int, int, int]:
    parsed = parse_version(version) or Version("0")
    return parsed.major, parsed.minor, parsed.micro
