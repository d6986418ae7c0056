"""The check of the language: what it finds, and what it lets pass."""

from __future__ import annotations

import ast

import pytest

import prose


def kinds(source: str, path: str = "src/hloom/example.py") -> list[tuple[str, str]]:
    tree = ast.parse(source)
    found = prose.python_findings(path, source, tree, prose.methods({path: tree}))
    return [(finding.kind, finding.text) for finding in found]


@pytest.mark.parametrize(
    ("source", "kind", "text"),
    [
        ("fold_values = 1", "identifier", "fold_values: fold"),
        ("# Each round has its own.", "word", "round: iteration"),
        ('"""What copies where threads share it."""', "opening", "What copies where threads share it."),
        ("def combine(): ...", "undocumented", "combine"),
        ("class Kernel:\n    '''A kernel.'''\n    def emit(self): ...", "undocumented", "emit"),
    ],
)
def test_a_finding_of_each_kind(source: str, kind: str, text: str) -> None:
    assert (kind, text) in kinds(source)


@pytest.mark.parametrize(
    "source",
    [
        "round_nearest_even = constant_folding = in_place = parameter_number = 1",
        "# The update is done in\n# place, to the last place; constant folding rounds to even.",
        '"""Rounds the values to `fold`."""',
        "def _combine(): ...",
        "class Base:\n    '''A base.'''\n    def emit(self):\n        '''Emits it.'''\n"
        "class Derived(Base):\n    '''A class.'''\n    def emit(self): ...",
    ],
)
def test_terms_of_the_field_overrides_and_private_functions_pass(source: str) -> None:
    assert kinds(source) == []


def test_words_in_code_of_pages_are_not_looked_at() -> None:
    page = "A tile.\n\n```python\nrounds = 1\n```\n\n    hloom run --rounds\n"
    assert list(prose.prose_findings("docs/page.md", 1, prose.CODE.sub(prose.blank, page))) == []
