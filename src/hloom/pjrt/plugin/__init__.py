"""The PJRT plugin for programs that are not Python: a shared library that exports `GetPjrtApi`."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from importlib.resources import files
from pathlib import Path

from hloom.aot.link import compiled_library
from hloom.aot.targets import target_of
from hloom.errors import ArgumentError
from hloom.system.machine import cache_folder_of_user
from hloom.system.own_files import make_own_folder, read_own, write_own


def library_path() -> Path:
    """Returns the path of `libpjrt_hloom.so`, which is compiled at first use into the user's cache folder.

    The library finds this Python and its modules by their paths; if the process that loads it runs Python, it joins
    that. Raises ArgumentError if there is no C compiler, no shared library of Python or no cache folder.
    """
    source = _source()
    cache = cache_folder_of_user()
    folder = None if cache is None else cache / f"plugin-{hashlib.sha256(source).hexdigest()[:16]}"
    if folder is None or not make_own_folder(folder):
        raise ArgumentError("the plugin is kept in the user's cache folder, which cannot be written")
    path = folder / "libpjrt_hloom.so"
    if read_own(path) is None:
        write_own(path, compiled_library({"plugin.c": source}, target_of("native")))
    return path


def _source() -> bytes:
    """Returns the source in C, with the paths of this Python and its modules."""
    folders = ":".join(str(Path(folder).resolve()) for folder in sys.path if folder)
    definitions = {"LIBPYTHON": _python_library(), "SEARCH_PATH": folders}
    head = "".join(f"#define {name} {_c_string(value)}\n" for name, value in definitions.items())
    return head.encode() + (files("hloom.pjrt.plugin") / "plugin.c").read_bytes()


def _python_library() -> str:
    """Returns the path of Python's shared library. Raises ArgumentError if there is none."""
    names = [sysconfig.get_config_var(name) for name in ("INSTSONAME", "LDLIBRARY")]
    folders = [sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LIBPL"), f"{sys.base_prefix}/lib"]
    for folder in filter(None, folders):
        for name in filter(None, names):
            path = Path(folder) / name
            if path.is_file() and ".a" not in path.suffixes:
                return str(path)
    raise ArgumentError(
        "this Python has no shared library (libpython): the plugin needs one built with --enable-shared"
    )


def _c_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
