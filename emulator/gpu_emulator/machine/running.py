"""Runs the frames of a batch: which block, for which threads, until all have left.

Of the threads of a frame that parted, those in the block of the smallest number run (see
`ptx.program.decoding`), but for what `Batch.lanes` says of cubins. Threads that wait are skipped.
If none can go on, asynchronous operations under way are completed; if that helps none, the batch
hangs. Where all is as it was some turns before, threads go round, and do so without end unless
another batch writes what they read. A budget that is used up proves nothing of the kind, but where
no way leads out of the code that a thread is in.

Why nothing goes on: who waits for what, in words.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from gpu_emulator.state.batch import Batch
from gpu_emulator.state.frame import Frame, Parting, Trouble
from gpu_emulator.state.happens_before import Unordered
from gpu_emulator.steps import FIRST_SLOT, MASK, WARP, Array, Section
from gpu_emulator.values import NotExecutable, Place

_MOST = 4


def hang(sections: Sequence[Section], batch: Batch) -> Trouble:
    """That of a batch in which no thread can go on; the place is that of the first words."""
    alike: dict[tuple[str, Place | None], dict[int, set[int]]] = {}
    parted: list[tuple[str, Place | None]] = []
    for frame in batch.frames:
        waiting = np.zeros(frame.shape, np.bool_)
        for hold in frame.holds:
            waiting |= hold.mask
            warps = alike.setdefault((hold.why(), hold.place), {})
            for row, column in np.argwhere(hold.mask).tolist():
                warps.setdefault(row, set()).add((column + frame.first) // WARP)
        parted += _parted(sections, batch, frame, ~waiting & frame.alive())
    reasons = [(_reason(batch, warps, *why), why[1]) for why, warps in alike.items()]
    reasons += parted
    words = list(dict.fromkeys(text for text, _ in reasons))
    more = [f"and {len(words) - _MOST} more"] if len(words) > _MOST else []
    place = next((place for _, place in reasons if place), None)
    return Trouble("; ".join([*words[:_MOST], *more]), "hang", place)


def _reason(batch: Batch, warps: dict[int, set[int]], why: str, place: Place | None) -> str:
    """The first CTA with such threads speaks for all."""
    row = min(warps)
    noun, verb = ("warp", "waits") if len(warps[row]) == 1 else ("warps", "wait")
    who = f"{noun} {_ranges(sorted(warps[row]))} of {_cta(batch, row)}"
    return f"{who} {verb} for {why}{_at(place)}"


def _parted(
    sections: Sequence[Section], batch: Batch, frame: Frame, mask: Array
) -> Iterator[tuple[str, Place | None]]:
    """Lanes that wait at a `.sync` instruction for lanes that never come to it."""
    for row, warp in np.argwhere(frame.by_warp(mask).any(axis=2)).tolist():
        lanes = np.broadcast_to(np.asarray(frame.at), frame.shape)[row, warp * WARP :][:WARP]
        own = mask[row, warp * WARP :][:WARP]
        words, first = [], None
        for block in np.unique(lanes[own]).tolist():
            place = next(iter(sections[block].places), None)
            first = first or place
            words.append(f"{_ranges(np.nonzero(own & (lanes == block))[0].tolist())}{_at(place)}")
        number = warp + frame.first // WARP
        lanes_of = f"{' and '.join(words)} of warp {number} of {_cta(batch, row)}"
        if len(words) > 1:
            yield (
                f"lanes {lanes_of} wait for each other: a .sync names lanes that are elsewhere",
                first,
            )
        else:
            yield f"lanes {lanes_of} wait for lanes that are in its mask and never come", first
        return


def _cta(batch: Batch, row: int) -> str:
    x, y, z = batch.coordinates[row].tolist()
    return f"CTA ({x}, {y}, {z})"


def _ranges(numbers: Sequence[int]) -> str:
    """`0-15, 20`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _at(place: Place | None) -> str:
    return f" at {place.words} ({place.instruction.split()[0]})" if place else ""


# So many blocks of one frame before another one gets its turn; so many choices of the smallest
# block before a greater one gets its turn: who spins must not keep out whom it waits for.
_TURN = 4096
_PATIENCE, _PATIENCE_OF_SPINNERS = 64, 4
_BIT = np.uint32(1) << np.arange(WARP, dtype=np.uint32)


class OutOfBudget(Exception):  # noqa: N818 - an answer, not an error: it becomes `not_run`
    """The instructions that a batch may run are used up, after so many `turns` of a loop.

    `place` is where the outermost loop that threads are in goes back. `is_endless`: from where some
    threads are, no way leads to the end.
    """

    def __init__(self, turns: int, place: Place | None, *, is_endless: bool) -> None:
        super().__init__()
        self.turns, self.place, self.is_endless = turns, place, is_endless


def run_batch(
    sections: Sequence[Section], batch: Batch, limit: int, heard: Callable[[int], None]
) -> Trouble | None:
    """Run all threads to their end; Trouble with the first fault. `limit`: thread-instructions.

    `heard` gets their number, now and then. What is given back, and not raised, is of threads that
    repeat themselves unless another batch writes what they read: then it may be run again.
    OutOfBudget where the limit is reached.
    """
    runners = [_Runner(sections, frame, limit) for frame in batch.frames]
    schedule, repeats, let_go = batch.schedule, _Repeats(), _Repeats()
    may_repeat = "random" not in (schedule.warps, schedule.completion)

    def state() -> Iterator[Array]:
        for runner in runners:
            yield from runner.state()
            yield runner.whose_turn()
        yield batch.barriers.arrived
        yield batch.barriers.cluster_arrived

    def rest() -> bytes:
        memories = [memory.data for memory in batch.memories.values()]
        return digest(*memories, *batch.tensor_words)

    rounds = 0
    while True:
        progress = False
        heard(batch.executed)
        ordered = runners[::-1] if schedule.warps == "last" else runners
        if schedule.warps == "random":
            ordered = [runners[place] for place in batch.random.permutation(len(runners))]
        for runner in ordered:
            if runner.turn():
                progress = True
                # Who spins must not keep out the warp that it waits for.
                if schedule.warps in ("first", "last") and not runner.is_spent:
                    break
        if progress:
            # Whether all is as it was before: registers, memory, and who is where.
            rounds += 1
            is_due = rounds % _LOOK == 0 or any(runner.is_spent for runner in runners)
            if not (is_due and may_repeat and repeats.look(state(), rest)):
                continue
        if all(runner.frame.is_done for runner in runners):
            batch.asynchrony.finish()
            return None
        released = batch.asynchrony.complete_some()
        released = batch.barriers.release() or released
        released = batch.barriers.complete_cluster() or released
        if released:
            let_go = _Repeats()
        elif batch.is_tested and not let_go.look(state(), rest):
            # Who only tests a barrier goes on, until that has changed nothing.
            batch.patience += 1
        elif progress:
            return _without_end(sections, set().union(*(runner.ran for runner in runners)))
        else:
            raise hang(sections, batch)


def _without_end(sections: Sequence[Section], blocks: set[int]) -> Trouble:
    """What the blocks do, and what they read of global memory, or else the branch back."""
    ran = [sections[number] for number in sorted(blocks)]
    places = [place for section in ran for place in section.places]
    polls = next((place for place in places if _POLLS.match(place.instruction)), None)
    if polls:
        return Trouble("wait without end: nothing changes what they read", "hang", polls)
    back = next((section.branch for section in reversed(ran) if section.branch), None)
    return Trouble("loop without end", "hang", back or next(iter(places), None))


# A load of global memory or an atomic operation, of PTX and of SASS.
_POLLS = re.compile(r"(?:@\S+ +)?(?:ld(?!\.param|\.shared|\.local)|atom|LDG?\b|ATOMG?\b)")
# So many blocks of a frame, or rounds of a batch, between two looks at whether all is as it was.
_LOOK = 32


class _Repeats:
    """Whether something is as it was at the first, second, fourth, eighth ... look."""

    def __init__(self) -> None:
        self._looks = 0
        self._before: list[Array] = []
        self._rest = b""

    def look(self, parts: Iterable[Array], rest: Callable[[], bytes] = bytes) -> bool:
        """Whether all parts and the `rest` are."""
        self._looks += 1
        state = list(parts)
        if len(state) == len(self._before) and all(map(np.array_equal, state, self._before)):
            return self._rest == rest()
        if self._looks & (self._looks - 1) == 0:
            self._before, self._rest = list(map(np.array, state)), rest()
        return False


def digest(*arrays: Array) -> bytes:
    """Equal where all bytes are."""
    found = hashlib.blake2b()
    for array in arrays:
        found.update(np.ascontiguousarray(array).view(np.uint8).data)
    return found.digest()


class _Runner:
    def __init__(self, sections: Sequence[Section], frame: Frame, limit: int) -> None:
        self.frame = frame
        self._sections = sections
        self._limit = limit
        self._picks = 0
        self._turns: Counter[int] = Counter()
        self._ran: Array | None = None
        self._patience = _PATIENCE
        self._repeats = _Repeats()
        self.is_spent = False
        """Whether the last turn was long, or threads went round, and so it ended."""
        self.ran: set[int] = set()
        """The last blocks that ran."""

    def state(self) -> Iterator[Array]:
        """Who is where and who waits, and all registers."""
        frame = self.frame
        yield np.asarray(frame.at)
        yield np.asarray(len(frame.holds))
        yield from (hold.mask for hold in frame.holds)
        yield from map(np.asarray, frame.registers[FIRST_SLOT:])

    def whose_turn(self) -> Array:
        """Where it stands in the round of the blocks in which threads are."""
        blocks = len(np.unique(self.frame.at))
        return np.asarray(self._picks % (self._patience * blocks))

    def turn(self) -> bool:
        frame = self.frame
        progress = self.is_spent = False
        self.ran.clear()
        for number in range(_TURN):
            if number % _LOOK == _LOOK - 1 and self._repeats.look(self.state()):
                self._patience = _PATIENCE_OF_SPINNERS
                break
            waiting = frame.waiting() if frame.holds else None
            if isinstance(frame.at, int):
                if frame.at == frame.end:
                    return progress
                if waiting is None and not self._sections[frame.at].apart:
                    self._run(self._sections[frame.at], None, self.frame.ctas * frame.lanes)
                    progress = True
                    continue
            chosen = self._choose(waiting)
            if chosen is None:
                return progress
            block, mask = chosen
            self._run(self._sections[block], mask, int(frame.full(mask).sum()))
            progress = True
        self.is_spent = True
        return progress

    def _choose(self, waiting: Array | None) -> tuple[int, Array] | None:
        """The block to run and its threads; None if no thread can go on."""
        frame = self.frame
        at = np.asarray(frame.at)
        free = at if waiting is None else np.where(waiting, frame.end, at)
        self._picks += 1
        is_turned = self._picks % self._patience == 0
        chosen = None
        if self._ran is not None and not is_turned:
            chosen = self._first_of(np.where(self._ran, free, frame.end), free)
        chosen = chosen or self._first_of(free, free, is_turned=is_turned)
        if frame.batch.lanes == "first":
            self._ran = None if is_turned or chosen is None else chosen[1]
        return chosen

    def _first_of(
        self, some: Array, free: Array, *, is_turned: bool = False
    ) -> tuple[int, Array] | None:
        """Of some of the free threads, those whose block is first; others may be met there."""
        frame = self.frame
        least = int(some.min())
        if least == frame.end:
            return None
        blocks = [least]
        is_backwards = frame.batch.lanes == "last"
        if is_turned or is_backwards or self._sections[least].meeting is not None:
            blocks = [block for block in np.unique(some).tolist() if block != frame.end]
            if is_turned:
                # Each in turn: between those who spin may be the one that they wait for.
                turn = self._picks // self._patience % len(blocks)
                blocks = blocks[turn:] + blocks[:turn]
            elif is_backwards:
                blocks.reverse()
        for block in blocks:
            meeting = self._sections[block].meeting
            mask = (some if meeting is None else free) == block
            if mask.ndim < 2:
                mask = mask.reshape((1, 1))
            if meeting is not None:
                # Those whose whole member mask is here.
                here, alive = frame.by_warp(mask), frame.by_warp(frame.alive())
                members = frame.by_warp(meeting(frame.registers))
                missing = ((alive & ~here) * _BIT).sum(axis=2, dtype=np.uint32)[..., None]
                met = here & ((members & missing) == 0)
                if self._sections[block].apart:
                    first = np.take_along_axis(members, met.argmax(axis=2)[..., None], axis=2)
                    met &= members == first
                mask = met.reshape(frame.shape)
            if mask.any():
                return block, mask
        return None

    def _run(self, section: Section, mask: Array | None, threads: int) -> None:
        frame = self.frame
        registers = frame.registers
        self.ran.add(section.number)
        self._turns[section.number] += 1
        registers[MASK] = mask
        if frame.parted:
            # Those that parted before meet in this block, or have not met yet.
            here = frame.full(frame.alive() if mask is None else mask)
            for parting in list(frame.parted):
                if parting.meets_at == section.number:
                    parting.mask = parting.mask & ~here
                parting.mask = parting.mask & frame.alive()
                if not parting.mask.any():
                    frame.parted.remove(parting)
                elif section.aligned and frame.batch.watch and (parting.mask & here).any():
                    frame.batch.watch.unmet(parting.place, section.aligned)
        try:
            recording = frame.batch.recording
            runs = section.whole if mask is None else section.part
            if recording is None:
                for run, frame.place in zip(runs, section.places, strict=True):
                    run(registers)
            else:
                steps = zip(runs, section.places, section.reads, section.writes, strict=True)
                for run, frame.place, reads, writes in steps:
                    recording.before(frame, reads)
                    run(registers)
                    recording.after(frame, writes)
        except Trouble as trouble:
            registers[MASK] = None
            trouble.place = trouble.place or frame.place
            raise
        except (NotExecutable, Unordered, MemoryError):
            raise
        except Exception as error:
            # What the engines do not know, or what is wrong with this emulator: no verdict.
            at = frame.place
            raise NotExecutable(
                f"{at.words}: {at.instruction} cannot be executed: {error!r}"
            ) from error
        self._leave(section, mask)
        registers[MASK] = None
        frame.batch.executed += section.count * threads
        if frame.batch.executed > self._limit:
            self._end_early(section)

    def _end_early(self, section: Section) -> None:
        """The budget is used up behind a block."""
        blocks = set(np.unique(self.frame.at).tolist()) - {self.frame.end}
        around = [
            own
            for own in self._sections
            if own.targets and min(own.targets) <= section.number <= own.number
        ]
        back = max(around, key=lambda own: own.number - min(own.targets), default=section)
        place = back.branch or next(iter(section.places), None)
        is_endless = any(self.frame.end not in self._reached(block) for block in blocks)
        raise OutOfBudget(self._turns[back.number] if around else 0, place, is_endless=is_endless)

    def _reached(self, block: int) -> list[int]:
        """The blocks to which threads may come from one, and the end if they may."""
        end, reached = self.frame.end, [block]
        for number in reached:
            if number != end:
                own = self._sections[number]
                following = end if own.following is None else own.following
                taken = {end} if own.leaves else set(own.targets) or {following}
                onwards = taken if own.predicate is None else {*taken, following}
                reached += onwards - set(reached)
        return reached

    def _part(self, section: Section, mask: Array | None) -> None:
        """Remember threads of a warp that take different ways, until they meet for certain."""
        frame = self.frame
        at = np.broadcast_to(np.asarray(frame.at), frame.shape)
        here = frame.alive() if mask is None else frame.full(mask) & frame.alive()
        least = frame.by_warp(np.where(here, at, frame.end)).min(axis=2, keepdims=True)
        most = frame.by_warp(np.where(here, at, -1)).max(axis=2, keepdims=True)
        apart = (frame.by_warp(here) & (least < most)).reshape(frame.shape)
        if apart.any() and section.branch is not None:
            frame.parted.append(Parting(apart, section.meets_at, section.branch))

    def _leave(self, section: Section, mask: Array | None) -> None:
        frame = self.frame
        onwards = frame.end if section.following is None else section.following
        to: int | Array
        if section.table is not None:
            index = section.table(frame.registers)
            if mask is not None:
                index = np.where(mask, index, 0)
            if (index >= len(section.targets)).any():
                raise Trouble("a branch index beyond its table")
            to = np.array(section.targets)[index]
        elif section.leaves or section.targets:
            to = frame.end if section.leaves else section.targets[0]
        else:
            to = onwards
        if section.predicate is not None:
            holds = frame.registers[section.predicate]
            if section.is_negated:
                holds = ~holds
            if mask is None:
                # Mostly all threads agree.
                if holds.all():
                    frame.at = to
                    return
                if not holds.any():
                    frame.at = onwards
                    return
            to = np.where(holds, to, onwards)
        if mask is None:
            frame.at = to
        else:
            frame.at = np.where(mask, to, frame.at)
        if not isinstance(frame.at, int):
            first = int(frame.at.flat[0])
            # Where lanes that ran go on, they do not take along those whom they come by.
            may_join = frame.batch.lanes != "first" or mask is None or bool(mask.all())
            if (frame.at == first).all() and (may_join or first == frame.end):
                frame.at = first
            elif section.branch and (section.predicate is not None or section.table is not None):
                self._part(section, mask)
