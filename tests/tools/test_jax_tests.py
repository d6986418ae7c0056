"""tools/jax_tests: storing, comparing and grouping results, and workers whose tests crash and hang."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import json_lines
from jax_tests import results, shards
from jax_tests.results import Comparison, Result


def result(test: str, outcome: str = results.PASSED, error: str = "") -> Result:
    return Result(test, outcome, 0.5, error)


def by_id(*given: Result) -> dict[str, Result]:
    return {each.test: each for each in given}


def test_results_survive_the_file_and_the_last_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "cpu" / "a.jsonl"
    for each in (result("a", results.CRASHED, "killed"), result("b"), result("a")):
        json_lines.append(path, each)
    assert results.read(path) == by_id(result("a"), result("b"))
    assert results.read(tmp_path / "absent.jsonl") == {}


def test_only_what_passes_on_the_peer_is_expected_to_pass() -> None:
    peer = by_id(result("a"), result("b", results.FAILED), result("c", results.SKIPPED), result("d"), result("e"))
    mine = by_id(result("a"), result("b"), result("c", results.SKIPPED), result("d", results.SKIPPED, "no"))
    comparison = Comparison("file", peer, mine)
    assert comparison.expected == ["a", "d"]
    assert comparison.lost == [mine["d"]], "a test that is skipped here alone is lost"
    assert comparison.rate == 0.5
    assert comparison.skipped() == (1, 2)


@pytest.mark.parametrize(
    "one, other",
    [
        ("dot[DOT-1]: f32[3,4] and f32[5]", "dot[DOT-1]: f32[2] and f32[7,8,9]"),
        ("ValueError: 3 of 16 at 0x7f0a12", "ValueError: 12 of 2 at 0xdeadbeef"),
        ("tolerance rtol=1e-06, atol=0.25", "tolerance rtol=0.001, atol=1e-05"),
        ("no op for %add.3 : tensor<3xf32>", "no op for %add.71 : tensor<?x4xf32>"),
        ("shapes (3, 4) [1, 2]", "shapes () [7]"),
    ],
)
def test_errors_that_differ_in_values_and_shapes_have_one_cause(one: str, other: str) -> None:
    failures = [result("f.py::T::t1", results.FAILED, one), result("f.py::T::t2", results.FAILED, other)]
    (cause,) = results.causes(failures)
    assert cause.results == failures
    assert cause.functions == {"f::t": 2}


def test_element_types_and_clauses_distinguish_causes() -> None:
    errors = ["no f32[3]", "no s32[3]", "pad[PAD-2]: no", "pad[PAD-3]: no", "no f8e4m3fn[2]"]
    assert len(list(results.causes(result("f.py::t", results.FAILED, error) for error in errors))) == 5


def test_causes_come_by_frequency() -> None:
    errors = ["rare", "common", "common"]
    causes = list(results.causes(result(f"f.py::t{n}", results.FAILED, error) for n, error in enumerate(errors)))
    assert [cause.message for cause in causes] == ["common", "rare"]


TESTS = """
import os, signal, time, unittest

class Test(unittest.TestCase):
    def test_passes(self): pass
    def test_fails(self): self.assertEqual(1, 2)
    def test_skips(self): self.skipTest("not today")
    def test_crashes(self): os.kill(os.getpid(), signal.SIGSEGV)
    def test_hangs(self): time.sleep(60)
    def test_z_comes_last(self):
        with self.subTest(): self.skipTest("a subtest only")
"""


@pytest.fixture
def setting(tmp_path: Path) -> shards.Setting:
    """A checkout whose tests end in every possible way."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "all_test.py").write_text(TESTS)
    (tmp_path / "tests" / "broken_test.py").write_text("import no_such_module")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return shards.Setting(tmp_path, "cpu", seconds=2)


@pytest.mark.long
def test_a_crash_and_a_hang_affect_one_test_each(setting: shards.Setting) -> None:
    tests = shards.collect(setting, "tests/all_test.py")
    ends = {each.test.split("_", 2)[-1]: each for each in shards.run(setting, "tests/all_test.py", tests)}
    assert {name: end.outcome for name, end in ends.items()} == {
        "passes": results.PASSED,
        "fails": results.FAILED,
        "skips": results.SKIPPED,
        "crashes": results.CRASHED,
        "hangs": results.HUNG,
        "z_comes_last": results.PASSED,
    }
    assert ends["fails"].error == "AssertionError: 1 != 2"
    assert ends["skips"].error == "Skipped: not today"
    assert ends["crashes"].error == "killed by SIGSEGV"
    assert "Segmentation fault" in ends["crashes"].details
    assert ends["hangs"].error == "longer than 2 s"


def test_a_file_that_cannot_be_imported_is_broken(setting: shards.Setting) -> None:
    with pytest.raises(shards.Broken, match="no_such_module"):
        shards.collect(setting, "tests/broken_test.py")


def test_missing_tests_are_not_waited_for(setting: shards.Setting) -> None:
    with pytest.raises(shards.Broken, match="none of 1 tests were found"):
        list(shards.run(setting, "tests/all_test.py", ["tests/all_test.py::Test::test_nothing"]))


def test_settings_reach_the_environment(setting: shards.Setting) -> None:
    environment = dataclasses.replace(setting, x64=True).environment()
    assert environment["JAX_PLATFORMS"] == "cpu"
    assert environment["JAX_ENABLE_X64"] == "1"
