"""HLO text in notebooks."""

from __future__ import annotations

import re

import hloom as hl

TEXT = (
    'HloModule m\nENTRY m { x = f32[4]{0} parameter(0)\n ROOT y = f32[4]{0} custom-call(x), custom_call_target="<b>" }'
)


def test_text_is_coloured_and_escaped() -> None:
    html = hl.parse(TEXT)._repr_html_()
    assert "<b>" not in html and "&lt;b&gt;" in html
    assert re.search(r"<span [^>]*>custom-call</span>", html)
    assert re.search(r"<span [^>]*>f32\[4\]</span>", html)
    assert re.sub("<[^>]*>", "", html).count("custom_call_target=") == 1


def test_long_text_is_truncated() -> None:
    lines = "\n".join(f"  v{k} = f32[4] negate(v{k - 1})" for k in range(1, 600))
    html = hl.parse(f"HloModule m\nENTRY m {{\n  v0 = f32[4] parameter(0)\n{lines}\n}}")._repr_html_()
    assert "more lines" in html and html.count("\n") < 420
