"""A compiler that chooses its assembler by target, and has none for most.

A file `NAME.drip` says `drip NAME`, and its configs as Toy's do. Drip writes `drops`, and from them
for sm_90 a binary, the `cup`, which is the end; for sm_100 the `steps` that a kettle boils. For
sm_80 it goes no further than the drops. Drip 1.1 fails to fill a cup where `unroll` is 2, and
spills where `width` is 8; no version takes a width over 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brew_front_end import Kettle
from toy_front_end import Toy

from harness.frontends.back_end import NoAssembler
from harness.frontends.bench import Kept, content_key
from harness.frontends.readings import PtxReading
from harness.judging.judge import failed
from harness.values.outcome import LaunchFacts, Lowering, ProcessEnd, RaisedError, Resources
from harness.values.verdict import Stage, Verdict, VerdictKind

if TYPE_CHECKING:
    from harness.frontends.back_end import BackEnd
    from harness.frontends.bench import Workbench
    from harness.frontends.sessions import CapturedLaunch
    from harness.judging.judge import CellEvidence
    from harness.values.target import Target


def _needs(evidence: CellEvidence) -> Resources:
    said = evidence.lowering.metadata if evidence.lowering else {}
    return Resources(
        n_regs=int(str(said["regs"])), spill_stores=int(str(said["spills"])), spill_loads=0
    )


CUPS = NoAssembler(takes="cup", code="cup", is_code=True, needs=_needs)
DROPS = NoAssembler(takes="drops", code="drops", is_code=False)
KETTLE: BackEnd = Kettle()


class Drip(Toy):
    kind = "drip"
    title = "Drip"
    back_ends = (CUPS, DROPS, KETTLE)
    suffixes = (".drip",)
    stages = ("drops", "cup", "steps")
    names_by = "drip"

    def back_end(self, target: Target) -> BackEnd:
        return {80: DROPS, 100: KETTLE}.get(target.capability, CUPS)

    async def lowered(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> tuple[Lowering, dict[str, bytes]]:
        width, unroll = (int(str(record.config[name])) for name in ("width", "unroll"))
        last = self.back_end(launch.request).takes
        is_bad = launch.compiler.version == "1.1"
        written = {"drops": f"drip {record.kernel}\n" * unroll}
        said = f"width {width}" if width > 8 else None
        stage = "drops"
        if said is None and last != "drops":
            stage = last
            if last == "cup" and is_bad and unroll == 2:
                said = "the cup runs over"
            else:
                written[last] = f"cup {record.kernel}\n" + "pour water\n" * width
        error = RaisedError(type="DripError", kinds=("DripError",), message=said or "")
        lowering = Lowering(
            end=ProcessEnd(exit_code=0),
            stage=stage,
            error=error if said else None,
            metadata={"regs": 8 * width, "spills": 4096 if is_bad and width == 8 else 0},
        )
        return lowering, {name: text.encode() for name, text in written.items()}

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        reading = PtxReading(facts=None, body_sha256=ptx, kernel="k")
        return bench.keep("ptx", content_key(drip=ptx), reading, {})

    def judge(self, lowering: Lowering) -> Verdict:
        said = lowering.error.message if lowering.error else "nothing"
        kind = VerdictKind.REJECTED if said.startswith("width") else VerdictKind.PASS_FAILURE
        return failed(kind, Stage(lowering.stage), f"Drip refuses it: {said}", message=said)


DRIP = Drip()
