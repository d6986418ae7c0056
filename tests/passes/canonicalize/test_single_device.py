"""Collectives of one device and markers: forwarded operands, without host calls."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import compiled, module_text
from hloom.passes.canonicalize.single_device import SingleDeviceCollectives
from hloom.passes.legalize.asynchronous import AsyncToSync
from passes.modules import check_natively

ALONE = {
    "all-reduce": "ROOT r = f32[4] all-reduce(p), replica_groups={}, to_apply=sum",
    "all-reduce of two": "ROOT r = (f32[4], f32[4]) all-reduce(p, q), replica_groups={{0}}, to_apply=sum",
    "all-reduce-start": "s = f32[4] all-reduce-start(p), replica_groups={}, to_apply=sum\nROOT r = f32[4] all-reduce-done(s)",
    "all-gather": "ROOT r = f32[4] all-gather(p), dimensions={0}",
    "all-gather-start": "s = (f32[4], f32[4]) all-gather-start(p), dimensions={0}\nROOT r = f32[4] all-gather-done(s)",
    "reduce-scatter": "ROOT r = f32[4] reduce-scatter(p), dimensions={0}, to_apply=sum",
    "all-to-all": "ROOT r = f32[4] all-to-all(p), dimensions={0}",
    "all-to-all of a tuple": "ROOT r = (f32[4]) all-to-all(p), replica_groups={{0}}",
    "collective-broadcast": "ROOT r = f32[4] collective-broadcast(p), replica_groups={{0}}",
    "collective-permute to itself": "ROOT r = f32[4] collective-permute(p), source_target_pairs={{0,0}}",
    "collective-permute of nothing": "ROOT r = f32[4] collective-permute(p), source_target_pairs={}",
    "collective-permute-start": "s = (f32[4], f32[4], u32[], u32[]) collective-permute-start(p), "
    "source_target_pairs={{0,0}}\nROOT r = f32[4] collective-permute-done(s)",
    "collective-permute-start of nothing": "s = (f32[4], f32[4]) collective-permute-start(p), source_target_pairs={}\n"
    "ROOT r = f32[4] collective-permute-done(s)",
    "ids": "a = u32[] replica-id()\nb = u32[] partition-id()\nROOT r = u32[] add(a, b)",
}


@pytest.mark.parametrize("case", ALONE)
def test_collectives_of_one_device_return_their_operands(case: str) -> None:
    parameters = "p = f32[4] parameter(0)\nq = f32[4] parameter(1)\n"
    module = hl.parse(module_text(parameters + ALONE[case]))
    check_natively(module, SingleDeviceCollectives() if "start" not in case else AsyncToSync())
    assert hl.compile(module, backend="cpu").report() == []


def test_markers_and_tokens_need_no_host_call() -> None:
    module = hl.parse(
        module_text(
            'p = f32[4] parameter(0)\nm = f32[4] custom-call(p), custom_call_target="MoveToHost"\n'
            "t = token[] after-all(p)\nu = token[] after-all(t, t)\nROOT r = (f32[4], token[]) tuple(m, u)"
        )
    )
    assert hl.compile(module, backend="cpu").report() == []
    np.testing.assert_array_equal(compiled(module, np.arange(4, dtype=np.float32))[0], np.arange(4))


def test_what_is_not_received_is_zero_for_every_element_type(backend: str) -> None:
    """COLLECTIVEPERMUTE-2: zeros; those of f8e8m0fnu, which has no 0, are the number with the bits of zeros."""
    for element_type in ("f8e8m0fnu", "f4e2m1fn", "s4", "c64", "pred"):
        text = f"""ENTRY e {{ x = {element_type}[3] parameter(0)
          ROOT r = {element_type}[3] collective-permute(x), source_target_pairs={{}} }}"""
        x = np.ones(3, hl.parse(text).entry.result_shape.element_type.dtype)
        assert not np.asarray(hl.compile(text, backend)(x)).view(np.uint8).any()
