"""async-to-sync: asynchronous operations have the results of synchronous ones, without host calls."""

from __future__ import annotations

import pytest

import hloom as hl
from hlo_text import module_text
from hloom.passes.legalize.asynchronous import AsyncToSync
from passes.modules import check_natively

ASYNCHRONOUS = {
    "a call": "s = ((f32[4]), f32[4], s32[]) async-start(p), calls=twice\nROOT r = f32[4] async-done(s)",
    "with updates": "s = ((f32[4]), f32[4], s32[]) async-start(p), calls=twice\n"
    "u = ((f32[4]), f32[4], s32[]) async-update(s)\nROOT r = f32[4] async-done(u)",
    "a result whose shape the done has": "s = ((f32[4]), (), s32[]) async-start(p), calls=twice\n"
    "u = ((f32[4]), (), s32[]) async-update(s)\nROOT r = f32[4] async-done(u)",
    "in short": "s = ((f32[4]), f32[4], s32[]) exponential-start(p)\nROOT r = f32[4] exponential-done(s)",
    "a copy": "s = (f32[4], f32[4], u32[]) copy-start(p)\nROOT r = f32[4] copy-done(s)",
    "two at a time": "s = ((f32[4]), f32[4], s32[]) async-start(p), calls=twice\n"
    "t = ((f32[4]), f32[4], s32[]) async-start(q), calls=twice\na = f32[4] async-done(t)\nb = f32[4] async-done(s)\n"
    "ROOT r = f32[4] divide(a, b)",
}


@pytest.mark.parametrize("case", ASYNCHRONOUS)
def test_asynchronous_operations_become_synchronous(case: str) -> None:
    twice = "twice {\n  x = f32[4] parameter(0)\n  ROOT r = f32[4] add(x, x)\n}\n"
    parameters = "p = f32[4] parameter(0)\nq = f32[4] parameter(1)\n"
    module = hl.parse(module_text(parameters + ASYNCHRONOUS[case], twice))
    after = check_natively(module, AsyncToSync())
    assert not any("-start" in i.opcode or "-done" in i.opcode for i in after.entry.instructions)
    assert hl.compile(module, backend="cpu").report() == []
