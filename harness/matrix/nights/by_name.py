"""Places of a matrix by names, for another machine: what they name is looked up there.

What would make other results there than here (another source, another compiler, another setting of
one) is found by hashes before anything is compiled.
"""

from __future__ import annotations

from dataclasses import replace

from harness.cells.repros.find import find_kernels
from harness.frontends.base import CapturePlace, PlannedLaunch, Selection
from harness.frontends.bench.bench import content_key
from harness.frontends.launch_code import launch_sha256
from harness.frontends.registry import back_end, front_end
from harness.matrix.nights.tasks import NamedPlace
from harness.values.errors import InfrastructureError, UsageError
from harness.values.target import Target
from harness.values.toolchain import INSTALLED, PTX, Compiler


def named(place: CapturePlace, *, is_extra: bool) -> NamedPlace:
    """The names of all that a place consists of."""
    chosen = place.selection
    compiler = place.compiler
    return NamedPlace(
        repro=chosen.repro.name,
        launch=place.launch.spec.name,
        overrides=dict(place.launch.overrides),
        given=tuple(sorted(place.launch.given)),
        target=str(place.target),
        compiler=compiler.kind,
        version=None if compiler.origin == INSTALLED else compiler.version,
        assemblers=tuple(each.version if each else None for each in chosen.ptxas),
        config=chosen.config,
        freeze_ptx=chosen.freeze_ptx,
        disassembles=chosen.nvdisasm is not None,
        variant=place.variant,
        is_extra=is_extra,
        same=_same(place),
    )


def place_of_name(name: NamedPlace) -> CapturePlace:
    """The place that is named, with what this machine has; what is missing is installed.

    Raises:
        UsageError: there is no such kernel or launch here.
        InfrastructureError: a toolchain cannot be installed, or something differs.
    """
    repro = next((each for each in find_kernels(name.repro) if each.name == name.repro), None)
    specs = [spec for spec in repro.launches if spec.name == name.launch] if repro else []
    if repro is None or not specs:
        raise UsageError(f"there is no launch {name.launch} of {name.repro}")
    target = Target.parse(name.target)
    compiler = _compiler(name)
    back = back_end(name.compiler, target)
    tools = tuple(back.install(version) if version else None for version in name.assemblers)
    launch = PlannedLaunch(spec=specs[0], overrides=name.overrides, given=frozenset(name.given))
    place = CapturePlace(
        selection=Selection(
            repro=replace(repro, launches=(specs[0],)) if name.compiler == PTX else repro,
            launches=(launch,),
            targets=(target,),
            compilers=(compiler,),
            ptxas=tools,
            config=name.config,
            freeze_ptx=name.freeze_ptx,
            nvdisasm=back.disassembler()[0] if name.disassembles else None,
        ),
        target=target,
        compiler=compiler,
        launch=launch,
        variant=name.variant,
    )
    mine = _same(place)
    if other := [what for what, digest in name.same.items() if mine.get(what) != digest]:
        raise InfrastructureError(f"other than where the run was started: {', '.join(other)}")
    return place


def _compiler(name: NamedPlace) -> Compiler:
    end = front_end(name.compiler)
    # A compiler without versions is the only one of its kind.
    return end.install(name.version) if name.version else end.default()


def _same(place: CapturePlace) -> dict[str, str]:
    """What has to be the same on two machines, by what to call it."""
    repro, compiler = place.selection.repro, place.compiler
    # Whether somebody edits an installed compiler in place shows in paths and times.
    anywhere = replace(compiler, fingerprint=None)
    return {
        f"the source of {repro.name}": launch_sha256(repro, place.launch.spec),
        f"{compiler.name} or its settings": content_key(
            identity=front_end(compiler.kind).identity(anywhere)
        ),
        **{tool.name: tool.sha256 for tool in place.selection.ptxas if tool},
    }
