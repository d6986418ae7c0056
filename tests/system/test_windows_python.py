"""hloom on Windows' Python, under Wine where there is one: programs, threads, files and the command."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hloom as hl
from conftest import CORPUS, ROOT
from foreign_python import Missing
from hloom.bench.workloads import Workload, find_workloads
from hloom.comparison import Comparison
from hloom.files.arrays import flat, read_arrays, take_value
from hloom.values import Value
from run_on_windows import prepare

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]
CASES = int(os.environ.get("HLOOM_CASES", "4000")) // 10
"""The number of programs of the corpus, at most."""
OTHER_BITS = "other bits"


@pytest.fixture(scope="module")
def python() -> Path:
    """The command that runs Python on Windows."""
    try:
        return prepare()
    except (Missing, subprocess.SubprocessError) as error:
        pytest.skip(str(error))


def run(*command: object, **environment: str) -> str:
    """Returns what a command prints."""
    variables = os.environ | environment
    done = subprocess.run([*map(str, command)], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=2500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def value_in(path: Path, module: hl.Module) -> Value:
    return take_value(read_arrays(str(path)), module.entry.root.shape, itertools.count(), "r", "")


def compare(workload: Workload, one: Path, other: Path) -> str:
    """Says how the results of a program in two folders differ; "" if not, OTHER_BITS within the rule for results."""
    module = hl.load(workload.module)
    name = f"{workload.name}.npz"
    if not (one / name).exists() or not (other / name).exists():
        return "an error on one system"
    got, want = (value_in(folder / name, module) for folder in (one, other))
    if [leaf.tobytes() for leaf in flat(got)] == [leaf.tobytes() for leaf in flat(want)]:
        return ""
    return Comparison(module, [workload.arguments(module)]).difference(got, want) or OTHER_BITS


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_results_are_those_of_linux(backend: str, python: Path, tmp_path: Path) -> None:
    workloads = find_workloads([CORPUS], all_cases=True)
    workloads = workloads[:: -(-len(workloads) // CASES)]
    script, names = Path(__file__).with_name("corpus_results.py"), [workload.name for workload in workloads]
    folders = tmp_path / "windows", tmp_path / "linux"
    for command, folder in zip((python, sys.executable), folders, strict=True):
        folder.mkdir()
        run(command, script, folder, backend, *names)
    differences = {workload.name: compare(workload, *folders) for workload in workloads}
    # The interpreter calls NumPy and SciPy, which another compiler made.
    same = ("", OTHER_BITS) if backend == "interpreter" else ("",)
    assert {name: text for name, text in differences.items() if text not in same} == {}


@pytest.mark.parametrize(
    "command", ["show", "check --random 1", "run --random 1", "run --random 1 --compare interpreter"]
)
def test_commands_print_what_they_print_on_linux(command: str, python: Path) -> None:
    arguments = "-m", "hloom", *command.split(), "tests/corpus/attention_masked/module.hlo"
    texts = [run(command, *arguments) for command in (python, sys.executable)]
    lines = [[line for line in text.splitlines() if "compiled in" not in line] for text in texts]
    assert lines[0] == lines[1] and len(lines[0]) > 1 - ("check" in arguments)


def test_programs_are_found_on_disk(python: Path, tmp_path: Path) -> None:
    script = Path(__file__).with_name("corpus_results.py")
    kept = []
    for _ in range(2):
        run(python, script, tmp_path, "cpu", "attention_masked", HLOOM_CACHE_DIR=f"Z:{tmp_path}")
        kept.append(
            {path.name: path.stat().st_mtime for path in tmp_path.iterdir() if path.suffix in (".o", ".program")}
        )
    assert any(name.endswith(".program") for name in kept[0]) and kept[0].keys() == kept[1].keys()


PROCESSES = """
import _thread, json, threading
import numpy as np
import hloom as hl
from hloom.system.child import Child

LOOP = '''HloModule m
b { p = (s32[]) parameter(0)
    i = s32[] get-tuple-element(p), index=0
    ROOT t = (s32[]) tuple(s32[] add(i, s32[] constant(1))) }
c { p = (s32[]) parameter(0)
    i = s32[] get-tuple-element(p), index=0
    ROOT l = pred[] compare(i, s32[] constant(0)), direction=GE }
ENTRY e { x = s32[] parameter(0)
    ROOT w = (s32[]) while((s32[]) tuple(x)), condition=c, body=b }'''
LONG = "HloModule m\\nENTRY e { x0 = f32[] parameter(0)\\n"
LONG += "".join(f"x{k + 1} = f32[] add(x{k}, f32[] sine(x{k}))\\n" for k in range(20000)) + "ROOT r = f32[] negate(x20000) }"

def interrupted(work, *arguments):
    threading.Timer(0.5, _thread.interrupt_main).start()
    try:
        work(*arguments)
    except KeyboardInterrupt:
        return True

runs = [hl.compile(LOOP, backend) for backend in ("cpu", "interpreter")]
assert all(interrupted(run, np.int32(1)) for run in runs)
assert interrupted(hl.compile, LONG)
child = Child("hloom.explorer.live")
answer = json.loads(child.request(b"check\\nHloModule m\\nENTRY e { ROOT x = f32[2] parameter(0) }", 300))
assert "graph" in answer, answer
"""


def test_interrupts_and_child_processes(python: Path, tmp_path: Path) -> None:
    script = tmp_path / "processes.py"
    script.write_text(PROCESSES)
    assert run(python, script, HLOOM_CACHE_DIR="") == ""
