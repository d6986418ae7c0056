"""Notebook displays of shapes, layouts and executables."""

from __future__ import annotations

import re

import pytest

import hloom as hl
from hloom.display import shape_svg


def cells(svg: str) -> list[str]:
    """The texts of the squares in drawing order; "" for an empty square."""
    found = []
    for box in svg.split("<rect")[1:]:
        text = re.search(r'color|fill="#1d2330"[^>]*>([^<]*)<', box)
        found.append(text[1] if text and text[1] else "")
    return found


@pytest.mark.parametrize(
    ("shape", "memory"),
    [
        (hl.f32[2, 3], "abcdef"),
        (hl.parse_shape("f32[2,3]{0,1}"), "adbecf"),
        (hl.f32[2, 3].with_layout(hl.Layout((1, 0), padded_dimensions=(2, 4))), "abc def "),
        (hl.parse_shape("s8[3,3]{1,0:T(2,2)}"), "abdec f gh  i   "),
        (hl.parse_shape("s8[2,1,2]{0,2,1}"), "acbd"),
        (hl.f32[()], "a"),
    ],
)
def test_elements_are_drawn_as_they_lie_in_memory(shape: hl.Shape, memory: str) -> None:
    drawn = cells(shape_svg(shape))
    count = shape.element_count
    assert "".join(drawn[:count]) == "abcdefghijklmnopqrstuvwxyz"[:count]
    assert "".join(text or " " for text in drawn[count:]) == memory


def test_more_elements_than_letters_are_labelled_by_index() -> None:
    assert cells(shape_svg(hl.f32[30]))[:3] == ["0", "1", "2"]


@pytest.mark.parametrize("text", ["f32[200]", "f32[0,3]", "f32[<=4]", "(f32[2], s32[])", "token[]"])
def test_some_shapes_have_no_picture(text: str) -> None:
    shape = hl.parse_shape(text)
    assert shape_svg(shape) == ""
    assert f"<code>{text.split('{')[0][:3]}" in shape._repr_html_()


def test_notebooks_show_layouts_and_executables() -> None:
    layout = hl.parse_shape("f32[2,3]{0,1:T(2,2)}").layout
    assert layout is not None
    assert layout._repr_html_().startswith("<code>{0,1:T(2,2)}</code> dimension 0, then 1: from the one that changes")
    executable = hl.compile("HloModule double\nENTRY e { x = f32[2] parameter(0)\n ROOT y = f32[2] add(x, x) }")
    page = executable._repr_html_()
    assert "<caption>double</caption>" in page
    assert "<th>parameter 0</th><td><code>f32[2]</code></td>" in page and "<th>result</th>" in page
