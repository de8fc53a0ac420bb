"""Directories and files of the cache on disk that another user owns or may change, and things in the
place of its files that are no files. As root, the tests play both users.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from pathlib import Path

import pytest
from processes import succeeds

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the permissions are those of POSIX")
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
OTHER = 12345

PROGRAM = """
import girih as gr
gr.warmup()
x = gr.ones([5, 5])
for i in range(3):
    x = gr.softmax(gr.sin(x) + i, 1)
print(x.sum().item(), gr.cache_stats()["disk_hits"])
"""


def computed(cache: Path, **variables: str) -> int:
    """Runs a program with this cache; returns the number of programs that it found on disk."""
    settings = {"GIRIH_CACHE": "1", "GIRIH_CACHE_MIN_COMPILE_MS": "0"}
    settings |= {"GIRIH_CACHE_DIR": str(cache), **variables}
    total, hits = succeeds(PROGRAM, seconds=30, **settings).split()
    assert float(total) == pytest.approx(5, rel=1e-6)
    return int(hits)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_cache_of_the_user_is_used_by_the_next_process(tmp_path):
    cache = tmp_path / "cache"
    assert computed(cache) == 0
    assert computed(cache) > 0
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    for path in cache.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_relative_directory_and_a_link_of_the_user_are_used(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    assert computed(Path("link/inner")) == 0
    assert computed(Path("real/inner")) > 0


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o772])
@pytest.mark.parametrize("place", ["the directory", "a folder around it", "beyond a link"])
def test_nothing_is_stored_where_others_may_write(tmp_path, mode, place):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    cache = shared if place == "the directory" else shared / "inner/cache"
    if place == "beyond a link":
        cache = tmp_path / "link"
        cache.symlink_to(shared / "inner")
        (shared / "inner").mkdir(mode=0o700)
    assert computed(cache) == 0
    assert computed(cache) == 0
    assert files(shared) == []


def test_a_folder_with_the_sticky_bit_may_be_around_the_cache(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    assert computed(shared / "cache") == 0
    assert computed(shared / "cache") > 0


@pytest.mark.skipif(not IS_ROOT, reason="only root can give files away")
@pytest.mark.parametrize("place", ["the directory", "a folder around it", "a link"])
def test_nothing_is_stored_where_another_user_owns_the_way(tmp_path, place):
    theirs, victim = tmp_path / "theirs", tmp_path / "victim"
    theirs.mkdir()
    (theirs / "cache").mkdir(mode=0o700)
    victim.write_text("precious")
    cache = theirs / "cache"
    if place == "the directory":
        (cache / "calibration").symlink_to(victim)
        os.chown(cache, OTHER, OTHER)
        cache.chmod(0o777)
    elif place == "a folder around it":
        os.chown(theirs, OTHER, OTHER)
    else:
        link = tmp_path / "link"
        link.symlink_to(cache)
        os.lchown(link, OTHER, OTHER)
        cache = link
    assert computed(cache) == 0
    assert computed(cache) == 0
    assert victim.read_text() == "precious"
    assert [name for name in files(theirs) if "calibration" not in name] == []


KINDS = ["fifo", "socket", "device", "directory", "link", "dangling link", "hard link"]


@pytest.mark.parametrize("kind", KINDS)
def test_anything_in_the_place_of_a_file_is_harmless(tmp_path, monkeypatch, kind):
    cache, victim = tmp_path / "cache", tmp_path / "victim"
    assert computed(cache) == 0
    victim.write_text("precious")
    places = [cache / "calibration", *cache.glob("programs/*.plan")]
    assert len(places) > 1
    for place in places:
        place.unlink(missing_ok=True)
        match kind:
            case "fifo":
                os.mkfifo(place)
            case "socket":
                monkeypatch.chdir(place.parent)  # The path of a socket has at most 107 bytes.
                with socket.socket(socket.AF_UNIX) as bound:
                    bound.bind(place.name)
            case "device" if IS_ROOT and sys.platform == "linux":
                try:
                    os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(1, 5))
                except PermissionError:
                    pytest.skip("no devices can be made here")
            case "device":
                pytest.skip("only root can make devices")
            case "directory":
                place.mkdir()
            case "link":
                place.symlink_to(victim)
            case "dangling link":
                place.symlink_to(tmp_path / "nothing")
            case "hard link":
                place.hardlink_to(victim)
    assert computed(cache) == 0
    assert victim.read_text() == "precious"
    assert not (tmp_path / "nothing").exists()
    if kind != "directory":
        assert computed(cache) > 0, "the programs were stored again"
