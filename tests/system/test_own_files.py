"""Files that others may have written are not read; only the user can read the user's key."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hloom.system import own_files
from hloom.system.own_files import is_own_folder, make_own_folder, read_own, user_key

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


def give_away(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY)


def opened(mode: int) -> Callable[[Path], None]:
    return lambda path: path.chmod(mode)


FOREIGN = [
    pytest.param(opened(0o622), id="others-may-write"),
    pytest.param(opened(0o660), id="group-may-write"),
    pytest.param(give_away, id="of-somebody-else", marks=needs_root),
]


@pytest.mark.parametrize("make_foreign", FOREIGN)
def test_a_file_that_others_may_write_is_not_read(make_foreign: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert read_own(path) == b"content"
    make_foreign(path)
    with pytest.warns(UserWarning, match=f"nothing in {tmp_path} that others may have written: file is of") as caught:
        assert [read_own(path) for _ in range(3)] == [None] * 3
    assert len(caught) == 1


def test_neither_links_nor_pipes_nor_folders_are_read(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"content")
    link, pipe, folder = tmp_path / "link", tmp_path / "pipe", tmp_path / "folder"
    link.symlink_to(target)
    os.mkfifo(pipe)
    folder.mkdir()
    with pytest.warns(UserWarning, match="link is a link") as caught:
        assert read_own(link) is None
    assert read_own(pipe) is None and read_own(folder) is None and read_own(tmp_path / "none") is None
    assert len(caught) == 1


@pytest.mark.parametrize("make_foreign", [*FOREIGN, pytest.param(opened(0o1777), id="as-/tmp")])
def test_a_folder_that_others_may_write_to_is_left_alone(make_foreign: Callable[[Path], None], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    assert not is_own_folder(folder)
    assert make_own_folder(folder) and is_own_folder(folder) and folder.stat().st_mode & 0o777 == 0o700
    make_foreign(folder)
    with pytest.warns(UserWarning, match="it is of user .* and has mode") as caught:
        assert not is_own_folder(folder) and not make_own_folder(folder)
    assert len(caught) == 1


def test_a_folder_that_others_may_only_look_into_is_fine(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    assert make_own_folder(folder)


def test_a_folder_that_cannot_be_created_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert not make_own_folder(tmp_path / "file" / "folder") and not is_own_folder(tmp_path / "file")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(own_files, "cache_folder_of_user", lambda: tmp_path / "hloom")
    return tmp_path / "hloom"


def test_the_key_is_made_once_and_nobody_else_may_read_it(home: Path) -> None:
    key = user_key()
    assert key is not None and len(key) == 32 and len({*key}) > 8
    assert (home / "key").read_bytes() == key and (home / "key").stat().st_mode & 0o777 == 0o600
    own_files._key_in.cache_clear()
    assert user_key() == key and [path.name for path in home.iterdir()] == ["key"]


@pytest.mark.parametrize(
    "spoil",
    [
        opened(0o644),
        opened(0o622),
        lambda path: path.write_bytes(b"short"),
        lambda path: (path.rename(path.with_name("other")), path.symlink_to(path.with_name("other"))),
        pytest.param(give_away, marks=needs_root),
    ],
    ids=["others-may-read", "others-may-write", "short", "a-link", "of-somebody-else"],
)
def test_a_key_that_is_no_secret_is_replaced(spoil: Callable[[Path], None], home: Path) -> None:
    key = user_key()
    spoil(home / "key")
    own_files._key_in.cache_clear()
    assert user_key() not in (key, None)
    assert (home / "key").stat().st_mode & 0o777 == 0o600


def test_there_is_no_key_in_a_folder_that_others_may_write_to(home: Path) -> None:
    home.mkdir()
    home.chmod(0o777)
    with pytest.warns(UserWarning):
        assert user_key() is None
    assert not [*home.iterdir()]


def test_processes_that_start_at_once_have_one_key(tmp_path: Path) -> None:
    program = "from hloom.system.own_files import user_key; print(user_key().hex())"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", program]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(3)]
    assert len({process.communicate()[0] for process in running}) == 1


def test_where_files_have_no_owners_all_are_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows access control lists say who may write, and modes say nothing."""
    monkeypatch.setattr(own_files, "user_id", lambda: None)
    monkeypatch.setattr(own_files, "cache_folder_of_user", lambda: tmp_path)
    monkeypatch.setattr(os, "supports_fd", set())
    tmp_path.chmod(0o777)
    path = tmp_path / "file"
    path.write_bytes(b"content")
    path.chmod(0o666)
    assert is_own_folder(tmp_path) and read_own(path) == b"content"
    key = user_key()
    (tmp_path / "key").chmod(0o666)
    assert key is not None and read_own(tmp_path / "key") == key
