"""Artifacts: what goes in comes out, or an error that lets the caller make it again."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
import time
import zlib
from typing import TYPE_CHECKING, BinaryIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.store import artifacts as module
from harness.store.artifacts import ArtifactStore, DamagedArtifactError, MissingArtifactError
from harness.values.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

DATA = b".visible .entry kernel()\n" * 1000


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "artifacts")


def file_of(store: ArtifactStore, sha256: str) -> Path:
    return store.root / sha256[:2] / f"{sha256[2:]}.z"


@given(data=st.binary(max_size=5000))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_round_trip(store: ArtifactStore, data: bytes) -> None:
    sha256 = store.put(data)
    assert sha256 == hashlib.sha256(data).hexdigest()
    assert store.get(sha256) == data
    assert store.has(sha256)
    assert zlib.decompress(file_of(store, sha256).read_bytes()) == data


@pytest.mark.parametrize("size", [0, 1, module._CHUNK - 1, module._CHUNK, 3 * module._CHUNK + 7])
def test_put_file_equals_put(store: ArtifactStore, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    source = tmp_path / "source"
    source.write_bytes(data)
    assert store.put_file(source) == store.put(data) == hashlib.sha256(data).hexdigest()
    assert store.get(hashlib.sha256(data).hexdigest()) == data
    assert list((store.root / "tmp").iterdir()) == []


def test_put_file_that_cannot_be_read(store: ArtifactStore, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read"):
        store.put_file(tmp_path / "absent")
    with pytest.raises(StorageError, match="cannot read"):
        store.put_file(tmp_path)


def test_listing_size_and_removal(store: ArtifactStore) -> None:
    names = {store.put(bytes([number]) * 100) for number in range(20)}
    (store.root / "ab").mkdir(exist_ok=True)
    (store.root / "ab" / "not-an-artifact").write_text("x")
    listed = {sha256: (size, put) for sha256, size, put in store.all()}
    assert set(listed) == names
    for sha256, (size, put) in listed.items():
        assert size == store.size(sha256) == file_of(store, sha256).stat().st_size
        assert abs(put - time.time()) < 60
    gone = names.pop()
    assert store.remove(gone) == listed[gone][0]
    assert store.remove(gone) == 0
    assert not store.has(gone)
    assert store.size(gone) is None
    with pytest.raises(MissingArtifactError) as caught:
        store.get(gone)
    assert gone[:12] in str(caught.value)
    assert {sha256 for sha256, _, _ in store.all()} == names


def test_removal_spares_what_was_put_since(store: ArtifactStore) -> None:
    sha256 = store.put(DATA)
    os.utime(file_of(store, sha256), (1000, 1000))
    assert store.put(DATA) == sha256  # renews the time
    assert store.remove(sha256, put_until=2000) == 0
    assert store.get(sha256) == DATA
    os.utime(file_of(store, sha256), (1000, 1000))
    assert store.remove(sha256, put_until=2000) > 0
    assert not store.has(sha256)


def test_an_artifact_is_not_written_twice(store: ArtifactStore) -> None:
    sha256 = store.put(DATA)
    inode = file_of(store, sha256).stat().st_ino
    store.put(DATA)
    assert file_of(store, sha256).stat().st_ino == inode


@pytest.mark.parametrize("name", ["", "abc", "../../etc/passwd", "A" * 64, "f" * 63 + "/"])
def test_a_name_that_is_no_sha256_leads_nowhere(store: ArtifactStore, name: str) -> None:
    assert not store.has(name)
    assert store.remove(name) == 0
    with pytest.raises(MissingArtifactError):
        store.get(name)


def assert_damaged_then_made_again(store: ArtifactStore, sha256: str, data: bytes) -> None:
    with pytest.raises(DamagedArtifactError) as caught:
        store.get(sha256)
    assert sha256[:12] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not store.has(sha256)
    with pytest.raises(MissingArtifactError):
        store.get(sha256)
    assert store.put(data) == sha256
    assert store.get(sha256) == data


def test_truncation_at_every_byte(store: ArtifactStore) -> None:
    data = b"short text that compresses a little, a little"
    sha256 = store.put(data)
    whole = file_of(store, sha256).read_bytes()
    for length in range(len(whole)):
        file_of(store, sha256).write_bytes(whole[:length])
        assert_damaged_then_made_again(store, sha256, data)


def test_every_flipped_bit_is_seen_or_harmless(store: ArtifactStore) -> None:
    data = bytes(range(256)) * 2
    sha256 = store.put(data)
    whole = file_of(store, sha256).read_bytes()
    damaged = 0
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        file_of(store, sha256).write_bytes(changed)
        try:
            assert store.get(sha256) == data  # a header bit that means nothing
        except DamagedArtifactError:
            damaged += 1
            assert not store.has(sha256)
        store.put(data)
    assert damaged >= 8 * (len(whole) - 2)


def test_other_content_and_trailing_bytes_are_damage(store: ArtifactStore) -> None:
    sha256 = store.put(DATA)
    file_of(store, sha256).write_bytes(zlib.compress(DATA + b"!"))
    assert_damaged_then_made_again(store, sha256, DATA)
    with file_of(store, sha256).open("ab") as file:
        file.write(b"more")
    assert_damaged_then_made_again(store, sha256, DATA)


def test_a_bomb_is_not_expanded(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    monkeypatch.setattr(module, "_LARGEST", 2**20)
    sha256 = store.put(DATA)
    file_of(store, sha256).write_bytes(zlib.compress(bytes(200 * 2**20)))
    tracemalloc.start()
    try:
        assert_damaged_then_made_again(store, sha256, DATA)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()
    with file_of(store, sha256).open("r+b") as file:
        file.truncate(2**40)  # sparse: reading it all would not end well
    assert_damaged_then_made_again(store, sha256, DATA)


def test_one_that_is_too_large_is_refused(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LARGEST", 1000)
    source = tmp_path / "source"
    source.write_bytes(bytes(1001))
    with pytest.raises(StorageError, match="over 1000 bytes"):
        store.put(bytes(1001))
    with pytest.raises(StorageError, match="over 1000 bytes"):
        store.put_file(source)
    assert list(store.all()) == []
    assert list((store.root / "tmp").iterdir()) == []
    assert store.get(store.put(bytes(1000))) == bytes(1000)


def test_a_sound_file_put_meanwhile_is_not_deleted(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = store.put(DATA)
    path = file_of(store, sha256)
    sound = path.read_bytes()
    path.write_bytes(sound[:-1])
    inflate = module._inflate

    def inflate_and_race(file: BinaryIO, size: int, sha256: str) -> bytes | None:
        data: bytes | None = inflate(file, size, sha256)
        fresh = path.with_suffix(".fresh")
        fresh.write_bytes(sound)
        fresh.replace(path)
        return data

    monkeypatch.setattr(module, "_inflate", inflate_and_race)
    with pytest.raises(DamagedArtifactError):
        store.get(sha256)
    monkeypatch.undo()
    assert store.get(sha256) == DATA


def test_temporary_files_of_killed_writers_are_swept(store: ArtifactStore) -> None:
    old, young = store.root / "tmp" / "1-old", store.root / "tmp" / "2-young"
    old.write_bytes(b"x")
    young.write_bytes(b"x")
    os.utime(old, (time.time() - 3700,) * 2)
    ArtifactStore(store.root)
    assert not old.exists()
    assert young.exists()


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="file"):
        ArtifactStore(tmp_path / "file" / "artifacts")


def test_write_that_fails_midway_leaves_nothing(store: ArtifactStore) -> None:
    """A file-size limit makes the write fail as a full disk does, for root too."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
            try:
                store.put(os.urandom(200_000))
            except StorageError as error:
                code = 0 if "\n" not in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert list(store.all()) == []
    assert list((store.root / "tmp").iterdir()) == []


WRITER = """
import os, sys
from pathlib import Path
from harness.store.artifacts import ArtifactStore
store = ArtifactStore(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    store.put(os.urandom(300_000))
"""


def test_kill_9_never_leaves_half_an_artifact(store: ArtifactStore) -> None:
    for attempt in range(10):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(store.root)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        with writer, writer.stdout:
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(0.003 * attempt)
            # On a busy machine nothing may have been written yet: the last one has the time.
            while attempt == 9 and not any(store.all()):
                time.sleep(0.01)
            writer.kill()
    names = [sha256 for sha256, _, _ in store.all()]
    assert names
    for sha256 in names:
        store.get(sha256)


BOMB = """
import hashlib, sys
from pathlib import Path
from harness.store.artifacts import ArtifactStore, DamagedArtifactError
store = ArtifactStore(Path(sys.argv[1]))
try:
    store.get(sys.argv[2])
except DamagedArtifactError:
    # Not ru_maxrss, which begins at the size of the process that started this one.
    status = Path("/proc/self/status").read_text()
    print(int(status.split("VmHWM:")[1].split()[0]) >> 10)
"""


@pytest.mark.parametrize("gib", [1, pytest.param(3, marks=pytest.mark.long)])
def test_what_expands_to_gigabytes_is_not_held(store: ArtifactStore, gib: int) -> None:
    """A few MB on disk, under a name that is not its own; 1 GiB is the most that one may have."""
    sha256 = hashlib.sha256(b"another").hexdigest()
    packer = zlib.compressobj(1)
    path = file_of(store, sha256)
    path.parent.mkdir()
    block = bytes(1 << 24)
    with path.open("wb") as file:
        for _ in range(gib << 6):
            file.write(packer.compress(block))
        file.write(packer.flush())
    words = [sys.executable, "-c", BOMB, str(store.root), sha256]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 300  # MiB


def test_a_large_artifact_comes_back(store: ArtifactStore) -> None:
    data = bytes(100 << 20)
    sha256 = store.put(data)
    assert store.get(sha256) == data
    path = file_of(store, sha256)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(DamagedArtifactError):
        store.get(sha256)
