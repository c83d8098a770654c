"""What is alike for compilers that are packages: each version has an environment of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.frontends.base import FrontEnd
from harness.frontends.pins import Pinned
from harness.frontends.ptxas_back_end import BUNDLED_BACK_END
from harness.frontends.readings import read_stored
from harness.io.packages.versions import exact_version
from harness.io.toolchains.environments import (
    compiler_in,
    environments_of,
    install_environment,
    planned_environment,
)
from harness.values.outcome import Lowering
from harness.values.toolchain import Compiler, Environment

if TYPE_CHECKING:
    from packaging.version import Version

    from harness.frontends.back_end import BackEnd
    from harness.frontends.bench.bench import Kept, Workbench
    from harness.frontends.readings import PtxReading


class PackagedFrontEnd(FrontEnd):
    """The parts of a front end that follow from an environment.

    `pins` are its versions, each with what goes with it. `needs` are packages that a user installs
    themselves, beside those of the environment.
    """

    pins: Pinned
    needs: tuple[str, ...] = ()
    back_ends: tuple[BackEnd, ...] = (BUNDLED_BACK_END,)

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return self.pins.available(prereleases=prereleases)

    def environment(self, version: str) -> Environment:
        return self.pins.environment(version)

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        exact = exact_version(spec)
        if exact is not None and self._installed(exact):
            return [exact]
        return super().select(spec, prereleases=prereleases)

    def installed(self) -> list[Compiler]:
        return [compiler_in(each) for each in environments_of(self.kind)]

    def _installed(self, version: Version | str) -> Compiler | None:
        """What is installed is used as it is: its partners were chosen then."""
        return next((each for each in self.installed() if each.version == str(version)), None)

    def install(self, version: Version | str) -> Compiler:
        return self._installed(version) or install_environment(self.environment(str(version)))

    def planned(self, version: Version | str) -> Compiler:
        return self._installed(version) or planned_environment(self.environment(str(version)))

    def default(self) -> Compiler:
        here = self.installed()
        return here[-1] if here else self.install(self.available()[-1])

    def install_line(self, version: str) -> str:
        pins = (str(pin) for pin in self.environment(version).pins)
        return f"pip install {' '.join((*self.needs, *pins))}"

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        entry = lowering.value.metadata.get("entry")
        return read_stored(bench, ptx, entry=str(entry) if entry else None)
