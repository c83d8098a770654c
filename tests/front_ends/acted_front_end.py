"""A compiler that does what a test writes down, and what else it takes to run a command beside it.

Nothing is installed, captured or lowered by a process. `Acted.act` says what is done for a version
and a config; a word that is not for the compiler is for the fake ptxas, which reads it in the PTX.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fake_toolchains import FakeCache
from msgspec.structs import replace
from packaging.version import Version
from toy_front_end import Toy

from harness.cells.places import CompileOptions
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.frontends.plan import Selection
from harness.frontends.sessions import CapturedLaunch, LaunchCode
from harness.store.store import Store
from harness.values.errors import CaptureError, InfrastructureError, UsageError
from harness.values.outcome import LaunchFacts, Lowering, ProcessEnd, RaisedError
from harness.values.toolchain import Assembler, Compiler

if TYPE_CHECKING:
    from harness.frontends.bench import Workbench
    from harness.frontends.plan import CapturePlace, Plan
    from harness.values.target import Target

T = TypeVar("T")

# What the PTX asks of each ptxas: `2.0=ice *=ok`; of one that it does not name, what `*` says.
# `ice>ok` fails in its first run, and in no other.
PTXAS = """\
import zlib
asked = dict(word.split("=") for word in text.partition("act: ")[2].partition('"')[0].split())
act = asked.get("{version}", asked.get("*", "ok"))
first, _, later = act.partition(">")
if later:
    # What the first run of this program does, and what all others do.
    ran = __file__ + "-%08x" % zlib.crc32(text.encode())
    act = later if os.path.exists(ran) else first
    open(ran, "w").close()
if act == "ice":
    ice("C7907")
if act == "other":
    ice("C1234")
if act == "rejects":
    print("ptxas kernel.ptx, line 9; error   : Unknown symbol 'q'", file=sys.stderr)
    sys.exit(255)
if act == "killed":
    die(signal.SIGKILL)
if act.startswith("spills"):
    ok(registers=255, stores=int(act[6:]))
"""


def _ok(_version: str, _config: Mapping[str, Any]) -> str:
    return "ok"


class Acted(Toy):
    """`act` is asked for each lowering; `refuses` is what the compiler itself does.

    `absent` are versions that cannot be installed, `uncaptured` those whose capture fails, `poorer`
    those that make no config of width 1 or 2, `failing` those that this machine cannot run. With
    another `revision`, what was generated before is not used again. With `dtypes` the kernel is
    launched once for each, with the same configs, and `act` sees it as `dtype`. `asked` are the
    versions of all lowerings that were not stored; `lowering` is called before each.
    """

    kind = "acted"
    title = "Acted"
    suffixes: tuple[str, ...] = (".acted",)

    def __init__(self) -> None:
        self.act: Callable[[str, Mapping[str, Any]], str] = _ok
        self.absent: set[str] = set()
        self.uncaptured: set[str] = set()
        self.poorer: set[str] = set()
        self.failing: set[str] = set()
        self.revision = 0
        self.dtypes: tuple[str, ...] = ()
        self.asked: list[str] = []
        self.lowering: Callable[[], None] = lambda: None

    def installed(self) -> list[Compiler]:
        return [self._known(each) for each in self.versions if each not in self.absent]

    def install(self, version: Version | str) -> Compiler:
        if str(version) in self.absent:
            raise InfrastructureError(f"Acted {version} cannot be installed: the index is down")
        return self._known(version)

    planned = install

    def _known(self, version: Version | str) -> Compiler:
        if str(version) not in self.versions:
            raise UsageError(f"there is no Acted {version}")
        return Compiler(kind=self.kind, version=str(version), origin="acted")

    def stored_plan(self, bench: Workbench, place: CapturePlace) -> Plan | None:
        name, version = place.selection.repro.name, place.compiler.version
        if version in self.uncaptured:
            raise CaptureError(f"{name}: the launch raised ValueError: not today")
        if version in self.poorer:
            place = replace(place, adapt=_other_configs)
        return super().stored_plan(bench, place)

    def launches_of(self, place: CapturePlace) -> list[LaunchFacts]:
        records = super().launches_of(place)
        launched = [
            replace(
                record,
                key=f"{record.key}-{dtype}",
                arguments=[{"name": "x", "tensor": dtype, "shape": [64]}],
            )
            for dtype in self.dtypes
            for record in records
        ]
        return launched or records

    async def lowered(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> tuple[Lowering, dict[str, bytes]]:
        version = launch.compiler.version
        self.lowering()
        self.asked.append(version)
        if version in self.failing:
            raise InfrastructureError(f"Acted {version}: its process died twice")
        seen = {**record.config, "dtype": next((a["tensor"] for a in record.arguments), None)}
        act = self.act(version, seen)
        end = ProcessEnd(exit_code=0)
        if act == "refuses":
            said = RaisedError(type="ActedError", kinds=("ActedError",), message="no such thing")
            return Lowering(end=end, stage="words", error=said), {}
        flags = ("-v", f"--gpu-name={launch.request}")
        ptx = _ptx(record.kernel, launch.request, version, act)
        return Lowering(end=end, stage="ptx", flags=flags), {"ptx": ptx}

    def lowering_key(self, launch: CapturedLaunch, record: LaunchFacts, ptxas: Assembler) -> str:
        return f"{super().lowering_key(launch, record, ptxas)}-{self.revision}"

    def identity(self, compiler: Compiler) -> object:
        return [compiler.version, self.revision]


def _other_configs(code: LaunchCode) -> LaunchCode:
    return code.with_configs("kernel", [{"width": 9}])


def _ptx(name: str, target: Target, version: str, act: str) -> bytes:
    asked = act if "=" in act else f"*={act}"
    return f"""\
.version 8.0
.target {target}
.address_size 64
.visible .entry {name}(.param .u64 out)
{{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    .pragma "act: {asked}";
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, {version.replace(".", "")};
    st.global.u32 [%rd1], %r1;
    ret;
}}
""".encode()


@dataclass(slots=True)
class Stage:
    """A kernel of an acted compiler, the ptxas that take part, and one folder of results."""

    folder: Path
    store: Store
    acted: Acted = field(default_factory=Acted)
    heard: list[str] = field(default_factory=list)

    def ptxas(self, *versions: str, before: str = "") -> None:
        """Install these; each does what the PTX says, and `before` that this piece of Python."""
        fakes = FakeCache(self.folder)
        for version in versions:
            fakes.ptxas(version, before + PTXAS.format(version=version))

    def selection(self, **words: Any) -> Selection:
        """The kernel with what is chosen of it, as the command line would choose."""
        asked: dict[str, Any] = {"kernel": "kernel.acted", "sm": ["80"], "ptxas": ["2.0"], **words}
        return select(SelectionOptions(**asked))

    @property
    def how(self) -> CompileOptions:
        """Two compilers at once."""
        return CompileOptions(jobs=2, timeout=60, memory=1 << 30, command="triage test")

    def tell(self, *said: str) -> None:
        """What a command says while it works."""
        self.heard.append(": ".join(filter(None, said)))

    def run(self, work: Coroutine[Any, Any, T], *, stop_at: int = 0) -> T:
        """Run to the end, or until Ctrl-C before the `stop_at`-th lowering.

        Raises:
            asyncio.CancelledError: it was stopped, and did not end by itself.
        """

        async def stoppable() -> T:
            task = asyncio.ensure_future(work)
            before = len(self.acted.asked)

            def stop() -> None:
                if stop_at and len(self.acted.asked) - before + 1 == stop_at:
                    task.cancel()

            self.acted.lowering = stop
            return await task

        return asyncio.run(stoppable())
