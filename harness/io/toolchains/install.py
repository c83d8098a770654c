"""Toolchains by version: which ones a specifier names, each of them installed, and checked again.

A Triton is a site folder with its wheel and what that needs at import; ptxas and nvdisasm are one
executable each, which must say that it is the version that its wheel promises. Nothing is kept that
does not run here.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import sys
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name
from packaging.version import Version

from harness.io.files.locations import cache_dir, storage_error
from harness.io.files.writing import sha256_of, write_atomically
from harness.io.packages.index import Release, wheels
from harness.io.packages.versions import (
    LATEST,
    OLDEST_TRITON,
    check_spec,
    exact_of_distribution,
    label_version,
    parse_banner,
    require_supported_triton,
    select,
    split_distribution,
)
from harness.io.packages.wheels import install_wheels, needs
from harness.io.processes.hub import run_tool
from harness.io.toolchains.environments import probe_environment
from harness.io.toolchains.installed import (
    NVDISASM,
    PTXAS,
    TRITON,
    VENV,
    Toolchain,
    digest_of,
    find_installed,
    folder_name,
    list_damaged,
    list_installed,
    make_toolchain,
    read_toolchain,
    recorded_hashes,
    require_installed,
    site_of,
    toolchains_root,
)
from harness.values.errors import InfrastructureError, IntegrityError, StorageError, UsageError
from harness.values.toolchain import BUNDLED, INSTALLED, Assembler, Compiler, Tool

SITE = "site"
"""Where a Triton lies in its folder: what goes on the module path."""
_NOT_NEEDED = frozenset({"torch", "cmake", "lit"})
"""What Triton 2.0 asks for and a compile does not need, or has from triage's own environment."""
_BANNER_SECONDS = 60.0
_IMPORT_SECONDS = 600.0
_PROBE = "import json, triton; print(); print(json.dumps([triton.__version__, triton.__file__]))"


def _fill(planned: Toolchain, release: Release, folder: Path, scratch: Path) -> Toolchain:
    """Put the release of a Triton or a tool into its empty folder; what its marker is to say."""
    if planned.kind == TRITON:
        site = folder / SITE
        install_wheels([release], site, scratch=scratch)
        _name_triton(site, release)
        needed = _dependencies(site)
        if needed:
            install_wheels(needed, site, scratch=scratch)
        library = next(site.glob("triton/_C/libtriton*"), site / "triton" / "__init__.py")
        return replace(
            planned,
            executable=library.relative_to(folder).as_posix(),
            executable_sha256=sha256_of(library),
            banner=_import_triton(site, release.version),
            dependencies=tuple(f"{wheel.name}=={wheel.version}" for wheel in needed),
        )
    # Keep one executable, and the licence, of a wheel that holds a whole toolkit; uv's own
    # cache would keep the whole toolkit of every version.
    site, executable = scratch / SITE, folder / planned.executable
    install_wheels([release], site, scratch=scratch, cache=scratch / "cache")
    unpacked = next(site.glob(f"**/{planned.executable}"), None)
    if unpacked is None:
        raise InfrastructureError(
            f"{release.filename} holds no {planned.kind}; choose another version"
        )
    executable.parent.mkdir()
    unpacked.rename(executable)
    executable.chmod(0o755)
    for licence in site.glob("*.dist-info/**/[Ll]icense*.txt"):
        licence.rename(folder / "LICENSE.txt")
    banner = _checked_banner(executable, planned.name, planned.version)
    return replace(planned, executable_sha256=sha256_of(executable), banner=banner)


def verify(name: str) -> Toolchain:
    """Hash an installed toolchain again and run it again.

    Raises:
        UsageError: as `require_installed`.
        IntegrityError: a file is missing or was changed since the install.
        StorageError: its marker is damaged, or what it shares is gone.
        InfrastructureError: it no longer runs, or says that it is another version.
    """
    toolchain = require_installed(name)
    if toolchain is None:
        raise list_damaged()[name]
    executable, site = toolchain.path / toolchain.executable, toolchain.path / SITE
    try:
        damaged = executable if sha256_of(executable) != toolchain.executable_sha256 else None
        if toolchain.environment:
            site = site_of(toolchain.path / VENV)
        damaged = damaged or _damaged_file(site)
    except OSError as error:
        damaged = Path(error.filename or executable)
    if damaged is not None:
        raise IntegrityError(
            f"{toolchain.name} was changed since it was installed ({damaged.name}); "
            "remove it and install it again"
        )
    if toolchain.environment:
        banner = probe_environment(toolchain, toolchain.path)
    elif toolchain.kind == TRITON:
        banner = _import_triton(site, Version(toolchain.version))
    else:
        banner = _checked_banner(executable, toolchain.name, toolchain.version)
    if banner != toolchain.banner:
        raise InfrastructureError(
            f"{toolchain.name} no longer says what it said at the install; "
            "remove it and install again"
        )
    return toolchain


def banner_of(executable: Path) -> str:
    """What its `--version` prints.

    Raises:
        InfrastructureError: it does not run.
    """
    result = run_tool([executable, "--version"], timeout=_BANNER_SECONDS)
    if not result.end.ok:
        raise InfrastructureError(
            f"{executable.name} --version fails on this machine ({result.end.words}): {executable}"
        )
    return result.stdout.strip()


_OWN_NAME = """import importlib.abc
import importlib.machinery
import sys


class _OwnName(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.startswith(__name__ + "."):
            return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec):
        name = "triton" + spec.name.removeprefix(__name__)
        module = importlib.import_module(name)
        spec.loader_state = module.__spec__
        # A library may bring modules along that are found nowhere else.
        for inner, value in list(sys.modules.items()):
            if inner.startswith(name + "."):
                sys.modules.setdefault(spec.name + inner.removeprefix(name), value)
        return module

    def exec_module(self, module):
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.insert(0, _OwnName())
sys.modules[__name__] = importlib.import_module("triton")
"""


def _name_triton(site: Path, release: Release) -> None:
    """Give the Triton in `site` the name that launch code imports.

    A distribution may bring it along under another one, by which its modules ask for each other:
    that becomes a module that gives them those of `triton`, so that none is there twice.

    Raises:
        UsageError: there is none.
    """
    libraries = site.glob("*/_C/libtriton*")
    package = next((library.parents[1] for library in libraries), site / TRITON)
    if not package.is_dir():
        raise UsageError(f"{release.name} {release.version} holds no Triton")
    if package.name == TRITON:
        return
    package.rename(site / TRITON)
    (site / f"{package.name}.py").write_text(_OWN_NAME, encoding="utf-8")
    files = re.compile(rf"^{package.name}/", re.MULTILINE)
    for record in site.glob("*.dist-info/RECORD"):
        text = record.read_text(encoding="utf-8")
        record.write_text(files.sub(f"{TRITON}/", text), encoding="utf-8")


def _dependencies(site: Path) -> list[Release]:
    """The newest wheels of what the Triton in `site` needs at import, except torch."""
    from importlib.metadata import Distribution  # noqa: PLC0415 - only installs need them

    from packaging.requirements import Requirement  # noqa: PLC0415

    requirements = needs(Distribution.at(next(site.glob("*.dist-info"), site)))
    package = site / "triton"
    pattern = re.compile(rb"^\s*(?:import|from)\s+setuptools\b", re.MULTILINE)
    if any(pattern.search(path.read_bytes()) for path in package.glob("**/*.py")):
        # Triton 2.0 to 3.2 import it and do not say so.
        requirements.setdefault(canonicalize_name("setuptools"), Requirement("setuptools"))
    newest: list[Release] = []
    for name in sorted(requirements.keys() - _NOT_NEEDED):
        specifier = requirements[name].specifier
        fitting = [
            file for file in wheels(name) if specifier.contains(file.version, prereleases=False)
        ]
        if not fitting:
            raise InfrastructureError(
                f"the package index has no {requirements[name]}, which this Triton needs; "
                "choose another Triton"
            )
        newest.append(fitting[-1])
    return newest


def _import_triton(site: Path, version: Version) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    result = run_tool(
        [sys.executable, "-s", "-c", _PROBE], timeout=_IMPORT_SECONDS, env=environment, cwd=site
    )
    if not result.end.ok:
        raise InfrastructureError(
            f"{TRITON}-{version} cannot be imported by this Python ({result.last_words}); "
            "choose another one"
        )
    banner, where = json.loads(result.stdout.splitlines()[-1])
    if not Path(where).resolve().is_relative_to(site.resolve()):
        raise InfrastructureError(
            f"importing {TRITON}-{version} finds another Triton; unset PYTHONPATH and try again"
        )
    return str(banner)


# As the child of a capture asks it, and without what the environment says of another one.
_PICK = """
import inspect, sys
from triton.backends.nvidia import compiler
pick = getattr(compiler, "get_ptxas", getattr(compiler, "get_ptxas_for_arch", None))
if pick is None:
    print(compiler._path_to_binary("ptxas")[0])
else:
    tool = pick(int(sys.argv[1])) if inspect.signature(pick).parameters else pick()
    print(tool[0] if isinstance(tool, tuple) else tool.path)
"""


def picked_ptxas(triton: Version, capability: int) -> Assembler | None:
    """The ptxas that a Triton takes for a target, by its own rules; None if it is not installed.

    Raises:
        StorageError, InfrastructureError: it cannot be read, or does not say.
    """
    installed = find_installed(TRITON, triton)
    if installed is None:
        return None
    site = installed.path / SITE
    environment = {n: value for n, value in os.environ.items() if not n.startswith("TRITON_")}
    result = run_tool(
        [sys.executable, "-s", "-c", _PICK, str(capability)],
        timeout=_IMPORT_SECONDS,
        env={**environment, "PYTHONPATH": str(site)},
        cwd=site,
    )
    if not result.end.ok:
        raise InfrastructureError(
            f"{TRITON}-{triton} does not say which ptxas it takes ({result.last_words})"
        )
    return describe_ptxas(Path(result.stdout.splitlines()[-1]), BUNDLED)


def _checked_banner(executable: Path, name: str, version: str) -> str:
    """What `--version` prints, which must name the version that the wheel promises."""
    banner = banner_of(executable)
    release = parse_banner(banner)
    if release is None or Version(release[0]) != Version(version):
        raise InfrastructureError(
            f"the executable of {name} reports {release[0] if release else 'an unknown version'}"
            "; choose another version"
        )
    return banner


def _damaged_file(site: Path) -> Path | None:
    """The first file that is not what the wheels' RECORD says (absent for a lone executable)."""
    for record in sorted(site.glob("*.dist-info/RECORD")):
        if record.parent.is_symlink():
            continue  # of triage's own environment
        for relative, digest in recorded_hashes(record).items():
            if sha256_of(site / relative) != digest:
                return site / relative
    return None


# What a ptxas is that we did not install, such as the one inside a Triton. Asking it takes a
# process, so the answer is remembered as long as the file stays the same.


_Described = tuple[tuple[str, int, int], str, tuple[str, str]]
"""Path, time and size of a file; its sha256; the version and the build that it prints."""


def describe_ptxas(path: Path, origin: str) -> Assembler:
    """What the ptxas at `path` is; its `--version` is run once as long as the file is the same.

    Raises:
        StorageError: it cannot be read.
        InfrastructureError: it cannot be run, or is not ptxas.
    """
    path = path.absolute()
    memo = cache_dir() / "described" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.json"
    known: _Described | None = None
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        known = msgspec.json.decode(memo.read_bytes(), type=_Described)
    try:
        facts = path.stat()
        stat = (str(path), facts.st_mtime_ns, facts.st_size)
        digest = known[1] if known and known[0] == stat else sha256_of(path)
    except OSError as error:
        raise storage_error(error, path, "read") from error
    release = known[2] if known and known[1] == digest else parse_banner(banner_of(path))
    if release is None:
        raise InfrastructureError(f"{path} is not ptxas: its --version prints no version of ptxas")
    if known != (described := (stat, digest, release)):
        # On a read-only cache the question is asked again next time.
        with contextlib.suppress(StorageError):
            write_atomically(memo, msgspec.json.encode(described))
    version, build = release
    return Assembler(version=version, origin=origin, path=path, sha256=digest, build=build)


def package_of(triton: Compiler | None) -> Path | None:
    """The folder of a Triton's package (the installed one for None); None where there is none."""
    if triton is not None and triton.path is not None:
        return triton.path / TRITON
    return installed_package()


def bundled_nvdisasm(triton: Compiler | None) -> Tool | None:
    """The nvdisasm inside a Triton (the installed one for None); None where it carries none."""
    package = package_of(triton)
    path = package / "backends" / "nvidia" / "bin" / NVDISASM if package else None
    if path is None or not path.is_file():
        return None
    facts = path.stat()
    return Tool(name=NVDISASM, version=f"bundled {facts.st_size} {facts.st_mtime_ns}", path=path)


def installed_package() -> Path | None:
    """The folder of the Triton beside triage; it is not imported."""
    spec = importlib.util.find_spec(TRITON)
    return Path(spec.origin).parent if spec and spec.origin else None


def version_beside(name: str) -> str:
    """The version of a package in triage's own environment, which is not imported.

    Raises:
        ModuleNotFoundError: it is not there.
    """
    for folder in map(Path, sys.path):
        for file in folder.glob(f"{name}-*.dist-info/METADATA"):
            with file.open(encoding="utf-8") as lines:
                for line in lines:
                    if line.startswith("Version:"):
                        return line.partition(":")[2].strip()
    from importlib.metadata import version  # noqa: PLC0415 - 20 ms of every command, for the same

    return version(name)


def installed_triton() -> Compiler:
    """The Triton that lies beside triage in its own environment; it is not imported.

    Raises:
        InfrastructureError: there is none.
    """
    try:
        version = version_beside(TRITON)
    except ModuleNotFoundError as error:
        raise InfrastructureError(
            "no Triton is installed beside triage: pip install triton, or name a version: "
            "--triton 3.6.0"
        ) from error
    package = installed_package()
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*") if package else ()):
        if path.suffix in (".py", ".so"):
            facts = path.stat()
            digest.update(f"{path}:{facts.st_size}:{facts.st_mtime_ns}\n".encode())
    fingerprint = digest.hexdigest() if package else None
    return Compiler(version=version, origin=INSTALLED, fingerprint=fingerprint)


# What the package index offers of Triton, ptxas and nvdisasm: versions, and their files.

_PROJECTS = {
    TRITON: (TRITON,),
    PTXAS: ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc-cu11"),
    NVDISASM: ("nvidia-cuda-nvdisasm",),
}
_WORDS = {TRITON: "Triton", PTXAS: PTXAS, NVDISASM: NVDISASM}


def available_wheels(kind: str, *, prereleases: bool = False) -> list[Release]:
    """The wheel of each version of a tool for this interpreter and platform, oldest first.

    A project that the index lacks is none, if it has another one.

    Raises:
        UsageError, OfflineError, InfrastructureError: as `harness.io.packages.index.wheels`.
    """
    releases = reversed(_releases(kind, prereleases=prereleases))
    by_version = {release.version: release for release in releases}
    return [by_version[version] for version in sorted(by_version)]


def available_builds(distribution: str) -> list[Release]:
    """The wheels of another distribution that brings a Triton along, by date of upload.

    Errors as `available_wheels`.
    """
    builds = _releases(TRITON, prereleases=True, of=canonicalize_name(distribution))
    return sorted(builds, key=lambda build: build.uploaded or "")


def _releases(
    kind: str, *, exact: Version | None = None, prereleases: bool = False, of: str = ""
) -> list[Release]:
    """Of the projects that have this tool; else of another distribution, by its name."""
    releases: list[Release] = []
    errors: list[UsageError] = []
    projects = (of,) if of else _PROJECTS[kind]
    for project in projects:
        try:
            offered = wheels(project, exact=exact, prereleases=prereleases)
        except UsageError as error:
            # A mirror may lack the older projects; that is an error only if it lacks them all.
            errors.append(error)
            continue
        # The first releases of each project of NVIDIA's are placeholders, for any platform.
        releases += [
            release
            for release in offered
            if (kind == TRITON or release.is_binary) and not (of and release.version.local)
        ]
        if exact is not None and releases:
            break
    if len(errors) == len(projects):
        raise errors[0]
    return releases


def _version_of(kind: str, release: Release) -> Version:
    is_other = kind == TRITON and release.name != TRITON
    return label_version(release.version, release.name) if is_other else release.version


def _file(kind: str, version: Version) -> Release:
    releases, of = _releases(kind, exact=version), ""
    if not releases and kind == TRITON and version.local:
        of, version = canonicalize_name(version.local), Version(version.public)
        releases = _releases(kind, exact=version, of=of)
    if not releases:
        every = {release.version for release in _releases(kind, prereleases=True, of=of)}
        select(every, str(version), what=of or _WORDS[kind])
    return releases[0]


def select_versions(kind: str, spec: str, *, prereleases: bool = False) -> list[Version]:
    """The versions of a tool that `spec` names (see `harness.io.packages.versions.select`).

    An exact version that is installed, or yanked, is found too, the former without the network.
    Of Triton, what a range names that is too old for triage is left out, and `NAME>=3.8` and
    `NAME==latest` are those of another distribution, each labelled with its name.

    Raises:
        UsageError: `spec` is malformed or names only versions that do not exist or are too old.
        OfflineError, InfrastructureError: as `harness.io.packages.index.wheels`.
    """
    of, rest = "", spec
    if kind == TRITON:
        require_supported_triton(spec)
        of, rest = split_distribution(spec)
    what = of or _WORDS[kind]
    check_spec(rest, what=what)
    exact = exact_of_distribution(spec)
    if exact is not None:
        installed = find_installed(kind, exact)
        chosen = [
            Version(installed.version) if installed else _version_of(kind, _file(kind, exact))
        ]
    else:
        versions = {release.version for release in _releases(kind, prereleases=prereleases, of=of)}
        chosen = select(versions, rest, what=what, prereleases=prereleases)
        chosen = [label_version(version, of) for version in chosen] if of else chosen
    supported = [version for version in chosen if kind != TRITON or version >= OLDEST_TRITON]
    if chosen and not supported:
        require_supported_triton(str(chosen[-1]))
    return supported


def install_triton(version: Version | str, *, is_planned: bool = False) -> Compiler:
    """The environment of that Triton, installed if it is not yet.

    One that `is_planned` is what this would give: nothing is installed.

    Raises:
        UsageError: there is no such version for this interpreter and platform.
        OfflineError, IntegrityError, StorageError, InfrastructureError: it cannot be installed.
    """
    return _as_triton(_toolchain(TRITON, version, is_planned=is_planned))


def install_ptxas(version: Version | str, *, is_planned: bool = False) -> Assembler:
    """As `install_triton`; of a planned one, the sha256 is that of the wheel."""
    toolchain = _toolchain(PTXAS, version, is_planned=is_planned)
    release = parse_banner(toolchain.banner)
    return Assembler(
        version=toolchain.version,
        origin=toolchain.distribution,
        path=toolchain.path / toolchain.executable,
        sha256=toolchain.executable_sha256,
        build=release[1] if release else "",
    )


def _toolchain(kind: str, version: Version | str, *, is_planned: bool = False) -> Toolchain:
    """A toolchain that is installed by now, or as it would be."""
    exact = version if isinstance(version, Version) else exact_of_distribution(version)
    if exact is None:
        raise UsageError(
            f"{version!r} is not one version of {_WORDS[kind]}; write it like 13.1.115"
        )
    installed = find_installed(kind, exact)
    if installed:
        return installed
    release = _file(kind, exact)
    own = _version_of(kind, release)
    planned = Toolchain(
        kind=kind,
        version=str(own),
        distribution=release.name,
        filename=release.filename,
        sha256=release.sha256,
        executable=f"bin/{kind}",
        executable_sha256=release.sha256,
        banner="",
        installed="",
        folder=folder_name(kind, own, release.filename),
    )
    if is_planned:
        return planned
    return make_toolchain(planned, partial(_fill, planned, release))


def _as_triton(toolchain: Toolchain) -> Compiler:
    return Compiler(
        version=toolchain.version,
        origin=toolchain.distribution,
        path=toolchain.path / SITE,
        sha256=toolchain.sha256,
    )


def _as_tool(toolchain: Toolchain) -> Tool:
    return Tool(
        name=toolchain.kind, version=toolchain.version, path=toolchain.path / toolchain.executable
    )


def install_nvdisasm(version: Version | str | None = None) -> Tool:
    """That nvdisasm, or the newest that the index has, installed if it is not yet.

    Errors as `install_triton`.
    """
    if version is None:
        [version] = select_versions(NVDISASM, LATEST)
    return _as_tool(_toolchain(NVDISASM, version))


def find_nvdisasm() -> Tool:
    """The newest nvdisasm that is installed; if none is, the newest of the index, installed.

    So a warm start needs no network. Errors as `install_nvdisasm`.
    """
    return installed_nvdisasm() or install_nvdisasm()


def installed_nvdisasm() -> Tool | None:
    """The newest nvdisasm that is installed."""
    installed = list_installed(NVDISASM)
    return _as_tool(installed[-1]) if installed else None


def every_nvdisasm(triton: str | None) -> list[Tool]:
    """All that are installed, none twice: the newest by itself, then those inside Tritons.

    Of these, that of the version `triton` comes first, then the oldest; that of the Triton beside
    triage is the last, and those of other distributions are not asked. Nothing is fetched.
    """
    alone = installed_nvdisasm()
    tools = {alone.path.stat().st_size: alone} if alone else {}
    tritons = (
        installed
        for installed in list_installed(TRITON)
        if installed.distribution == TRITON or installed.version == triton
    )
    for toolchain in sorted(tritons, key=lambda installed: installed.version != triton):
        tool = bundled_nvdisasm(_as_triton(toolchain))
        if tool:
            size = tool.path.stat().st_size  # neighbouring Tritons carry the same file
            label, version = f"{tool.name} of Triton", f"{toolchain.version} {size}"
            tools.setdefault(size, Tool(name=label, version=version, path=tool.path))
    beside = bundled_nvdisasm(None)
    if beside:
        tools.setdefault(beside.path.stat().st_size, beside)
    return list(tools.values())


class NamedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A `file` in the folder of a toolchain, and the sha256 that it has.

    `kind` is `installed` for the Triton beside triage; the file is then in its package.
    """

    kind: str
    version: str
    file: str
    sha256: str

    @property
    def words(self) -> str:
        """For people: `ptxas 13.1.115`, or `ptxas of triton 3.6.0`."""
        name = Path(self.file).name
        own = TRITON if self.kind == INSTALLED else self.kind
        return f"{name} {self.version}" if name == own else f"{name} of {own} {self.version}"


def name_tool(path: Path) -> NamedTool | None:
    """The names of an executable; None where another machine could not find it by them.

    Raises:
        StorageError: it cannot be read.
    """
    root, package = toolchains_root(), installed_package()
    if path.is_relative_to(root):
        folder = path.relative_to(root).parts[0]
        toolchain = read_toolchain(folder)
        if toolchain is None or toolchain.kind not in _PROJECTS:
            return None
        kind, version, file = toolchain.kind, toolchain.version, path.relative_to(root / folder)
    elif package is not None and path.is_relative_to(package):
        kind, version = INSTALLED, installed_triton().version
        file = path.relative_to(package)
    else:
        return None
    try:
        return NamedTool(kind=kind, version=version, file=str(file), sha256=digest_of(path))
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error


def find_tool(name: NamedTool) -> Path:
    """The executable on this machine; its toolchain is installed if it is not yet.

    Raises:
        UsageError, InfrastructureError: there is none, it cannot be installed, or is another file.
    """
    if name.kind == INSTALLED:
        folder = installed_package()
    else:
        folder = _toolchain(name.kind, name.version).path
    if folder is None or not (folder / name.file).is_file():
        raise InfrastructureError(f"there is no {name.words}")
    if digest_of(folder / name.file) != name.sha256:
        raise InfrastructureError(f"{name.words} is another file than where this was started")
    return folder / name.file
