"""Bundles: what is packed comes out again, on every Python that is supported, and nothing else."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from harness.io.packages.archives import pack_bundle, unpack_bundle
from harness.values.errors import IntegrityError

FILES = {"min.ptx": b".version 8.0\n", "repro.sh": b"#!/bin/sh\n"}


def test_a_bundle_comes_out_as_it_went_in(tmp_path: Path) -> None:
    pack_bundle(tmp_path / "b.tar.gz", FILES, folder="case")
    unpack_bundle(tmp_path / "b.tar.gz", tmp_path / "out")
    found = {path.name: path.read_bytes() for path in (tmp_path / "out" / "case").iterdir()}
    assert found == FILES
    assert (tmp_path / "out" / "case" / "repro.sh").stat().st_mode & 0o100


def test_unpacking_needs_no_filter_of_tarfile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.10.0 - 3.10.11 and 3.11.0 - 3.11.3 have none."""
    monkeypatch.delattr(tarfile, "data_filter", raising=False)

    def old(_self: tarfile.TarFile, path: Path = Path(), members: object = None) -> None:
        raise AssertionError((path, members))

    monkeypatch.setattr(tarfile.TarFile, "extractall", old)
    pack_bundle(tmp_path / "b.tar.gz", FILES, folder="case")
    unpack_bundle(tmp_path / "b.tar.gz", tmp_path / "out")
    assert (tmp_path / "out" / "case" / "min.ptx").read_bytes() == FILES["min.ptx"]


@pytest.mark.parametrize("name", ["../evil", "/evil", "case/../../evil"])
def test_a_member_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = 2
        archive.addfile(member, io.BytesIO(b"no"))
    with pytest.raises(IntegrityError):
        unpack_bundle(tmp_path / "b.tar.gz", tmp_path / "out")
    assert not (tmp_path / "evil").exists()
