"""tools/xla_tests: extraction of modules from XLA's tests, their comparison, and the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import hloom as hl
from run_xla_tests import main
from xla_tests import modules
from xla_tests.results import Record, Summary, read

TEST = """
TEST(A, B) {
  const char* text = R"(
HloModule first
ENTRY e { ROOT p = f32[2] parameter(0) }
)";
  EXPECT_EQ(R"(not a module)", R"hlo(
add {
  a = f32[] parameter(0)
  ROOT r = f32[] add(a, a)
}
)hlo");
  Run(R"(
HloModule first
ENTRY e { ROOT p = f32[2] parameter(0) }
)");
}
"""

FILE = """HloModule one
ENTRY e { ROOT p = f32[2] parameter(0) }
// -----
HloModule two
ENTRY e {
  p = f32[2] parameter(0)
  ROOT r = f32[2] negate(p)
}
// ----- and a comment
HloModule wrong
ENTRY e { ROOT p = f32[2] parameter(0
"""


MLIR = """// RUN: opt %s
#map = affine_map<(d0) -> (d0)>
sdy.mesh @m = <["x"=2]> // a mesh
module @whole attributes {mhlo.num_partitions = 2 : i32} {
  // func.func @comment() { return }
  func.func private @declared(tensor<f32>) -> tensor<f32>
  func.func @f(%a: tensor<f32> {x = "} // no end"}) -> (tensor<f32> {y}) attributes {z = {}} {
    %0 = call @helper(%a) : (tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @helper(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }
}
// -----
func.func @main() { return }
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "xla" / "service").mkdir(parents=True)
    (tmp_path / "xla" / "service" / "a_test.cc").write_text(TEST)
    (tmp_path / "xla" / "several.hlo").write_text(FILE)
    (tmp_path / "xla" / "a.cc").write_text(TEST)
    (tmp_path / "ops.mlir").write_text(MLIR)
    return tmp_path


def test_modules_are_found_with_their_locations(checkout: Path) -> None:
    assert modules.files(checkout) == ["ops.mlir", "xla/service/a_test.cc", "xla/several.hlo"]
    assert [(m.line, m.text.split()[0]) for m in modules.modules(checkout, "xla/service/a_test.cc")] == [
        (3, "HloModule"),
        (7, "add"),
    ]
    assert [m.line for m in modules.modules(checkout, "xla/several.hlo")] == [1, 3, 9]
    assert [m.line for m in modules.modules(checkout, "ops.mlir")] == [7, 11, 14]
    digests = [m.digest for file in modules.files(checkout) for m in modules.modules(checkout, file)]
    assert len(set(digests)) == 8


def test_a_function_is_extracted_with_its_dependencies(checkout: Path) -> None:
    first, helper, last = (hl.parse(module.text) for module in modules.modules(checkout, "ops.mlir"))
    assert [c.name for c in first.computations] == ["helper", "main"] and first.num_partitions == 2
    assert [c.name for c in helper.computations] == [c.name for c in last.computations] == ["main"]
    assert "@m = <" in next(modules.modules(checkout, "ops.mlir")).text


@pytest.mark.long
def test_a_run_compares_both_sides_and_can_be_resumed(checkout: Path, tmp_path: Path) -> None:
    pytest.importorskip("jaxlib", reason="needs jaxlib, XLA's CPU backend")
    folder = tmp_path / "results"
    arguments = ["run", str(checkout), "--results", str(folder)]
    first = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert first.exit_code == 0, first.output
    records = {r.line: r for r in read(folder / "xla" / "several.hlo.jsonl").values()}
    assert records[1].ran and records[3].ran and not records[1].verdict and not records[3].verdict
    assert set(records[3].seconds) == {"xla", "interpreter", "cpu"}
    assert records[9].xla_error and records[9].error and not records[9].verdict, "both refuse it"
    again = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert "modules" not in again.output
    report = CliRunner().invoke(main, ["report", "--results", str(folder)], catch_exceptions=False)
    assert "total" in report.output


def record(**fields: object) -> Record:
    return Record("d", "f", 1, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (record(), ""),
        (record(xla_error="no", error="no"), ""),
        (record(xla_error="no"), "accepted here alone"),
        (record(error="reduce: no"), "refused: reduce: no"),
        (record(error="bare KeyError: 3"), "no hloom error"),
        (record(xla_error="killed by SIGABRT", error="killed by SIGSEGV"), "no hloom error"),
        (record(round_trip="%a"), "does not come back"),
        (record(unread="no"), "XLA does not read it"),
        (record(ran=True, results={"interpreter": "", "cpu": "result 0 differs"}), "cpu: result 0 differs"),
        (record(results={"cpu": "cannot: it takes devices"}), ""),
        (record(ran=True, seconds={"xla": 0.01, "cpu": 0.2}), "slow"),
        (record(ran=True, seconds={"xla": 1e-6, "cpu": 5e-4}), ""),
        (record(ran=True, host=["%f = fft"]), "calls back"),
    ],
)
def test_verdicts(given: Record, verdict: str) -> None:
    assert given.verdict.startswith(verdict) and bool(given.verdict) == bool(verdict)


def test_a_summary_counts_modules_that_xla_accepts() -> None:
    records = [record(), record(xla_error="no"), record(ran=True, results={"cpu": ""}), record(error="no")]
    summary = Summary.of(records)
    assert (summary.modules, summary.accepted, summary.loaded, summary.ran, summary.same) == (4, 3, 2, 1, 1)


def test_records_are_lines_of_json_of_which_the_last_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [vars(record(error="no")), vars(record())]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    assert read(path) == {"d": record()}
