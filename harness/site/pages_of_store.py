"""`triage site`: read the store once, kernel by kernel, and write the pages."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from harness import __version__
from harness.bugs.bug_words import bug_said, bug_title, command_of
from harness.bugs.list import list_bugs, reproducer_of, workarounds_of
from harness.cells.matrix_rules import EVERY, Expectations, happened, is_meant
from harness.cells.places import CompileOptions, at_bench
from harness.cells.spelling import SelectionOptions, spell_command
from harness.diff.between_runs import (
    compare_runs,
    current_results,
    last_night,
    matrix_of,
    previous_run,
)
from harness.diff.compare import shared
from harness.diff.diff_words import ChangeGroup, changes_said, group_changes
from harness.frontends.assemble import count_live
from harness.frontends.bench import Workbench
from harness.frontends.registry import stages_of
from harness.io.files.writing import write_output_folder
from harness.io.processes.tasks import in_parallel
from harness.io.toolchains.install import every_nvdisasm
from harness.site import squares
from harness.site.live import Live
from harness.site.overview import (
    MOST_READ,
    MOST_STEPS,
    Overview,
    age_of,
    day_of,
    mark_said,
    night_of,
    steps_of,
)
from harness.site.pages import ROWS, CellPages, anchor_of, blame_view, charts_of, upstream_links
from harness.site.pairs import STAGES, neighbours, pair_facts, stage_diffs
from harness.site.panes import anchors_of, pane_html, panes_of, shown_stages
from harness.store.artifacts import UnusableArtifactError
from harness.store.bug_identity import bug_key
from harness.store.bugs import read_numbers, read_signatures
from harness.store.schema import ResultRecord, RunRecord
from harness.store.stages import stage_bytes
from harness.store.store import Store
from harness.tables.file_templates import render_template
from harness.tables.rows import figure
from harness.tables.said import tone_of
from harness.values.bug import Bug, HumanState, KeptReproducer
from harness.values.change import METRICS, ChangeKind, Changes
from harness.values.limits import limits_of
from harness.values.matrix import Selector
from harness.values.row import BugFacts, Row
from harness.values.target import Target
from harness.values.toolchain import TRITON, Tool
from harness.values.verdict import VERDICTS, VerdictKind
from harness.workaround.rank.ranking import ranks_of

MARKER = ".triage-site"
"""The file that says that a folder is ours, to be replaced by the next site."""

_MOST_GROUPS = 300
_MOST_PAIRS = 200
_MOST_NIGHTS = 10
_MOST_LAUNCHES = 40
_CAPABILITY = re.compile(r"sm_(\d+)[a-z]?")
_MOST_COUNTED = 30
"""Pages whose live registers are counted where none are stored; nvdisasm takes a second each."""

_LEFT = (HumanState.EXPECTED, HumanState.INVALID, HumanState.WONTFIX)
"""Of bugs that people have decided to leave as they are."""

_SECONDS = 60.0
"""For one nvdisasm that counts live registers."""

_decode = msgspec.json.Decoder(BugFacts).decode
_decode_row = msgspec.json.Decoder(Row).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteReport:
    """What was written; `failures_without_page` are shown in rows only."""

    pages: int
    cells: int
    bytes: int
    largest: int
    cell_pages: int
    failures_without_page: int


def write_site(
    store: Store, out: Path, *, cell_pages: int, only: Sequence[Selector] = EVERY
) -> SiteReport:
    """Write the pages into the folder `out`: all of them, or none.

    Args:
        store: what the pages are of; it is read as a stream, a kernel at a time.
        out: a folder that is not there, is empty, or is an older site, which is replaced.
        cell_pages: the most cells that get a page of their own.
        only: pages are of the cells that one of these means.

    Raises:
        UsageError: `out` is something else.
        StorageError: the results cannot be read, or the pages cannot be written.
    """
    reports: list[SiteReport] = []
    here = Path.cwd()
    folders = (each for each in (here, *here.parents) if (each / ".git").exists())
    repository = next(folders, here).name

    def fill(folder: Path) -> None:
        async def write() -> None:
            async with at_bench(store, CompileOptions(timeout=_SECONDS)) as bench:
                writer = _Writer(
                    store=store,
                    folder=folder,
                    most=cell_pages,
                    only=only,
                    bench=bench,
                    repository=repository,
                )
                reports.append(await writer.write())

        asyncio.run(write())

    write_output_folder(out, fill, marker=MARKER, option="--out")
    return reports[0]


@dataclass(slots=True, kw_only=True)
class _Writer:
    store: Store
    folder: Path
    most: int
    only: Sequence[Selector]
    bench: Workbench
    repository: str
    sizes: list[int] = field(default_factory=list)
    overview: Overview = field(default_factory=Overview)
    cells: CellPages = field(init=False)
    bugs: Sequence[Bug] = ()
    words: dict[str, Any] = field(default_factory=dict)
    disassemblers: dict[str | None, list[Tool]] = field(default_factory=dict)
    counted: Counter[bool] = field(default_factory=Counter)
    pairs: set[str] = field(default_factory=set)
    reproducers: dict[int, KeptReproducer] = field(default_factory=dict)
    started: dict[int, float] = field(default_factory=dict)

    async def write(self) -> SiteReport:
        self.bugs = list_bugs(self.store, only=self.only)
        self.started = {each.id: each.started for each in self.store.all_runs()}
        run, _, changes = last_night(self.store, only=self.only)
        groups = group_changes(changes.changes)[:_MOST_GROUPS] if changes else []
        matrix = matrix_of(self.store, run) if run else None
        expectations = Expectations(matrix.expect if matrix else ())
        left = {bug.record.number for bug in self.bugs if bug.record.state in _LEFT}

        def is_known(facts: BugFacts, bug: int | None) -> bool:
            expected = expectations.of(facts)
            return bug in left or (expected is not None and happened(facts, expected))

        self.overview.is_known = is_known
        examples = {group.changes[0].facts.cell for group in groups}
        examples |= {bug.example.cell for bug in self.bugs}
        self.cells = CellPages(self.most, frozenset(examples))
        for kernel in self.store.kernels():
            await self._kernel(kernel)
        self.reproducers = {
            bug.record.number: kept for bug in self.bugs if (kept := reproducer_of(self.store, bug))
        }
        self._write_nights(run, changes)
        room, grids = squares.MOST_SQUARES, []
        for target, kernels in sorted(self.overview.matrix.items()):
            grids.append(squares.matrix_grid(target, kernels, room))
            room = max(1, room - sum(len(line.squares) for line in grids[-1].lines))
        self._page("matrix.html", "matrix", grids=grids)
        self._write_bugs()
        columns = squares.toolchains_in_order(self.overview.by_toolchain)
        self._page("toolchains.html", "toolchains", toolchains=columns, overview=self.overview)
        # numpy comes with them.
        from harness.hunt.plan import kept_hunts  # noqa: PLC0415
        from harness.site.hunts import hunt_view  # noqa: PLC0415

        self._page("hunts.html", "hunts", hunts=list(map(hunt_view, kept_hunts(self.store))))
        entries, unlisted = list(self.overview.search(self.bugs)), self.overview.unlisted
        self._page("search.html", "search", ("search",), entries=entries, left_out=unlisted)
        self._page("help.html", "help", verdicts=VERDICTS)
        return SiteReport(
            pages=len(self.sizes),
            cells=self.overview.verdicts.total(),
            bytes=sum(self.sizes),
            largest=max(self.sizes),
            cell_pages=self.cells.pages,
            failures_without_page=self.cells.passed_over,
        )

    def _page(
        self,
        file: str,
        template: str,
        scripts: Sequence[str] = (),
        **values: Any,  # noqa: ANN401 - a template's
    ) -> None:
        text = render_template(
            f"site/{template}.html.j2",
            here=file,
            scripts=[_script(name) for name in ("page", *scripts)],
            **_WORDS,
            **{
                "page_of": self.cells.page,
                "repository": self.repository,
                "reproducers": self.reproducers,
                "started": self.started,
                **values,
            },
        )
        # What a name holds that is not text (half of a surrogate pair) is written as a reference.
        data = text.encode("utf-8", "xmlcharrefreplace")
        (self.folder / file).write_bytes(data)
        self.sizes.append(len(data))

    # --- one kernel -----------------------------------------------------------------------------

    async def _kernel(self, kernel: str) -> None:
        numbers, signatures = (
            self.store.database.run(read_numbers),
            self.store.database.run(read_signatures),
        )
        by_target: dict[str, list[tuple[BugFacts, int | None]]] = defaultdict(list)
        with_page: list[tuple[ResultRecord, int | None]] = []
        for record in current_results(self.store, kernel):
            facts = shared(_decode(record.row), self.words)
            if not is_meant(facts, self.only):
                continue
            bug = None
            if facts.signature is not None and facts.verdict.is_failure:
                key = bug_key(facts, signatures.get(facts.signature))
                bug = numbers.get(key) if key else None
                bug = bug if bug in {listed.record.number for listed in self.bugs} else None
            by_target[facts.target].append((facts, bug))
            if self.cells.takes(facts):
                with_page.append((record, bug))
        counted = await in_parallel(self._live(record) for record, _ in with_page)
        for (record, bug), live in zip(with_page, counted, strict=True):
            self._write_cell(record, bug, live)
        for target, cells in by_target.items():
            self._target(kernel, target, cells, list(by_target))

    def _target(
        self,
        kernel: str,
        target: str,
        results: Sequence[tuple[BugFacts, int | None]],
        targets: Sequence[str],
    ) -> None:
        cells = [facts for facts, _ in results]
        self.cells.add(cells)
        self.overview.add(kernel, target, results, self.cells.of)
        files = [
            f"rows-{squares.slug(kernel, target)}-{number + 1}.html"
            for number in range(-(-len(cells) // ROWS))
        ]
        home, names = squares.kernel_page(kernel, target), squares.vary(cells)
        by_launch: dict[str, list[BugFacts]] = defaultdict(list)
        for facts in cells:
            by_launch[facts.launch].append(facts)
        shown = list(by_launch)[:_MOST_LAUNCHES]
        ranks = ranks_of(self.store, kernel, target, shown)
        match = _CAPABILITY.fullmatch(target)
        limits = limits_of(int(match[1])) if match else None
        # The launches share what one page may hold.
        room = squares.MOST_SQUARES // len(shown)
        self._page(
            home,
            "kernel",
            kernel=kernel,
            target=target,
            cells=len(cells),
            others={name: squares.kernel_page(kernel, name) for name in targets if name != target},
            rows=files,
            launches=[
                (
                    squares.config_grid(launch, by_launch[launch], self.cells.of, room),
                    charts_of(by_launch[launch], limits, self._step_pair),
                    ranks.get(launch),
                )
                for launch in shown
            ],
            command=spell_command("history", SelectionOptions(kernel=kernel, sm=[target])),
            hidden=len(by_launch) - len(shown),
        )
        for index, file in enumerate(files):
            part = cells[index * ROWS : (index + 1) * ROWS]
            self._page(
                file,
                "rows",
                kernel=kernel,
                target=target,
                home=home,
                number=index + 1,
                parts=len(files),
                previous=files[index - 1],
                next=files[(index + 1) % len(files)],
                rows=part,
                names=names,
                same=squares.same_words(cells, names),
            )

    async def _live(self, record: ResultRecord) -> Live | None:
        """The live registers of a cell, with what its threads have; None without a cubin.

        They are counted for the first pages, for as many of what spills, and for bugs and changes.
        """
        row = _decode_row(record.row)
        spills = bool(row.spill_stores or row.spill_loads)
        self.counted[spills] += row.cubin_sha256 is not None
        if row.triton not in self.disassemblers:
            self.disassemblers[row.triton] = every_nvdisasm(row.triton)
        is_new = self.counted[spills] <= _MOST_COUNTED or record.cell in self.cells.wanted
        tools = self.disassemblers[row.triton]
        counted = await count_live(self.bench, record, tools, is_new=is_new)
        if counted is None:
            return None
        limits = limits_of(Target.parse(row.target).capability)
        return Live(
            kernels=counted.kernels,
            tool=counted.tool,
            problem=counted.problem,
            registers=row.n_regs,
            limit=limits.registers_of_thread(row.threads or 1) if limits else None,
        )

    def _write_cell(self, record: ResultRecord, bug: int | None, live: Live | None) -> None:
        row = _decode_row(record.row)
        stages = shown_stages(stages_of(row.compiler or (TRITON if row.triton else "")))
        texts = {stage: self._read(record, stage) for stage in (*stages, "cubin")}
        panes = panes_of({stage: data for stage, data in texts.items() if data}, live)
        anchors = anchors_of(panes)
        self._page(
            squares.cell_page(row.cell),
            "cell",
            ("cell",) if panes else (),
            row=row,
            bug=next((each for each in self.bugs if each.record.number == bug), None),
            home=squares.kernel_page(row.kernel, row.target),
            fields=structs.asdict(row),
            panes=panes,
            linked=any(pane.is_linked for pane in panes),
            lines={pane.name: pane_html(pane, anchors) for pane in panes},
            live=live,
            spills=sum(shown_pane.spills for shown_pane in panes),
        )

    def _read(self, record: ResultRecord, stage: str) -> bytes | None:
        try:
            return stage_bytes(self.store, record, stage)
        except UnusableArtifactError:
            return None

    # --- two cells side by side -----------------------------------------------------------------

    def _step_pair(self, before: BugFacts, after: BugFacts) -> str:
        """The page of the worst step of a chart; these leave room for bugs and changes."""
        if len(self.pairs) >= _MOST_PAIRS // 2:
            return ""
        return self._pair_of_cells("Where a number became worse", before.cell, after.cell)

    def _pair_of_cells(self, why: str, left: str, right: str) -> str:
        records = self.store.latest_of([left, right])
        return self._pair(why, records[left], records[right])

    def _pair(self, why: str, *records: ResultRecord) -> str:
        """Write the page that compares two results, and return its name; "" where there is no room.

        Its links lead to pages of cells that are known by now.
        """
        left, right = (_decode(record.row) for record in records)
        file = f"pair-{squares.slug(left.cell, right.cell)}.html"
        if file in self.pairs or len(self.pairs) >= _MOST_PAIRS:
            return file if file in self.pairs else ""
        self.pairs.add(file)
        stages = [
            {stage: data for stage in STAGES if (data := self._read(record, stage))}
            for record in records
        ]
        self._page(
            file,
            "pair",
            why=why,
            left=left,
            right=right,
            home=squares.kernel_page(left.kernel, left.target),
            facts=pair_facts(left, right),
            stages=stage_diffs(*stages),
        )
        return file

    # --- all kernels ----------------------------------------------------------------------------

    def _write_nights(self, run: RunRecord | None, changes: Changes | None) -> None:
        """The first page, and for each of the last nights, newest first, what changed in it."""
        runs: list[RunRecord] = []
        while run and len(runs) < MOST_READ:
            runs.append(run)
            run = previous_run(self.store, run.id)
        tallies = [(each.id, self._tally(each.id)) for each in runs]
        first_seen = {bug.record.number: bug.first_seen for bug in self.bugs}
        sentence, tone = self.overview.state(tallies, first_seen)
        nights, axis = [], []
        for at, night in enumerate(runs[:_MOST_NIGHTS]):
            older = runs[at + 1] if at + 1 < len(runs) else None
            if at and older:
                matrix = matrix_of(self.store, night)
                changes = compare_runs(self.store, older.id, night.id, matrix, only=self.only)
            changes = changes if older else None
            counted = night_of(night.id, night.started, night.finished or night.started, changes)
            groups = group_changes(changes.changes) if changes else []
            total = len(groups)
            latest = night if not at else None
            looked = [(group, *self._look(group, latest)) for group in groups[:_MOST_GROUPS]]
            said: dict[str, Any] = {
                "night": counted,
                "older": older and (older.id, day_of(older.started), at + 1 < _MOST_NIGHTS),
                "command": night.command,
                "changes": changes,
                "groups": looked,
                "left_out": total - len(looked),
                # Behind the headline and three lines for each group come the remarks.
                "remarks": changes_said(changes)[1 + 3 * total :] if changes else [],
            }
            nights.append(counted)
            bad = [change for change in changes.changes if change.kind.is_bad] if changes else []
            worse = {(change.facts.kernel, change.facts.target) for change in bad}
            axis.append((night.id, day_of(night.started), tallies[at][1], worse))
            self._page(f"run-{night.id}.html", "run", steps_of=steps_of, most=MOST_STEPS, **said)
            if not at:
                last = said
        self._page(
            "index.html",
            "index",
            state=(sentence, tone.value),
            bugs=[bug for bug in self.bugs if bug.cells_now and bug.record.state not in _LEFT],
            n_bugs=len(self.bugs),
            axis=squares.nights_grid(axis) if axis else None,
            nights=nights,
            cells=self.overview.verdicts.total(),
            verdicts=[
                (squares.verdict_square(kind), self.overview.verdicts[kind])
                for kind in VerdictKind
                if self.overview.verdicts[kind]
            ],
            **(last if runs else {}),
        )

    def _tally(self, run: int) -> squares.Tally:
        tally: dict[tuple[str, str], Counter[VerdictKind]] = defaultdict(Counter)
        if self.only == EVERY:
            for (kernel, target, verdict), count in self.store.tally(run).items():
                tally[kernel, target][VerdictKind(verdict)] += count
        else:
            for facts in (_decode(stored.row) for stored in self.store.run_bodies(run)):
                if is_meant(facts, self.only):
                    tally[facts.kernel, facts.target][facts.verdict] += 1
        return tally

    def _look(self, group: ChangeGroup, run: RunRecord | None) -> tuple[str, str, str]:
        """Tone, the page of an example, and the page that compares it with what it was.

        Only with the last `run` are cells compared: what they were in another is not their page.
        """
        change = group.changes[0]
        kind = group.kind
        tone = "bad" if kind.is_bad else "faint" if kind.is_gap else "relief"
        if kind is ChangeKind.NEW and change.newer:
            tone = tone_of(change.newer.verdict).value.replace("good", "relief")
        compare = ""
        if run and change.older and change.newer and self.cells.of(change.newer.cell):
            cells = (change.older.cell, change.newer.cell)
            before = list(self.store.last_results(cells[:1], before=run.started, besides=run.id))
            now = self.store.latest_of(cells[1:])
            if before:
                compare = self._pair("Before and after", before[0], now[cells[1]])
        return tone, self.cells.of(change.facts.cell), compare

    def _write_bugs(self) -> None:
        self._page("bugs.html", "bugs", bugs=self.bugs)
        for bug in self.bugs:
            bug_cells = self.overview.bugs[bug.record.number]
            sides = neighbours(bug_cells.beside)
            reproducer = self.reproducers.get(bug.record.number)
            in_a_row = itertools.groupby(reproducer.ablation if reproducer else ())
            self._page(
                f"bug-{bug.record.number}.html",
                "bug",
                bug=bug,
                blame=blame_view(bug_cells.beside, current_results(self.store, bug.example.kernel)),
                compare=self._pair_of_cells("A cell that works and one that has the bug", *sides)
                if sides
                else "",
                reproducer=reproducer,
                ablation=[(*piece, len(list(same))) for piece, same in in_a_row],
                workarounds=workarounds_of(self.store, bug),
                href_of=self.cells.of,
                mark_said=mark_said,
                said=bug_said(bug),
                cells=bug_cells.shown,
                left_out=bug_cells.count - len(bug_cells.shown),
            )


_WORDS = {
    "age_of": age_of,
    "bug_title": bug_title,
    "command_of": command_of,
    "day_of": day_of,
    "links_of": upstream_links,
    "anchor_of": anchor_of,
    "metrics": METRICS,
    "version": __version__,
    "mark_of": squares.verdict_square,
    "parts_of": squares.parts_of,
    "figure": figure,
    "toolchain_of": lambda facts: squares.toolchain_of_cell(facts).words,
    "tone_of": lambda verdict: tone_of(verdict).value,
}
"""What templates ask of a cell, or of a part of its row."""


@cache
def _script(name: str) -> tuple[str, str]:
    script = render_template(f"site/{name}.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return script, f"'sha256-{digest}'"
