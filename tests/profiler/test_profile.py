"""Profiles: their counts, coverage and output formats."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ArgumentError
from hloom.profiler import Profile
from hloom.system.machine import thread_count

LOOP = """
HloModule loop

body { state = (s32[], f32[32,32]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[32,32] get-tuple-element(state), index=1
  product = f32[32,32] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[32,32] tanh(product)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT new = (s32[], f32[32,32]) tuple(next, t) }

condition { state = (s32[], f32[32,32]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  limit = s32[] constant(50)
  ROOT less = pred[] compare(i, limit), direction=LT }

ENTRY main { x = f32[32,32] parameter(0)
  zero = s32[] constant(0)
  state = (s32[], f32[32,32]) tuple(zero, x)
  loop = (s32[], f32[32,32]) while(state), condition=condition, body=body
  ROOT y = f32[32,32] get-tuple-element(loop), index=1 }
"""


@pytest.fixture(scope="module")
def found() -> Profile:
    return hl.profile(LOOP, np.ones((32, 32), np.float32), seconds=0.05)


def test_kernels_of_a_loop_count_its_iterations(found: Profile) -> None:
    (product,) = [kernel for kernel in found.kernels if kernel.kind == "dot"]
    assert product.runs == 50
    assert product.flops == 2 * 32**3
    assert product.bytes == 3 * 4 * 32 * 32
    assert product.seconds > 0


def test_threads_wait_while_one_works_alone(found: Profile) -> None:
    assert all(0 <= kernel.waiting < 1 for kernel in found.kernels)
    (product,) = [kernel for kernel in found.kernels if kernel.kind == "dot"]
    assert product.waiting == pytest.approx(1 - 1 / thread_count(), abs=0.01)


def test_threads_that_share_a_kernel_work(found: Profile) -> None:
    """All threads take part in a product of this size, as far as the machine has them free."""
    arrays = [np.ones((768, 768), np.float32)] * 2
    waiting = [hl.profile(product_text(768), *arrays, seconds=0.05).kernels[0].waiting for _ in range(4)]
    assert min(waiting) < 1 - 1 / thread_count() or thread_count() == 1


def product_text(size: int) -> str:
    shape = f"f32[{size},{size}]"
    return (
        f"HloModule m\nENTRY e {{ a = {shape} parameter(0)\n b = {shape} parameter(1)\n"
        f" ROOT c = {shape} dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}"
    )


def test_kernels_account_for_the_call(found: Profile) -> None:
    assert 0.3 < found.accounted <= 1.05


def test_events_are_the_steps_of_one_run_in_order(found: Profile) -> None:
    indices = [index for index, _, _ in found.events]
    product = next(k for k, kernel in enumerate(found.kernels) if kernel.kind == "dot")
    assert 1 <= indices.count(product) <= 50
    assert all(start <= end for _, start, end in found.events)
    assert [start for _, start, _ in found.events] == sorted(start for _, start, _ in found.events)


def test_a_profile_prints_and_saves(found: Profile, tmp_path: Path) -> None:
    assert "dot" in str(found) and "GFLOP/s" in str(found)
    assert "GFLOP/s" in found._repr_html_()
    found.save(str(tmp_path / "p.json"))
    events = json.loads((tmp_path / "p.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"X"}
    pytest.importorskip("matplotlib")
    found.save(str(tmp_path / "p.svg"))
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")
    with pytest.raises(ArgumentError, match=r"saved as \.svg"):
        found.save(str(tmp_path / "p.txt"))
    with pytest.raises(ArgumentError, match="cannot write"):
        found.save(str(tmp_path / "no" / "p.json"))


def test_functions_of_jax_and_unchanged_results() -> None:
    jnp = pytest.importorskip("jax.numpy")
    profile = hl.profile(lambda x, y: jnp.tanh(x @ y), np.ones((16, 16), np.float32), np.ones((16, 16), np.float32))
    assert {kernel.kind for kernel in profile.kernels} >= {"dot"}


def test_programs_of_several_devices_are_refused() -> None:
    text = "HloModule m, num_partitions=2\nENTRY m { x = f32[4] parameter(0)\n ROOT y = f32[4] negate(x) }"
    with pytest.raises(ArgumentError, match="one device"):
        hl.profile(text, np.ones(4, np.float32))
