"""The command `hloom bench`, and its parts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

import hloom as hl
from hloom.bench import isolated, machine, measure
from hloom.bench.chart import axis_ticks, ratio_chart
from hloom.bench.limits import Bandwidth, Limits
from hloom.bench.machine import measure_limits
from hloom.bench.measure import Result, Settings, Times, time_alternately
from hloom.bench.report import figures, summary
from hloom.bench.workloads import Workload, find_workloads, generate
from hloom.cli import main
from hloom.errors import ArgumentError

ADD = """HloModule m
ENTRY e { x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  ROOT z = f32[8] add(x, y) }
"""
RECIPE = {"shape": [8], "dtype": "float32", "dist": "normal", "seed": 9}
SETTINGS = Settings("interpreter", with_peer=True, repeats=1, seconds=1.0)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Two cases tagged bench, one tagged op, and one of two replicas."""
    folder = tmp_path / "corpus"
    for name, description in {
        "bench_one": {"tags": ["bench"]},
        "bench_two": {"tags": ["bench"]},
        "op_three": {"tags": ["op"]},
        "replicated": {"tags": ["bench", "replicas"], "replicas": 2},
    }.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "module.hlo").write_text(ADD)
        recipes = {"generate": [RECIPE, RECIPE]}
        (folder / name / "meta.json").write_text(json.dumps(description | recipes))
    return folder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No measurement of the machine."""
    monkeypatch.setattr(
        "hloom.bench.machine.limits_of_machine", lambda: Limits(2, 1e11, (Bandwidth(1, 1e10, 1e10, 1e10),))
    )


def hloom_bench(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["bench", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


# The command


@pytest.mark.long
def test_workloads_are_timed_beside_xla(corpus: Path, tmp_path: Path, quick: None) -> None:
    pytest.importorskip("jaxlib", reason="needs jaxlib, XLA's CPU backend")
    json_path, plot_path = tmp_path / "o.json", tmp_path / "o.svg"
    status, output = hloom_bench(corpus, "--repeats", 4, "--json", json_path, "--plot", plot_path)
    assert status == 0, output
    assert re.search(r"bench_one( +[\d.]+){6}", output) and "bench_two" in output and "op_three" not in output
    assert "geometric mean" in output and "over 2 of 2 workloads" in output and "100 % are memory 10.0 GB/s" in output
    written = json.loads(json_path.read_text())
    assert written["machine"]["cores"] >= 1 and "numpy" in written["versions"]
    one = written["workloads"][0]
    assert one["byte_count"] == 3 * 32 and one["flop_count"] == 8 and one["status"] == "ok"
    assert len(one["hloom"]["samples"]) == len(one["peer"]["samples"]) == 4
    assert one["ratio"] == pytest.approx(np.median(one["peer"]["samples"]) / np.median(one["hloom"]["samples"]))
    assert "bench_one" in plot_path.read_text()


def test_a_module_file_gets_random_arguments(tmp_path: Path, quick: None) -> None:
    path = tmp_path / "lonely.hlo"
    path.write_text("HloModule m ENTRY e { x = s32[] parameter(0) ROOT y = s32[] add(x, x) }")
    status, output = hloom_bench(path, "--no-peer", "--repeats", 1)
    assert status == 0 and re.search(r"lonely +[\d.]+ +- +- +[\d.]+ +[\d.]+ +- +- ", output)
    assert "geometric mean" not in output


def test_a_wrong_result_or_a_failure_shows_and_makes_the_exit_status_1(
    corpus: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(workload: Workload, *_: Any) -> Result:
        times = {"hloom": Times(0.1, [2e-3]), "peer": Times(0.2, [1e-3])}
        if workload.name == "bench_two":
            return Result(workload.name, "", "wrong", "differs in 1 of 8 elements", **times)
        return Result(workload.name, "", peer_problem="no such thing [a]", hloom=Times(0.1, [2e-3]))

    monkeypatch.setattr(isolated, "measure_isolated", measured)
    status, output = hloom_bench(corpus, "--no-peer")
    assert status == 1
    assert re.search(r"bench_two +2.00 +1.00 +wrong", output)
    assert "bench_two wrong: differs in 1 of 8 elements" in output
    assert "bench_one has no times of XLA: no such thing [a]" in output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["{}", "--filter", "x*"], "no workload matches 'x*'; there are: bench_one, bench_two"),
        (["{}/none"], "there is no file or folder"),
        (["{}/.."], "has no cases: a case is a folder with module.hlo and meta.json"),
        (["{}", "--plot", "o.png"], "--plot draws .svg files, got o.png"),
        (["{}", "--json", "/none/o.json"], "there is no folder /none to write o.json to"),
        (["{}", "--backend", "abacus"], "there is no backend 'abacus'"),
    ],
)
def test_errors_precede_the_measurements(corpus: Path, arguments: list[str], message: str) -> None:
    status, output = hloom_bench(*(argument.format(corpus) for argument in arguments))
    assert status == 2 and message in output


def test_peer_needs_xla(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hloom.bench.peer.has_peer", lambda: False)
    assert hloom_bench(corpus, "--peer") == (2, "error: --peer needs XLA's CPU backend: pip install jax\n")


# Workloads


def test_the_cases_tagged_bench_are_taken_or_all_that_run_on_one_device(corpus: Path) -> None:
    assert [w.name for w in find_workloads([corpus])] == ["bench_one", "bench_two"]
    assert [w.name for w in find_workloads([corpus], "*t*", all_cases=True)] == ["bench_two", "op_three"]
    assert [w.name for w in find_workloads([corpus / "op_three", corpus / "op_three" / "module.hlo"])] == [
        "op_three"
    ] * 2
    for name in ("bench_one", "bench_two"):
        (corpus / name / "meta.json").write_text("{}")
    with pytest.raises(ArgumentError, match="none of the 3 cases .* is tagged bench: take all of them with --all"):
        find_workloads([corpus])


def test_stored_arguments_come_first(corpus: Path) -> None:
    case = corpus / "bench_one"
    np.savez(case / "inputs.npz", p0=np.arange(8, dtype=np.float32), p1=np.zeros(8, np.float32))
    workload = Workload.at(case)
    assert np.array_equal(workload.arguments(hl.load(workload.module))[0], np.arange(8))


def test_arguments_are_made_as_the_description_says() -> None:
    spd = generate({"dist": "spd", "seed": 1}, hl.f32[4, 4])
    assert spd.dtype == np.float32 and np.allclose(spd, spd.T) and (np.linalg.eigvalsh(spd) > 0).all()
    assert np.array_equal(generate({"dist": "tril", "seed": 1}, hl.f32[4, 4]), np.tril(spd))
    whole = generate({"dist": "integers", "seed": 1, "lo": 3, "hi": 5}, hl.s32[100])
    assert whole.dtype == np.int32 and set(whole) == {3, 4}
    assert generate({"dist": "abs_normal", "seed": 1, "lo": 0.5}, hl.bf16[100]).astype(float).min() >= 0.5
    with pytest.raises(ArgumentError, match="no distribution 'cauchy' .* there are: uniform, integers"):
        generate({"dist": "cauchy", "seed": 1}, hl.f32[4])


# Measuring


class OtherXla:
    """A peer that returns a given result, or raises it."""

    result: Any = None

    def translate(self, module: hl.Module) -> hl.Module:
        return module

    def compile(self, module: hl.Module) -> OtherXla:
        return self

    def put(self, arrays: list[Any]) -> list[Any]:
        return arrays

    def arrays(self, buffers: list[Any]) -> list[Any]:
        if isinstance(self.result, Exception):
            raise self.result
        return [self.result]

    def __call__(self, buffers: list[Any]) -> list[Any]:
        return buffers


def measured_beside(result: Any, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setattr(measure, "Peer", OtherXla)
    monkeypatch.setattr(OtherXla, "result", result)
    return measure.measure(Workload.at(corpus / "bench_one"), SETTINGS)


def test_another_result_than_the_peers_is_wrong(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = 2 * generate(RECIPE, hl.f32[8])
    assert measured_beside(right, corpus, monkeypatch).status == "ok"
    result = measured_beside(right + np.float32(1e-3), corpus, monkeypatch)
    assert result.status == "wrong" and result.message.startswith("differs in 8 of 8 elements")
    assert result.ratio is None and result.hloom is not None and result.hloom.samples


def test_a_peer_that_refuses_the_program_leaves_hlooms_times(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = measured_beside(RuntimeError("UNIMPLEMENTED: no\nstack"), corpus, monkeypatch)
    assert (result.status, result.peer_problem, result.peer) == ("ok", "UNIMPLEMENTED: no", None)
    assert result.hloom is not None and len(result.hloom.samples) == 1


def test_a_program_that_hloom_refuses_has_failed(corpus: Path) -> None:
    (corpus / "bench_one" / "module.hlo").write_text(ADD.replace("f32[8] add", "f32[9] add"))
    result = measure.measure(Workload.at(corpus / "bench_one"), SETTINGS)
    assert result.status == "failed" and "GEN-2" in result.message


def test_sides_alternate_until_the_time_limit() -> None:
    called: list[str] = []
    sides = [(lambda name=name: called.append(name), Times(0.0)) for name in "ab"]
    time_alternately(sides, repeats=100, seconds=0)
    assert [len(times.samples) for _, times in sides] == [measure.MIN_SAMPLES] * 2
    order = re.sub(r"(.)\1+", r"\1", "".join(called[2:]))
    assert order == "ab" * measure.MIN_SAMPLES


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replaces the child process by a shell script."""

    def be(script: str) -> None:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr("sys.executable", str(path))

    return be


def isolated_result(corpus: Path, timeout: float = 30.0) -> Result:
    return isolated.measure_isolated(Workload.at(corpus / "bench_one"), SETTINGS, timeout)


def test_a_crash_reports_stage_and_signal(corpus: Path, process: Any) -> None:
    process("""echo '"compiling in hloom"'; kill -SEGV $$""")
    assert (isolated_result(corpus).status, isolated_result(corpus).message) == (
        "crashed",
        "compiling in hloom: SIGSEGV",
    )
    process("""echo 'Traceback ..' >&2; echo 'ValueError: oh' >&2; exit 1""")
    assert isolated_result(corpus).message == "starting: ValueError: oh"


def test_a_process_that_takes_too_long_is_ended(corpus: Path, process: Any) -> None:
    process("""echo '"running in hloom"'; exec sleep 60""")
    result = isolated_result(corpus, timeout=0.5)
    assert (result.status, result.message) == ("timed out", "running in hloom: took more than 0.5 s")


def test_a_result_is_valid_even_if_the_process_crashes_later(corpus: Path, process: Any) -> None:
    result = json.dumps({"workload": "w", "path": "p", "hloom": {"compiling": 1.0, "samples": [1.0]}, "peer": None})
    process(f"echo '{result}'; kill -SEGV $$")
    assert isolated_result(corpus).status == "ok"


def test_hloom_is_timed_alone_where_the_peer_dies(corpus: Path, process: Any) -> None:
    alone = json.dumps({"workload": "w", "path": "p", "hloom": {"compiling": 1.0, "samples": [1.0]}, "peer": None})
    process(
        f"""case "$3" in
        *'"with_peer": true'*) echo '"compiling in XLA"'; kill -ABRT $$ ;;
        *) echo '{alone}' ;;
        esac"""
    )
    result = isolated_result(corpus)
    assert (result.status, result.peer_problem) == ("ok", "compiling in XLA: SIGABRT")
    assert result.hloom == Times(1.0, [1.0])


def test_the_machine_copies_and_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SECONDS", 0.01)
    monkeypatch.setattr(machine, "PASS_BYTES", 8 << 20)
    limits = measure_limits(2, (machine.SIZES[0], machine.MIN_STREAMED_BYTES))
    assert 1e8 < limits.memory.best <= limits.bytes_per_second(1) < 1e13 and 1e8 < limits.flops_per_second < 1e15
    assert all(1e7 < rate < 1e15 for rate in (limits.divisions_per_second, limits.sums_per_second))
    assert 0 < limits.fork_seconds < 1e-2 and 0 < limits.call_seconds < 1e-2


# Showing


def test_figures_are_significant_digits() -> None:
    assert [figures(x) for x in (1234.5, 12.34, 0.012345, 0, float("nan"))] == ["1234", "12.3", "0.0123", "0", "-"]


def test_the_summary_counts_slower_workloads() -> None:
    results = [Result("w", "", hloom=Times(1.0, [ours]), peer=Times(1.0, [1.0])) for ours in (0.25, 1.0, 4.0)]
    assert summary(results) == "XLA/hloom: geometric mean 1.00 over 3 of 3 workloads, 1 slower than XLA"
    assert summary([]) == ""


def test_bars_go_from_1_to_the_ratio_on_a_logarithmic_axis() -> None:
    root = ElementTree.fromstring(ratio_chart([("half", 0.5), ("double<2>", 2.0)], "title", "caption"))
    space = "{http://www.w3.org/2000/svg}"
    double, half = [{k: float(bar.get(k, "")) for k in ("x", "width")} for bar in root.findall(f"{space}rect")[1:]]
    assert double["x"] == pytest.approx(half["x"] + half["width"], abs=0.2)
    assert double["width"] == pytest.approx(half["width"], abs=0.2)
    assert {"half", "double<2>", "0.500", "2.00", "title", "caption"} <= {t.text for t in root.iter(f"{space}text")}


@pytest.mark.parametrize(
    "low, high, ticks",
    [(0.9, 1.1, [0.5, 1, 2]), (0.3, 7, [0.2, 0.5, 1, 2, 5, 10]), (2e-4, 3, [1e-4, 1e-3, 1e-2, 0.1, 1, 10])],
)
def test_ticks_enclose_the_ratios_and_1(low: float, high: float, ticks: list[float]) -> None:
    assert axis_ticks(low, high) == pytest.approx(ticks)
