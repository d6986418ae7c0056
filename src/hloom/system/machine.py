"""Queries the operating system about the machine and the resources of this process; no other module does.

hloom is tested on Linux, and on Windows' Python under Wine. What differs is here, for native code in
`backends/cpu/llvm/native/windows.py`. macOS should need nothing more: it has no affinity, control groups or advice
about huge pages.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hloom.errors import ArgumentError, RunError

MAX_THREADS = 4096
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18  # of Linux on x86-64
C_LIBRARY = "ucrtbase" if sys.platform == "win32" else None
"""The name by which ctypes opens the C library: None, all that the process has loaded, except on Windows."""


def thread_count() -> int:
    """HLOOM_NUM_THREADS, or by default the CPUs that affinity and the quotas of control groups allow.

    MPI ranks on one machine share the CPUs, unless each is bound to its own.
    """
    text = os.environ.get("HLOOM_NUM_THREADS")
    if text is None:
        quota = min(map(cpu_quota, control_groups("cpu")), default=math.inf)
        sharing = local_ranks() if core_count() == os.cpu_count() else 1
        return max(1, math.ceil(min(core_count(), MAX_THREADS, quota)) // sharing)
    if not text.isdecimal() or not 1 <= int(text) <= MAX_THREADS:
        raise ArgumentError(f"HLOOM_NUM_THREADS must be an integer from 1 to {MAX_THREADS}, got {text!r}")
    return int(text)


def wants_batch_invariance() -> bool:
    """Whether HLOOM_BATCH_INVARIANT is set: all programs are compiled with `batch_invariant`."""
    return os.environ.get("HLOOM_BATCH_INVARIANT", "") not in ("", "0")


def local_ranks() -> int:
    """The number of processes that MPI started on this machine, from the variables of MPICH and Open MPI."""
    found = (os.environ.get(name, "") for name in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"))
    return max([1, *(int(text) for text in found if text.isdecimal())])


def core_count() -> int:
    """The number of CPUs that this process may use."""
    return len(allowed_cpus())


def allowed_cpus() -> list[int]:
    """The ids of the CPUs that this process may use, in order; all CPUs if the system has no affinity."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def architecture() -> str:
    """`x86_64` or `aarch64`, whatever the system calls it; RunError for any other processor."""
    name = platform.machine().lower()
    if name not in _ARCHITECTURES:
        raise RunError(f"the CPU backend runs on x86-64 and AArch64, this is a {platform.machine()}")
    return _ARCHITECTURES[name]


_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def operating_system() -> str:
    """`linux`, `windows` or `macos`; any other system by Python's name."""
    return {"win32": "windows", "darwin": "macos"}.get(sys.platform, sys.platform)


def processor_name() -> str:
    """The human-readable name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def grants_tile_registers() -> bool:
    """Asks the system for the tile registers of AMX, for all threads of this process; returns whether it grants them.

    Linux may refuse if a thread's stack for signals is too small for their content.
    """
    if sys.platform != "linux" or architecture() != "x86_64":
        return False
    return ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0


def preemptions() -> int:
    """The number of times that the system has taken a CPU from a thread of this process; 0 if it does not count."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def release_freed_memory() -> None:
    """Returns freed memory of all heaps to the system, if the C library can."""
    trim = getattr(ctypes.CDLL(C_LIBRARY), "malloc_trim", None)
    if trim is not None:
        trim(0)


def memory_map_flags() -> tuple[int, int, int]:
    """The protection and flags of `mmap` for memory of this process, and of `madvise` for huge pages; 0 if none."""
    import mmap  # `import hloom` does without it

    names = ("PROT_READ", "PROT_WRITE"), ("MAP_PRIVATE", "MAP_ANONYMOUS"), ("MADV_HUGEPAGE",)
    protection, flags, advice = (sum(getattr(mmap, name, 0) for name in each) for each in names)
    return protection, flags, advice


@functools.cache
def cache_folder_of_user() -> Path | None:
    """hloom's folder in the user's cache directory; None if the user has no home directory."""
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "hloom"
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "hloom"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hloom"
    except RuntimeError:
        return None


def memory_size() -> int:
    """The memory in bytes that this process may use: that of the machine, or the limit of a control group."""
    limits = [_physical_memory()]
    for group in control_groups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
                limits.append(int((group / name).read_text()))
    return min(limits)


def _physical_memory() -> int:
    if sys.platform == "win32":
        status = (ctypes.c_uint64 * 8)(64)  # MEMORYSTATUSEX: its size, and the load; the physical memory follows
        ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(status)
        return status[1]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def control_groups(
    controller: str, mount: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> Iterator[Path]:
    """Yields the directories, v1 and v2, of the control groups that limit this process, from its own up to the root."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root = mount
        elif controller in controllers.split(","):
            root = mount / controller
        else:
            continue
        group = root / path.lstrip("/")
        while group != root:
            yield group
            group = group.parent
        yield root


def cpu_quota(group: Path) -> float:
    """The number of CPUs that a control group may use (cpu.max in v2, cpu.cfs_* in v1); infinite without a limit."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if quota != "max" and int(quota) > 0 else math.inf
    except (OSError, ValueError):
        return math.inf


def user_id() -> int | None:
    """The id of the user that this process runs as; None if files have no owners and modes.

    On Windows they have access control lists instead, which keep the folders of a user's profile from others.
    """
    return os.geteuid() if hasattr(os, "geteuid") else None


def inheriting(handle: int) -> dict[str, Any]:
    """The arguments of `subprocess.Popen` with which a child inherits a file descriptor, or a handle of Windows."""
    if sys.platform == "win32":
        import subprocess

        os.set_handle_inheritable(handle, True)
        return {"startupinfo": subprocess.STARTUPINFO(lpAttributeList={"handle_list": [handle]})}
    return {"pass_fds": [handle]}
