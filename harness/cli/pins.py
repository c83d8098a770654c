"""`triage pins`.

Example:
  triage pins requirements.txt --sm 120a
  triage pins uv.lock --sm 90a --sm 100a
  triage pins Dockerfile --sm 80

Exit codes: 0 nothing that was looked at fails, 1 kernels lose configs, 4 not known: no stored
night has looked at that pair on that target.
"""

from __future__ import annotations

from pathlib import Path

from harness.binaries.pin_facts import know_pair
from harness.binaries.pin_files import PACKAGES, read_pins
from harness.binaries.pin_words import pins_document, pins_said
from harness.cli.amounts import FilePath
from harness.cli.options import Options, argument, json_option, verb
from harness.cli.output import print_result
from harness.cli.progress.steps import working
from harness.cli.results import read_results
from harness.cli.running import sm_option
from harness.io.files.reading import read_regular
from harness.io.packages.wheels import resolve
from harness.values.errors import ConfigurationError, UsageError
from harness.values.target import Target

_MAX_BYTES = 64 << 20


class _PinsOptions(Options):
    file: Path = argument(type=FilePath(read=True))
    sm: tuple[str, ...] = sm_option(required=True)
    as_json: bool = json_option()


@verb()
def command(options: _PinsOptions) -> int:
    """Say which Triton and ptxas come with a pinned torch, and what is known of that pair.

    FILE is requirements.txt, a lock file (uv.lock, poetry.lock, pylock.toml), pyproject.toml or a
    Dockerfile. A range is what an installer takes today. Nothing is compiled: what is known is what
    `triage compile` and `triage matrix run` found.
    """
    targets = list(map(Target.parse, options.sm))
    try:
        text = read_regular(options.file, _MAX_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{options.file}: not UTF-8 text") from error
    pins = read_pins(text, str(options.file))
    with working("asking the package index"):
        taken = resolve(pins)
    versions = {name: str(taken[name]) for name in PACKAGES if name in taken}
    if "triton" not in versions:
        raise UsageError(f"{options.file}: {', '.join(pins)} needs no Triton on Linux")
    with read_results() as store:
        known = [know_pair(store, versions["triton"], target) for target in targets]
    file = str(options.file)
    said = pins_said(file, pins, versions, known)
    print_result(pins_document(file, versions, known), said, as_json=options.as_json)
    is_unknown = not all(pair.cells for pair in known)
    return 1 if any(pair.lost for pair in known) else 4 if is_unknown else 0
