"""The cache of machine code on disk."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu import object_cache

TEXT = "HloModule m\nENTRY e {\n  x = f32[5] parameter(0)\n  ROOT y = f32[5] add(x, x)\n}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_a_second_compilation_takes_the_object_file_from_disk(folder: Path) -> None:
    made = []

    def make() -> bytes:
        made.append(1)
        return b"code"

    assert object_cache.cached("text", "target", make) == b"code"
    assert object_cache.cached("text", "target", make) == b"code"
    assert object_cache.cached("text", "other target", make) == b"code"
    assert len(made) == 2
    assert len(list(folder.glob("*.o"))) == 2


@pytest.mark.parametrize("damage", [b"", b"x", b"x" * 100])
def test_a_damaged_file_counts_as_missing_and_is_mended(folder: Path, damage: bytes) -> None:
    run = hl.compile(TEXT, backend="cpu")
    (file,) = folder.glob("*.o")
    whole = file.read_bytes()
    file.write_bytes(damage or whole[:-1])
    again = hl.compile(TEXT, backend="cpu")
    x = np.arange(5, dtype=np.float32)
    assert (run(x) == 2 * x).all() and (again(x) == 2 * x).all()
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_to_does_not_matter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(blocked / "sub"))
    x = np.arange(5, dtype=np.float32)
    assert (hl.compile(TEXT, backend="cpu")(x) == 2 * x).all()


def test_an_empty_name_keeps_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HLOOM_CACHE_DIR", "")
    hl.compile(TEXT, backend="cpu")
    assert object_cache.cache_folder() is None
    assert not os.listdir(tmp_path)


def test_the_least_recently_used_files_go_first(tmp_path: Path) -> None:
    for k in range(4):
        (tmp_path / f"{k}.o").write_bytes(bytes(10))
        os.utime(tmp_path / f"{k}.o", (k, k))
    os.utime(tmp_path / "0.o")
    object_cache.remove_oldest(tmp_path, 25)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.o", "3.o"]


def test_processes_may_write_at_once(folder: Path) -> None:
    program = f"import hloom as hl, numpy as np\nprint(hl.compile({TEXT!r}, backend='cpu')(np.ones(5, 'f4')).sum())"
    running = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0].strip() for process in running] == ["10.0"] * 3
    assert len(list(folder.glob("*.o"))) == 1
    assert not list(folder.glob(".*.part"))
