"""Names in HLO text: names that XLA's parser would misread are printed so that it reads them."""

from __future__ import annotations

import pytest

import hloom as hl
from hloom.bench.peer_process import XlaPeer

TEXT = """HloModule m
g {
  a = f32[4] parameter(0)
  ROOT b = f32[4] negate(a)
}
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] call(x), to_apply=g
  ROOT z = f32[4] add(x, y)
}"""
WORDS = "true false inf nan HloModule ENTRY ROOT maximal replicated manual unreduced unknown shard_as shard_like "
WORDS += "last_tile_dim_replicate pred s1 s4 u1 f32 bf16 f8e4m3fn c64 token opaque tuple buffer f32_ __x __xla_x _"
NAMES = [*WORDS.split(), "a b", "1x", "-x", "a/b", "\u00e9", "a#b", "%a", "a\nb", 'a"b']


def named(name: str) -> hl.Module:
    """A module in which everything has this name, with underscores where it must be unique."""
    module = hl.parse(TEXT)
    module.name = module.computations[0].name = name
    for i, instruction in enumerate(module.entry.instructions):
        instruction.name = name + "_" * i
    return module


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("percent", [False, True])
def test_xla_and_hloom_read_names_of_all_kinds(name: str, percent: bool, peer: XlaPeer) -> None:
    module = named(name)
    text = module.to_text(percent=percent)
    peer.parse(text)
    again = hl.parse(text)
    assert again.to_text(percent=percent) == text
    assert again.to_text(canonical=True) == module.to_text(canonical=True)


def test_names_that_xla_reads_stay_as_they_are() -> None:
    for name in ("tuple", "__xla_x", "a.1", "_", "x-y", "truex", "f32.1"):
        text = named(name).to_text()
        assert f"  {name} = f32[4]{{0}} parameter(0)" in text and f"call({name}), to_apply={name}" in text
    assert "\n__x {" in named("__x").to_text(), "a computation may be called so"


VALUES = [
    "",
    "{",
    "{}",
    '{"a": 1}',
    '{a="b}',
    "\\",
    "{\n}",
    "\u00e9",
    "\0",
    "{\0}",
    "\x7f",
    "{a: '}'}",
    "'",
    "'x'",
    "{'}",
]
# XLA prints these as they are, where hloom reads comments and counts all brackets.
OWN_VALUES = ["{/* c */}", "{// x\n}", "{(}"]


@pytest.mark.parametrize("value", [*VALUES, *OWN_VALUES])
def test_texts_of_all_kinds_are_kept(value: str, peer: XlaPeer) -> None:
    """Texts in a backend config, in frontend attributes and in metadata are kept by hloom's text, and by XLA."""
    module = hl.parse(
        'HloModule m\nENTRY e {\n x = f32[4] parameter(0)\n ROOT y = f32[4] custom-call(x), custom_call_target="f"\n}'
    )
    call = module.entry.root
    call.backend_config, call.metadata = value, {"op_name": value, "source_file": value}
    call.frontend_attributes = module.frontend_attributes = {"a": value, "a.b-c": value}
    text = module.to_text()
    printed = peer.parse(text)
    for again in map(hl.parse, (text, printed) if value not in OWN_VALUES else (text,)):
        root = again.entry.root
        assert root.backend_config == value and root.frontend_attributes == call.frontend_attributes
        assert root.metadata.get("op_name", "") == root.metadata.get("source_file", "") == value
    assert again.frontend_attributes == module.frontend_attributes


STRINGS = [
    r'"\a\b\f\v\?"',
    r'"\u00e9\U0001f389"',
    r'"\xC3\xa9\303\251\X41\x0000041"',
    '"a\'b"',
    "'T'",
    r"'a\'b'",
    "'//x'",
]
BRACKETS = ["'}{'", "'[('", "'a,b'", "'a\"b'", "'a\nb'"]


@pytest.mark.parametrize("string", [*STRINGS, *BRACKETS])
def test_strings_are_read_as_xla_reads_them(string: str, peer: XlaPeer) -> None:
    """Strings have either kind of quotes and all escapes of C."""
    values = f"custom_call_target={string}, backend_config={string}"
    if string not in BRACKETS:
        values += f", metadata={{op_name={string}}}, frontend_attributes={{a={string},b={{x}}}}"
    text = f"HloModule m\nENTRY e {{ ROOT x = f32[] custom-call(), {values} }}"
    roots = [module.entry.root for module in (hl.parse(text), hl.parse(peer.parse(text)))]
    facts = [(r.op, r.metadata, r.frontend_attributes, r.backend_config) for r in roots]
    assert facts[0] == facts[1] and "\\" not in facts[0][3]


@pytest.mark.parametrize("string", [r'"\400"', r'"\ud800"', r'"\xg"', r'"\q"'])
def test_strings_that_xla_refuses_can_be_printed(string: str) -> None:
    text = f"HloModule m\nENTRY e {{ ROOT x = f32[] parameter(0), backend_config={string} }}"
    module = hl.parse(text)
    again = hl.parse(module.to_text())
    assert again.entry.root.backend_config == module.entry.root.backend_config


@pytest.mark.parametrize("key", ["a b", "1a", 'a"b', "a=b", "a,b", "{", "a\nb", "a:b", "a{b}"])
def test_names_of_frontend_attributes_are_kept(key: str) -> None:
    module = named("m")
    module.entry.root.frontend_attributes = {key: "v"}
    assert hl.parse(module.to_text()).entry.root.frontend_attributes == {key: "v"}
