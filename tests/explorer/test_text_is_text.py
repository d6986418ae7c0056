"""Text of a module never becomes markup, script or style in pages and pictures."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

import hloom as hl
from hloom.cli import main
from hloom.explorer.collect import collect
from hloom.explorer.page import page
from hloom.proto import module_from_bytes, module_to_bytes
from hloom.proto.reader import module_message

PLAIN = """HloModule NAME
ENTRY e { x = f32[4] parameter(0)
  ROOT r = f32[4] sine(x), metadata={op_name="MEANING" source_file="MEANING" source_line=3} }
"""
IMAGE = "<img src=x onerror=document.title='broken'>"
HOSTILE = [
    IMAGE, "</script>" + IMAGE, "<!--<script>" + IMAGE, "</title></style>" + IMAGE, "{{scripts}}" + IMAGE, "{{data}}",
    "{{title}}{{style}}{{worker}}", "]]>" + IMAGE, "&lt;b&gt;&#60;&quot;'`${1}\\", "\u2028\u2029\x00\u202e", "constructor",
    "__proto__", "$\\frac{$", "[red]a[/b]",
]  # fmt: skip


def module_that_says(text: str) -> hl.Module:
    """A module whose names and annotations are all a given text, which a proto may contain."""
    message, _ = module_message(module_to_bytes(hl.parse(PLAIN)))
    message.name = text
    for computation in message.computations:
        for instruction in computation.instructions:
            instruction.name = text if instruction.name == "r" else instruction.name
            instruction.metadata.op_name = instruction.metadata.source_file = text
    return module_from_bytes(message.SerializeToString())


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, Any]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, attributes))


@pytest.fixture(scope="module")
def tags() -> list[tuple[str, Any]]:
    return Tags(page(collect(hl.parse(PLAIN)))).found


@pytest.mark.parametrize("text", HOSTILE)
def test_names_of_a_module_add_no_tag(text: str, tags: list[tuple[str, Any]]) -> None:
    data = collect(module_that_says(text))
    content = page(data)
    assert Tags(content).found == tags
    (stored,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', content, re.S)
    assert json.loads(stored) == data and "<" not in stored
    assert text in json.loads(stored)["given"]["computations"][0]["instructions"][1]["source"]


def test_the_policy_names_each_script_and_style_of_the_page_and_nothing_else() -> None:
    content = page(collect(hl.parse(PLAIN)))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', content)
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    scripts = re.findall(r"<script id=.[\w.]+.>(.*?)</script>", content, re.S)
    (style,) = re.findall(r"<style[^>]*>(.*?)</style>", content, re.S)

    def digests(parts: list[str]) -> list[str]:
        sums = [hashlib.sha256(part.encode()).digest() for part in parts]
        return [f"'sha256-{base64.b64encode(each).decode()}'" for each in sums]

    assert rules["script-src"] == digests(scripts) and rules["style-src"] == digests([style])
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == ["'none'"]
    assert "unsafe" not in policy and not re.search(
        r"<[^>]* (on\w+|style)=", re.sub(r"<script.*?</script>", "", content, flags=re.S)
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_notebooks_show_text(text: str) -> None:
    module = module_that_says(text)
    shown = Tags(module._repr_html_()).found + Tags(hl.compile(module)._repr_html_()).found
    assert {tag for tag, _ in shown} <= {
        "details",
        "summary",
        "pre",
        "span",
        "table",
        "caption",
        "tr",
        "td",
        "th",
        "code",
    }
    assert {name for _, attributes in shown for name, _ in attributes} <= {"style", "open"}


def test_profiles_show_text(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    profile = hl.profile(hl.parse(PLAIN), np.ones(4, np.float32))
    kernels = [dataclasses.replace(profile.kernels[0], name=text, instruction=None) for text in HOSTILE]
    named = dataclasses.replace(profile, name="".join(HOSTILE), kernels=kernels)
    named.save(str(tmp_path / "profile.svg"))
    tree = ElementTree.parse(tmp_path / "profile.svg")
    assert not {each.tag.rpartition("}")[2] for each in tree.iter()} & {"script", "img", "image", "foreignObject", "a"}
    assert {tag for tag, _ in Tags(named._repr_html_()).found} <= {"pre", "span"}
    shown = "".join(str(named).split())
    assert all("".join(text.split()) in shown for text in HOSTILE)


@pytest.mark.parametrize("text", HOSTILE)
def test_tables_of_the_command_line_show_text(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.pb"
    path.write_bytes(module_to_bytes(module_that_says(text)))
    shown = CliRunner().invoke(main, ["show", str(path), "--cost"])
    assert shown.exit_code == 0 and "".join(text.split()) in "".join(shown.output.split()), shown.output
