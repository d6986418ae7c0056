"""The documentation site: no warnings and no dead links, a page for each operation, correct pictures."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import documentation
import pictures
from hloom.ops.operation import OPERATIONS


@pytest.mark.long
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    documentation.build(tmp_path / "source", tmp_path / "site")
    pages = {path.stem for path in (tmp_path / "site" / "operations").glob("*.html")}
    assert pages == {*OPERATIONS, "index"}
    for page in (tmp_path / "site").rglob("*.html"):
        for name in re.findall(r'<img[^>]* src="([^":]+)"', page.read_text()):
            assert (page.parent / name).is_file(), f"{page.name}: {name}"


def test_pages_of_the_handbook_have_clauses_and_examples(tmp_path: Path) -> None:
    documentation.write_handbook(tmp_path / "operations")
    page = (tmp_path / "operations" / "pad.md").read_text()
    assert "**PAD-2** Edge padding may be negative" in page
    assert "**pad-interior**" in page
    assert "](pad.svg)" in page and (tmp_path / "operations" / "pad.svg").is_file()
    assert {path.stem for path in (tmp_path / "operations").glob("*.md")} == {*OPERATIONS, "index"}


def test_pictures_show_what_operations_give() -> None:
    """NumPy's results of the same movements."""
    operands, result = pictures.run(pictures.PROGRAMS["transpose"])
    np.testing.assert_array_equal(result, operands[0].T)
    operands, result = pictures.run(pictures.PROGRAMS["gather"])
    np.testing.assert_array_equal(result, operands[0][[3, 1]])
    _, result = pictures.run(pictures.PROGRAMS["pad"])
    np.testing.assert_array_equal(result, [99, 0, 99, 1, 99, 2, 99, 99])
    for _, drawing in pictures.pictures():
        assert drawing.startswith("<svg") and "result" in drawing
