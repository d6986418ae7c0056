"""Values that users have for instructions: files and mappings, and the errors of those that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.explorer.columns import check_names, columns_of
from hloom.explorer.graph import graph_of

TEXT = "HloModule m\nENTRY e { x = f32[2] parameter(0)\n  dot.3 = f32[2] negate(x)\n  ROOT y = f32[2] sine(dot.3) }"


def read(folder: Path, text: str) -> dict[str, Any]:
    (folder / "times.json").write_text(text)
    return columns_of(folder / "times.json")


def test_values_are_by_names_or_in_columns_with_titles(tmp_path: Path) -> None:
    assert read(tmp_path, '{"%dot.3": 1, "y": -2.5}') == {"times": {"dot.3": 1.0, "y": -2.5}}
    assert read(tmp_path, '{"us": {"y": 3}, "owner": {"y": "a"}}') == {"us": {"y": 3.0}, "owner": {"y": "a"}}
    assert columns_of({"y": np.float32(0.5), "x": np.int64(2)}) == {"data": {"y": 0.5, "x": 2.0}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("\x00", "is no JSON"),
        ("[1]", "no object of numbers or texts"),
        ("{}", "no object of numbers or texts"),
        ('{"a": {}}', "no object of numbers or texts"),
        ('{"a": {"y": 1}, "b": 2}', "no object of numbers or texts"),
        ('{"y": NaN}', "a finite number or a text is needed"),
        ('{"y": 1e999}', "a finite number or a text is needed"),
        ('{"y": ' + "1" * 400 + "}", "a finite number or a text is needed"),
        ('{"y": true}', "a finite number or a text is needed"),
        ('{"y": [1]}', "a finite number or a text is needed"),
    ],
)
def test_what_is_no_column_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(hl.ArgumentError, match=said):
        read(tmp_path, text)


def test_unknown_names_are_said_with_those_that_are_close() -> None:
    given = graph_of(hl.parse(TEXT))
    data = {"given": given, "optimized": given}
    check_names({"a": {"dot.3": 1.0}}, data)
    with pytest.raises(hl.ArgumentError, match=r"1 name is no instruction's.*%dot\.4 \(there are %dot\.3\)"):
        check_names({"a": {"dot.4": 1.0, "y": 2.0}}, data)
    with pytest.raises(hl.ArgumentError, match=r"5 names are no instructions'.*; and 2 others"):
        check_names({"a": {f"q{k}": 1.0 for k in range(5)}}, data)


def test_instructions_that_differ_in_operands_alone_are_alike() -> None:
    """Values of constants do not count; attributes and shapes do."""
    text = """HloModule m
    ENTRY e { x = f32[2,2] parameter(0)
      one = f32[] constant(1)
      two = f32[] constant(2)
      a = f32[2,2] transpose(x), dimensions={1,0}
      b = f32[2,2] transpose(a), dimensions={1,0}
      c = f32[2,2] transpose(b), dimensions={0,1}
      ROOT r = (f32[2,2], f32[], f32[]) tuple(c, one, two) }"""
    like = {each["name"]: each["like"] for each in graph_of(hl.parse(text))["computations"][0]["instructions"]}
    assert like["one"] == like["two"] and like["a"] == like["b"] != like["c"]


def test_the_page_has_the_columns(tmp_path: Path) -> None:
    hl.explore(hl.parse(TEXT), data={"y": "slow"}, output=tmp_path / "page.html")
    content = (tmp_path / "page.html").read_text()
    stored = content.partition('<script id="data" type="application/json">')[2].partition("</script>")[0]
    assert json.loads(stored)["columns"] == {"data": {"y": "slow"}}
    with pytest.raises(hl.ArgumentError, match="no instruction's"):
        hl.explore(hl.parse(TEXT), data={"z": 1}, output=tmp_path / "page.html")
