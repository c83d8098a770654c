"""What a command is about to look at, compiled by other machines: only evidence comes back.

The same evidence is made here where it is missing, and the rows are always made here: what is found
out does not depend on who compiled.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.cells.places import places_of
from harness.io.files.own_code import program_sha256
from harness.matrix.nights.at_worker import work_on_capture
from harness.matrix.nights.by_name import named
from harness.matrix.nights.tasks import CaptureAnswer, CaptureTask
from harness.store.exchange.parcels import open_parcel
from harness.values.errors import UsageError
from harness.values.matrix import Matrix, VersionChoice

if TYPE_CHECKING:
    from harness.cells.places import CompileOptions
    from harness.frontends.base import Selection
    from harness.frontends.bench.bench import Workbench
    from harness.io.machines.seam import Machines


_NO_RULES = Matrix(
    triton=VersionChoice(specs=()), ptxas=VersionChoice(specs=()), targets=(), kernels=()
)


@dataclass(slots=True, kw_only=True)
class Ahead:
    """As `harness.cells.elsewhere.Elsewhere`."""

    machines: Machines
    how: CompileOptions
    _code: str = field(default_factory=program_sha256)
    _name: str = field(default_factory=lambda: secrets.token_hex(16))
    _ranks: Iterator[int] = field(default_factory=itertools.count)

    @property
    def at_once(self) -> int:
        """As many as there are workers."""
        return self.machines.at_once

    async def make(self, bench: Workbench, selection: Selection) -> Sequence[str]:
        """See `Elsewhere`; with `--no-cache` what was made for this command counts as its own."""
        places = places_of(selection)
        first = places[0]
        task = CaptureTask(
            run=self._name,
            command=self.how.command,
            places=tuple(named(place, is_extra=False) for place in places),
            matrix=_NO_RULES,
            only=(),
            use_cache=self.how.use_cache,
            timeout=self.how.timeout,
            launch_timeout=self.how.timeout,
            memory=self.how.limits.memory if self.machines.are_here else self.how.memory,
            launch_memory=self.how.memory,
            until=None,
            past=(),
            settled=(),
        )
        assemblers = ",".join(each.version for each in selection.ptxas if each)
        name = f"{selection.repro.name}/{first.launch.label}@{first.target}/{first.compiler.label}"
        answer = CaptureAnswer.decode(
            await self.machines.run(
                work_on_capture,
                task.encode(self._code),
                name=f"{name}/{assemblers}" if assemblers else name,
                rank=next(self._ranks),
            )
        )
        bench.cpu_seconds += answer.cpu_seconds
        said = [f"{answer.host}: {failure}" for failure in answer.failures]
        if answer.parcel:
            try:
                with open_parcel(answer.parcel) as source:
                    bench.made |= bench.store.take_evidence_of(source)
            except UsageError as error:
                said.append(f"what {answer.host} answered is refused: {error}")
        return said
