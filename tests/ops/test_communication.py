"""Tokens, infeed, send and recv: cases beyond the specification's examples."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from built import built, evaluate


def test_any_number_of_tokens_is_joined() -> None:
    """AFTERALL-1."""
    computation = built(lambda b: b.after_all(b.after_all(), b.after_all(b.after_all()), b.after_all()))
    assert computation.entry_computation.result_shape.is_token
    with pytest.raises(hl.RuleError, match="AFTERALL"):
        built(lambda b, x: b.after_all(x), hl.f32[2])


def test_users_of_after_all_run_after_all_operands(backend: str) -> None:
    """AFTERALL-2: two outfeeds in either order, then the third."""
    text = """HloModule m
ENTRY e {
  one = f32[] constant(1)
  two = f32[] constant(2)
  three = f32[] constant(3)
  start = token[] after-all()
  last.operand = f32[] add(one, two)
  a = token[] outfeed(one, start), outfeed_shape=f32[]
  b = token[] outfeed(two, start), outfeed_shape=f32[]
  both = token[] after-all(b, a)
  ROOT c = token[] outfeed(last.operand, both), outfeed_shape=f32[]
}"""
    device = hl.Device()
    hl.compile(text, backend=backend, devices=[device])()
    items = [float(device.transfer_from_outfeed()) for _ in range(3)]
    assert sorted(items[:2]) == [1, 2] and items[2] == 3


def test_an_infeed_waits_until_its_deadline(backend: str) -> None:
    """INFEED-4: the error says which item is missing; an outfeed is taken by the host."""
    computation = built(lambda b: b.infeed(hl.f32[3]))
    device = hl.Device(timeout=0.05)
    with pytest.raises(hl.RunError, match=r"INFEED-4: no item of shape f32\[3\].* within 0.05 s"):
        hl.compile(computation, backend=backend, devices=[device])()
    device.transfer_to_infeed(np.arange(3, dtype=np.float32))
    assert hl.compile(computation, backend=backend, devices=[device])().tolist() == [0, 1, 2]
    with pytest.raises(hl.RunError, match="INFEED-4"):
        device.transfer_from_outfeed(timeout=0.05)


def test_a_barrier_evaluates_all_its_inputs_first(backend: str) -> None:
    """OPTIMIZATIONBARRIER-2: a call for an unused element of the tuple is executed."""
    calls: list[float] = []

    def note(x: np.ndarray) -> np.ndarray:
        calls.append(float(x))
        return x + 1

    hl.register_custom_call("communication_note", note)
    text = """HloModule m
ENTRY e {
  x = f32[] parameter(0)
  y = f32[] custom-call(x), custom_call_target="communication_note", custom_call_has_side_effect=true
  t = (f32[], f32[]) tuple(x, y)
  after = (f32[], f32[]) opt-barrier(t)
  x.after = f32[] get-tuple-element(after), index=0
  ROOT z = f32[] custom-call(x.after), custom_call_target="communication_note", custom_call_has_side_effect=true
}"""
    assert float(hl.compile(text, backend=backend)(np.float32(1))) == 2
    assert calls == [1, 1]
    found = evaluate(backend, lambda b, x, y: b.optimization_barrier(b.tuple(x, y)), np.float32(1), np.float32(2))
    assert tuple(map(float, found)) == (1, 2)


RING = """HloModule m, replica_count=2
ENTRY e {{
  x = f32[2] parameter(0)
  t = token[] after-all()
  r = (f32[2], u32[], token[]) recv(t), channel_id=1, {pairs}
  s = (f32[2], u32[], token[]) send(x, t), channel_id=1, {pairs}{order}
  d = (f32[2], token[]) recv-done(r), channel_id={done}, {pairs}
  e = token[] send-done(s), channel_id=1
  ROOT v = f32[2] get-tuple-element(d), index=0
}}"""
PAIRS = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}'


def ring(backend: str, done: int = 1, order: str = "") -> list[list[float]]:
    executable = hl.compile(RING.format(pairs=PAIRS, done=done, order=order), backend=backend, timeout=5.0)
    rows = [[np.array([1, 2], np.float32)], [np.array([3, 4], np.float32)]]
    return [np.asarray(result).tolist() for result in executable.run_replicas(rows)]


def test_a_recv_receives_the_operand_of_its_send(backend: str) -> None:
    """SEND-1, RECV-1, RECVDONE-1, SENDDONE-1: the results of the done instructions are data, and nothing but a token.

    SEND-3: the order recv, send, recv-done, send-done is one that a channel may have.
    """
    assert ring(backend) == [[3, 4], [1, 2]]


def test_the_builder_makes_two_instructions_of_each() -> None:
    """RECV-2, SEND-1: in the builder, recv returns the data and send nothing."""
    b = hl.XlaBuilder("pair")
    x = b.parameter(0, hl.f32[2])
    assert b.send(x, 7) is None
    received = b.recv(hl.f32[2], 7)
    assert str(received.shape) == "f32[2]"
    instructions = b.build(received).entry_computation.instructions
    opcodes = [i.opcode for i in instructions]
    assert {"send", "send-done", "recv", "recv-done"} <= set(opcodes)
    context = next(i.shape for i in instructions if i.opcode == "recv")
    assert [str(part) for part in context.elements] == ["f32[2]", "u32[]", "token[]"]


def test_dones_take_contexts_of_their_kind_and_channel() -> None:
    """RECVDONE-2, SENDDONE-1."""
    with pytest.raises(hl.RuleError, match=r"RECVDONE-2.*channel is 2, that of its recv is 1"):
        ring("interpreter", done=2)
    swapped = RING.format(pairs=PAIRS, done=1, order="").replace("recv-done(r)", "recv-done(s)")
    with pytest.raises(hl.RuleError, match="RECVDONE-2|RECV-3|SEND-2"):
        hl.parse(swapped)
    no_context = RING.format(pairs=PAIRS, done=1, order="").replace("send-done(s)", "send-done(x)")
    with pytest.raises(hl.RuleError, match="SENDDONE-1|RECVDONE-2|GEN-"):
        hl.parse(no_context)


CYCLE = """HloModule m, replica_count=2
ENTRY e {
  x = f32[] parameter(0)
  t = token[] after-all()
  r = (f32[], u32[], token[]) recv(t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}
  d = (f32[], token[]) recv-done(r), channel_id=1
  after = token[] get-tuple-element(d), index=1
  s = (f32[], u32[], token[]) send(x, after), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}
  e = token[] send-done(s), channel_id=1
  ROOT v = f32[] get-tuple-element(d), index=0
}"""


def test_a_recv_done_may_not_wait_for_a_send_that_comes_after_it() -> None:
    """SEND-3 and SEND-5: the order holds on every backend, and violations are rejected before they can hang."""
    with pytest.raises(hl.RuleError, match="SEND-4"):
        hl.compile(CYCLE)


@pytest.mark.parametrize("what", ["two sends", "two recvs", "shapes"])
def test_a_channel_has_one_send_and_one_recv_of_one_shape(what: str) -> None:
    """SEND-6."""
    text = RING.format(pairs=PAIRS, done=1, order="")
    if what == "two sends":
        text = text.replace("  e = token", "  s2 = (f32[2], u32[], token[]) send(x, t), channel_id=1\n"
                            "  e2 = token[] send-done(s2), channel_id=1\n  e = token")  # fmt: skip
    elif what == "two recvs":
        text = text.replace("  e = token", "  r2 = (f32[2], u32[], token[]) recv(t), channel_id=1\n"
                            "  d2 = (f32[2], token[]) recv-done(r2), channel_id=1\n  e = token")  # fmt: skip
    else:
        text = text.replace("send(x, t)", "send(y, t)").replace("s = (f32[2],", "s = (f32[3],")
        text = text.replace("  t = token[]", "  y = f32[3] parameter(1)\n  t = token[]")
    with pytest.raises(hl.RuleError, match="SEND-6"):
        hl.compile(text, replicas=2)
