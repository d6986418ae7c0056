"""The data of the page beyond the graph: changes of passes, loops of kernels, two modules, and texts that are typed."""

from __future__ import annotations

import json
from typing import Any

import pytest

import hloom as hl
from hloom.explorer.changes import changes_of
from hloom.explorer.collect import collect
from hloom.explorer.live import handle
from hloom.faults import diff

PROGRAM = """
HloModule m
ENTRY e { x = f32[64,64] parameter(0)
  one = f32[] constant(1)
  ones = f32[64,64] broadcast(one), dimensions={}
  same = f32[64,64] multiply(x, ones)
  p = f32[64,64] dot(same, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[64,64] sine(p) }
"""


def reply(action: str, text: str) -> dict[str, Any]:
    return json.loads(handle(f"{action}\n{text}".encode()))


def names(side: list[dict[str, Any]], signs: str) -> set[str]:
    return {each["name"] for each in side if each["sign"] in signs}


def test_a_change_has_what_it_replaces_and_what_surrounds_both() -> None:
    """Users that only read another operand are not part of the change, and unrelated changes are others."""
    before = hl.parse(PROGRAM)
    after = hl.parse(PROGRAM.replace("multiply(x, ones)", "add(x, ones)").replace("sine(p)", "cosine(p)"))
    first, second = changes_of(diff(before, after), [("rule", "same")])["groups"]
    assert first["rules"] == ["rule"] and not second["rules"]
    assert names(first["before"], "-") == names(first["after"], "+") == {"same"}
    assert names(first["before"], "=") == {"x", "ones", "p"}
    assert [first["after"][k]["name"] for k in first["after"][0]["operands"]] == ["x", "ones"]
    assert names(second["after"], "+") == {"r"}


def test_what_is_only_removed_has_the_users_that_read_another_value_now() -> None:
    text = """HloModule m
    ENTRY e { x = f32[4] parameter(0)
      a = f32[4] sine(x)
      b = f32[4] sine(x)
      ROOT r = f32[4] add(a, b) }"""
    after = text.replace("b = f32[4] sine(x)\n", "").replace("add(a, b)", "add(a, a)")
    (group,) = changes_of(diff(hl.parse(text), hl.parse(after)))["groups"]
    assert names(group["before"], "-") == {"b"} and names(group["before"], "=") == {"x", "r"}
    assert names(group["after"], "=") == {"a", "r"}


def test_passes_name_the_rule_of_each_change() -> None:
    passes = collect(hl.parse(PROGRAM))["passes"]
    simplified = next(run for run in passes if run["name"] == "algsimp")
    assert any("multiply-one" in " ".join(group["rules"]) for group in simplified["groups"]), simplified["groups"]


def test_passes_say_what_replaced_an_instruction() -> None:
    """`same` is x times one; r reads the product, which is not fused, and the loop of `wide` has two instructions."""
    wide = PROGRAM.replace("sine(p) }", "sine(p)\n  s = f32[64,64] sine(r)\n  ROOT t = f32[64,64] add(s, r) }").replace(
        "ROOT r", "r"
    )
    found = {row[0]: row[1:] for run in collect(hl.parse(wide))["passes"] for row in run["replaced"]}
    assert found["same"][0] == "x" and "multiply-one" in found["same"][1] and found["same"][2] == ""
    assert found["ones"][0] == "" and "p" not in found
    assert found["s"][0] == "s" and found["s"][2].startswith("fused_computation")


def test_products_and_sorts_have_loops() -> None:
    text = PROGRAM.replace("f32[64,64] sine(p) }", "f32[64,64] sort(p), dimensions={1}, to_apply=less }").replace(
        "ENTRY e",
        "less { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT l = pred[] compare(a, b), direction=LT }\nENTRY e",
    )
    kernels = {kernel["kind"]: kernel["nest"] for kernel in collect(hl.parse(text))["kernels"]}
    assert "for " in kernels["dot"] and "fmul" in kernels["dot"]
    assert "for " in kernels["sort"] and "umin" in kernels["sort"]


def test_two_modules_are_compared_at_both_stages() -> None:
    other = hl.parse(PROGRAM.replace("sine(p)", "cosine(p)"))
    data = collect(hl.parse(PROGRAM), other=other)
    (group,) = data["difference"]["given"]["groups"]
    assert names(group["before"], "-") == {"r"} == names(group["after"], "+")
    marked = [each["name"] for each in data["given"]["computations"][0]["instructions"] if each.get("only")]
    assert marked == ["r"] and data["other"]["kernels"]


def test_all_errors_of_a_text_are_found() -> None:
    wrong = PROGRAM.replace("sine(p)", "sinne(p)").replace("dot(same,", "dot(some,")
    assert [problem["line"] for problem in reply("check", wrong)["problems"]] == [6, 7]


def test_a_text_without_errors_is_drawn_and_run() -> None:
    for text in (PROGRAM, "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %x : tensor<4xf32>\n}"):
        found = reply("check", text)
        assert found["graph"]["computations"][0]["instructions"] and found["values"]["statistics"], text


@pytest.mark.long
def test_all_views_of_a_text_have_data() -> None:
    assert reply("explore", PROGRAM)["data"]["profile"]["kernels"]


def test_a_module_of_large_arrays_is_not_run() -> None:
    found = reply("check", "HloModule m\nENTRY e { ROOT x = f32[100000000] iota(), iota_dimension=0 }")
    assert "graph" in found and "values" not in found


def test_bytes_that_are_no_module_give_an_error_and_not_a_traceback() -> None:
    for content in (b"", b"\x00\xff" * 40, b"\x80\x04\x95", b"PK\x03\x04", b"import os"):
        assert json.loads(handle(b"explore\n" + content)).get("error"), content
        assert json.loads(handle(b"check\n" + content)), content
