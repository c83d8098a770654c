"""What the tasks of one run have in common in one worker: PTX of two captures is assembled once.

Each task keeps its results in a store of its own, which becomes its answer. What another task of
the same run has made beside it, or before it, is copied from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from harness.store.files.artifacts import ArtifactStore, DamagedArtifactError
from harness.store.sqlite.evidence_rows import Evidence
from harness.store.store import Store

if TYPE_CHECKING:
    import asyncio

    from harness.io.processes.hub import Hub


# Captures that have PTX in common are near each other in a night, and disks are small.
TASKS_KEPT = 32


@dataclass(slots=True, kw_only=True)
class CommonEvidence:
    """Of the tasks of the run with this uid; `made` and `making` are those of all their benches."""

    run: str
    hub: Hub
    made: set[str] = field(default_factory=set)
    making: MutableMapping[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _known: dict[tuple[str, str], tuple[Evidence, ArtifactStore]] = field(default_factory=dict)
    _done: deque[Path] = field(default_factory=deque)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder for the store of one task: that of an older one goes for it."""
        home = self.hub.new_folder("results")
        try:
            yield home
        finally:
            self._done.append(home)
            if len(self._done) > TASKS_KEPT:
                self._forget(self._done.popleft())

    def store(self, home: Path) -> Store:
        """The store of a task in its folder."""
        return _TaskStore(home, self)

    def clear(self) -> None:
        """Forget all that is done."""
        while self._done:
            self._forget(self._done.popleft())

    def _forget(self, home: Path) -> None:
        held = home / "artifacts"
        self._known = {key: each for key, each in self._known.items() if each[1].root != held}
        self.hub.drop_folder(home)

    def note(self, kind: str, key: str, evidence: Evidence, where: ArtifactStore) -> None:
        """This was made, and its artifacts lie there."""
        self._known[kind, key] = evidence, where

    def copied(self, kind: str, key: str, to: ArtifactStore) -> Evidence | None:
        """What another task has made, its artifacts copied; None where that is not here."""
        if (kind, key) not in self._known:
            return None
        evidence, where = self._known[kind, key]
        for sha256 in set(evidence.artifacts.values()):
            try:
                to.put_packed(sha256, where.packed(sha256) or b"")
            except DamagedArtifactError:
                return None
        return evidence


class _TaskStore(Store):
    """That of one task, which finds what the others have made."""

    def __init__(self, home: Path, common: CommonEvidence) -> None:
        super().__init__(home)
        self._common = common

    def get_evidence(self, kind: str, key: str) -> Evidence | None:
        if found := super().get_evidence(kind, key):
            return found
        evidence = self._common.copied(kind, key, self.artifacts)
        if evidence:
            super().put_evidence(kind, key, evidence.body, evidence.artifacts)
        return evidence

    def put_evidence(self, kind: str, key: str, body: bytes, artifacts: Mapping[str, str]) -> None:
        super().put_evidence(kind, key, body, artifacts)
        self._common.note(kind, key, Evidence(body, dict(artifacts)), self.artifacts)
