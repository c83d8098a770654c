"""A reduction stays the same bug: what other versions do with the original, they go on doing."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest

from harness.bisect.contrast import other_targets
from harness.io.processes.hub import ResourceLimits
from harness.minimize.reduction.fingerprint import Answer, Fingerprint, Reaction, guards_of
from harness.minimize.reduction.interest import (
    ToolVersions,
    VersionReactions,
    ask_installed,
    held_elsewhere,
    hold_in_place,
    walk_the_index,
)
from harness.minimize.reduction.minimization import Ending
from harness.minimize.reduction.reducer import FoundPass, Reducer, TextFormat
from harness.minimize.reduction.work import Level, LevelReduction, MinimizedFolder, Watch
from harness.values.errors import InfrastructureError
from harness.values.outcome import ProcessEnd
from harness.values.target import Target
from harness.values.toolchain import Compiler
from harness.values.verdict import Signature, VerdictKind

ORIGINAL = "shapes dot loop mask store"
LIMITS = ResourceLimits(timeout=10, memory=1 << 30)
Rules = Mapping[str, Callable[[str], str]]


def compiler(version: str) -> Compiler:
    return Compiler(version=version, origin="test")


class Fake:
    """Versions that do as a rule says: `ok`, `bug`, or the words of another refusal."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def is_possible(self, text: str) -> bool:
        return bool(text)

    async def look(self, text: str, tool: Compiler) -> Reaction:
        return await self.react(text, tool)

    async def react(
        self, text: str, tool: Compiler, limits: ResourceLimits | None = None
    ) -> Reaction:
        said = self.rules[tool.version](text)
        if said == "broken":
            raise InfrastructureError("cannot be started")
        is_ok = said == "ok"
        return Reaction(
            verdict=VerdictKind.OK if is_ok else VerdictKind.PASS_FAILURE,
            reason=said,
            is_accepted=is_ok,
            end=ProcessEnd(exit_code=0),
            signature=None if is_ok else signature(said),
        )


def signature(said: str) -> Signature:
    return Signature(
        stage="ttgir", kind="pass_failure", failing_pass=None, code=None, template=said
    )


def without_words(document: str, chosen: Collection[int]) -> str:
    return " ".join(w for n, w in enumerate(document.split()) if n not in chosen)


# Takes words away, one or several at a time.
WORDS = FoundPass("words", lambda document: range(len(document.split())), without_words)


async def reduce_words(reducer: Reducer[str]) -> None:
    await reducer.sweep([WORDS], smallest=2)
    while await reducer.sweep([WORDS]):
        pass


TEXTS = TextFormat(
    read=str, text_of=str, size=len, lines=lambda text: len(text.split()), run=reduce_words
)


def run(tmp_path: Path, rules: Rules, *, bad: str = "2.0") -> LevelReduction[Compiler]:
    """Reduce the original with these versions installed."""

    async def inner() -> LevelReduction[Compiler]:
        oracle, tools = Fake(rules), {version: compiler(version) for version in rules}
        fingerprint = Fingerprint(bad=bad, signature=signature("bug").key)
        held_by = ToolVersions(
            name="Triton",
            tool=tools[bad],
            oracle=oracle,
            installed=list(tools.values()),
            available=list,
            install=compiler,
            steps=0,
        )
        tried = await ask_installed(held_by, ORIGINAL, LIMITS)
        own = Target.parse("sm_80")
        folder = MinimizedFolder(path=tmp_path / "o", suffix=".txt").open(ORIGINAL, resume=False)
        held = LevelReduction(
            level=Level(
                name="words",
                suffix=".txt",
                original=ORIGINAL,
                size_of=TEXTS.size_of,
                reduce=TEXTS.reduce_text,
            ),
            folder=folder,
            watch=Watch(),
            best=ORIGINAL,
            started=0.0,
            interest=await hold_in_place(held_by, tried, fingerprint, own, keeps_refusals=True),
        )
        await held.run()
        return held

    return asyncio.run(inner())


def fails_with(*words: str) -> Callable[[str], str]:
    return lambda text: "bug" if set(words) <= set(text.split()) else "ok"


def valid(text: str) -> str:
    """A version without the bug; it refuses a dot of impossible shapes."""
    return "ok" if "shapes" in text or "dot" not in text else "shapes do not fit"


def test_input_that_working_versions_refuse_is_no_result(tmp_path: Path) -> None:
    """The failing version fails before it would look at the shapes."""
    held = run(tmp_path, {"1.0": valid, "2.0": fails_with("dot"), "3.0": valid})
    assert held.best == "shapes dot"
    assert held.interest.fingerprint.accepting == ("1.0", "3.0")
    assert [(line.original, line.minimized) for line in held.versions] == [
        (Answer.ACCEPTS, Answer.ACCEPTS),
        (Answer.SAME, Answer.SAME),
        (Answer.ACCEPTS, Answer.ACCEPTS),
    ]


def test_without_a_neighbour_that_accepts_nothing_guards(tmp_path: Path) -> None:
    held = run(tmp_path, {"2.0": fails_with("dot"), "3.0": fails_with("dot")})
    assert held.best == "dot"
    assert held.interest.fingerprint.accepting == ()


def test_a_version_that_refuses_in_another_way_goes_on_doing_so(tmp_path: Path) -> None:
    """It has no `mask` yet; without one it would work, and the history would be another."""
    old = {"1.0": lambda text: "no mask" if "mask" in text else "ok"}
    held = run(tmp_path, {**old, "2.0": fails_with("dot"), "3.0": valid})
    assert set(held.best.split()) == {"shapes", "dot", "mask"}
    assert held.interest.fingerprint.refusing == ("1.0",)


@pytest.mark.parametrize("said", ["bug", "ok"])
def test_a_version_farther_away_that_strays_is_held_from_there_on(
    tmp_path: Path, said: str
) -> None:
    """It was not asked: at the end it differs, so that the reduction goes back and on with it."""
    other = "ok" if said == "bug" else "bug"
    far = {"9.0": lambda text: said if "loop" in text else other}
    held = run(tmp_path, {"1.0": valid, "2.0": fails_with("dot"), "3.0": valid, **far})
    assert set(held.best.split()) == {"shapes", "dot", "loop"}
    assert all(line.is_same for line in held.versions)
    [note] = held.notes
    assert note == "from here on also checked with Triton 9.0: it had differed from the original"
    assert held.ending is Ending.FINISHED


def test_a_version_that_answers_now_so_now_so_ends_it_too(tmp_path: Path) -> None:
    answers = itertools.cycle(["ok", "ok", "other"])
    rules = {"2.0": fails_with("dot"), "3.0": valid, "9.0": lambda _: next(answers)}
    held = run(tmp_path, rules)
    assert held.ending is Ending.FINISHED
    assert "dot" in held.best


def test_a_version_that_this_machine_cannot_run_is_left_out(tmp_path: Path) -> None:
    held = run(tmp_path, {"1.0": lambda _: "broken", "2.0": fails_with("dot"), "3.0": valid})
    assert [line.version for line in held.versions] == ["2.0", "3.0"]
    assert held.interest.versions.notes == ["Triton 1.0 was not asked: cannot be started"]


def test_the_index_is_walked_where_nothing_installed_accepts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Outwards, until one accepts; no farther than the steps that are allowed."""
    monkeypatch.delenv("TRIAGE_OFFLINE", raising=False)
    rules: Rules = {str(n) + ".0": fails_with("dot") for n in range(1, 9)} | {"3.0": valid}
    fingerprint = Fingerprint(bad="5.0", signature=signature("bug").key)
    heard: list[str] = []

    async def inner() -> VersionReactions[Compiler]:
        from packaging.version import Version as Number

        oracle, bad = Fake(rules), compiler("5.0")
        held_by = ToolVersions(
            name="Triton",
            tool=bad,
            oracle=oracle,
            installed=[bad],
            available=lambda: [Number(version) for version in sorted(rules)],
            install=compiler,
            steps=2,
        )
        found = await ask_installed(held_by, ORIGINAL, LIMITS)
        await walk_the_index(held_by, found, fingerprint, LIMITS, heard.append)
        return found

    found = asyncio.run(inner())
    assert heard == [f"trying Triton {version}" for version in ("4.0", "3.0", "6.0", "7.0")]
    assert guards_of(found.answers(fingerprint), "5.0", keeps_refusals=True) == ("3.0",)


def ok(_text: str) -> str:
    return "ok"


def bug(_text: str) -> str:
    return "bug"


def held_for(*accepts: str) -> tuple[str | None, list[str], bool | None]:
    """The target that holds what no version lifts, the notes, and whether it takes half of it."""
    oracles = {
        name: Fake({"2.0": ok if name in accepts else bug})
        for name in ("sm_80", "sm_90a", "sm_100a")
    }

    async def for_target(target: Target) -> Fake | None:
        return oracles.get(str(target))

    async def inner() -> tuple[str | None, list[str], bool | None]:
        own = Target.parse("sm_120a")
        held_by = ToolVersions(
            name="Triton",
            tool=compiler("2.0"),
            oracle=Fake({}),
            installed=[],
            available=list,
            install=compiler,
            steps=0,
            targets=other_targets(own),
            for_target=for_target,
        )
        tried = VersionReactions[Compiler](name="Triton", text=ORIGINAL)
        fingerprint = Fingerprint(bad="2.0", signature=signature("bug").key)
        found, is_accepted = await held_elsewhere(own, held_by, tried, fingerprint)
        taken = await is_accepted("shapes dot") if is_accepted else None
        return found.held_for, tried.notes, taken

    return asyncio.run(inner())


def test_what_no_version_accepts_is_held_by_the_nearest_target_that_does() -> None:
    assert held_for("sm_80", "sm_90a") == ("sm_90a", [], True)
    target, notes, taken = held_for()
    assert (target, taken) == (None, None)
    [note] = notes
    assert note.startswith("no Triton that was tried accepts the original, and 2.0 for no")
