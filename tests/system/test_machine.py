"""The number of processors that this process may use, and queries of the operating system."""

import os
import re
from pathlib import Path

import pytest

from conftest import ROOT
from hloom.errors import ArgumentError, RunError
from hloom.system import machine
from hloom.system.forks import at_fork
from hloom.system.machine import architecture, control_groups, cpu_quota, thread_count


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "1.5", "4097", "²"])
def test_a_bad_number_of_threads_is_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_NUM_THREADS", text)
    with pytest.raises(ArgumentError, match=f"^HLOOM_NUM_THREADS must be an integer from 1 to 4096, got '{text}'$"):
        thread_count()


def test_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLOOM_NUM_THREADS", raising=False)
    assert 1 <= thread_count() <= (os.cpu_count() or 1)
    monkeypatch.setenv("HLOOM_NUM_THREADS", "7")
    assert thread_count() == 7


@pytest.mark.parametrize("variable", ["MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"])
def test_ranks_on_one_machine_share_its_processors(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLOOM_NUM_THREADS", raising=False)
    monkeypatch.setattr(machine, "control_groups", lambda controller: [])
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(machine, "core_count", lambda: 16)
    monkeypatch.setenv(variable, "5")
    assert thread_count() == 3
    monkeypatch.setenv(variable, "64")
    assert thread_count() == 1
    monkeypatch.setattr(machine, "core_count", lambda: 4)  # bound
    assert thread_count() == 4


@pytest.mark.parametrize(
    "files, quota",
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, float("inf")),
        ({"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, float("inf")),
        ({"cpu.max": "nonsense"}, float("inf")),
        ({}, float("inf")),
    ],
)
def test_quotas_of_control_groups(files: dict[str, str], quota: float, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert cpu_quota(tmp_path) == quota


def test_control_groups_up_to_the_root(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("4:memory:/m\n3:cpu,cpuacct:/a/b\n0::/x\n")
    assert [str(group.relative_to(tmp_path)) for group in control_groups("cpu", tmp_path, membership)] == [
        "cpu/a/b",
        "cpu/a",
        "cpu",
        "x",
        ".",
    ]
    assert list(control_groups("cpu", tmp_path, tmp_path / "none")) == []


@pytest.mark.parametrize(("name", "wanted"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("aarch64", "aarch64")])
def test_an_architecture_has_one_name(name: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: name)
    assert architecture() == wanted


def test_other_architectures_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(RunError, match="runs on x86-64 and AArch64, this is a riscv64"):
        architecture()


def test_nothing_is_registered_where_nothing_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "register_at_fork")
    at_fork(after_in_child=pytest.fail)


def test_only_one_file_queries_the_operating_system() -> None:
    queries = r"sys\.platform|platform\.(machine|system|processor)\(|os\.name\b|/proc/|/sys/fs|os\.sched_getaffinity"
    files = [path for path in (ROOT / "src").rglob("*.py") if re.search(queries, path.read_text())]
    assert [path.relative_to(ROOT / "src" / "hloom").as_posix() for path in files] == ["system/machine.py"]
