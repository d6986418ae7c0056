"""The documentation site: no warnings and no dead links, a page for each operation, correct pictures and examples."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import documentation
import hloom as hl
from handbook import api, drawings, examples_page, gallery, page, programs, specification
from handbook.markdown import escaped, wrapped
from handbook.python_code import program, python
from hloom.ops.operation import OPERATIONS
from test_spec_examples import assert_equal


@pytest.mark.long
def test_the_site_builds_without_warnings_or_dead_links(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    documentation.build(tmp_path / "source", tmp_path / "site")
    pages = {path.stem for path in (tmp_path / "site" / "operations").glob("*.html")}
    assert pages == {*OPERATIONS, "index"}
    pages = {path.name.removesuffix(".html") for path in (tmp_path / "site" / "reference").glob("*.html")}
    assert pages == {*api.pages()}
    texts = {path: path.read_text() for path in (tmp_path / "site").rglob("*.html")}
    ids = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in texts.items()}
    dead = []
    for path, text in texts.items():
        for name in re.findall(r'<(?:img|a)\b[^>]* (?:src|href)="([^":]+)"', text):
            file, _, anchor = name.partition("#")
            target = (path.parent / file).resolve() if file else path
            if not target.exists() or (anchor and target.suffix == ".html" and anchor not in ids[target]):
                dead.append(f"{path.relative_to(tmp_path)}: {name}")
    assert not dead, "\n".join(dead)
    index = json.loads((tmp_path / "site" / "searchindex.js").read_text()[len("Search.setIndex(") : -1])
    assert index["docnames"].index("operations/gather") in index["titleterms"]["gather"]
    pictured = {path.stem for path in gallery.PROGRAMS.glob("*.py")}
    assert pictured == {path.stem for path in (tmp_path / "source" / "gallery").glob("*.png")}


EXAMPLES = [(example, made) for example in specification.examples() if (made := program(example))]


@pytest.mark.long
@pytest.mark.parametrize("example, made", EXAMPLES, ids=[example["id"] for example, _ in EXAMPLES])
def test_examples_as_python_give_the_expected_results(example: specification.Example, made: page.Program) -> None:
    if example.get("expected_error"):
        with pytest.raises(hl.HloomError):
            made.run()
        return
    got, expected = made.run(), example["expected"]
    pairs = zip(got, expected, strict=True) if isinstance(expected, list) else [(got, expected)]
    for each, wanted in pairs:
        assert_equal(each, wanted, example.get("rtol", 1e-6), example.get("atol", 0.0))


@pytest.mark.long
def test_every_operation_has_its_texts() -> None:
    for opcode, declaration in OPERATIONS.items():
        text = page.operation_page(declaration)
        assert "## HLO and StableHLO" in text and f" {opcode}(" in text, opcode


def test_a_page_has_signature_inputs_examples_rules_and_errors() -> None:
    text = page.operation_page(OPERATIONS["gather"])
    assert "XlaBuilder.gather(operand, start_indices, index_vector_dim: int" in text
    assert (
        "| `start_indices` | integer array |" in text and "integers: a vector of them says where a slice starts" in text
    )
    assert (
        re.search(r"\| `slice_sizes` \| .* \(.*GATHER-11", text)
        and "## Constraints\n\nErrors are:\n\n- GATHER-11\n  - operand.rank not " in text
    )
    assert "## See also\n\n- [`scatter`](scatter.md): Combines" in text
    assert "array([[0., 1.],\n       [3., 4.],\n       [1., 2.]], dtype=float32)" in text  # GATHER-7
    assert '"stablehlo.gather"(%arg0' in text and "- GATHER-7 S_in" in text
    assert "hloom.errors.RuleError: gather[GATHER-11]" in text
    assert "`tests/ops/test_gather_scatter.py`" in text


def test_clauses_are_split_into_statements_and_constraints() -> None:
    pad = specification.parts(f"PAD-{3}")
    assert pad.statement == "Interior padding is not negative."
    assert pad.invalid[0] == "negative interior" and pad.invalid[-1].endswith("`ex/pad-too-negative`")
    window = specification.parts(f"WIN-{6}")
    assert window.statement == "Missing strides and dilations mean 1, missing padding (0, 0)."
    assert specification.parts(f"GATHER-{7}").invalid == ()


def test_every_constraint_is_on_the_page_of_an_operation() -> None:
    shown = {rule for declaration in OPERATIONS.values() for rule in page.constraints(page.rules_of(declaration))}
    stated = {rule for rule in specification.clauses() if specification.parts(rule).invalid}
    assert {rule for rule in stated - shown if not rule.startswith(("SL-", "BC-"))} == set()


def test_arguments_of_a_method_alone_are_described() -> None:
    text = page.operation_page(OPERATIONS["slice"])
    assert "- **limit_indices**: index before which each dimension ends" in text and "- **operand**" not in text
    assert "start_index_map: operand dimension to which each number" in (hl.XlaBuilder.gather.__doc__ or "")
    assert "  epsilon: small number" in (hl.XlaBuilder.batch_norm_grad.__doc__ or "")


def test_signatures_of_the_specification_name_types() -> None:
    sections = {section.name: section for section in specification.sections()}
    assert sections["SelectAndScatter"].argument_types["select"] == "T, T -> PRED"
    assert sections["BatchNormGrad"].argument_types["mean"] == "vectors"
    assert sections["Gather"].result_type == "array" and sections["TopK"].method == "top_k"


def test_expressions_of_examples_are_python() -> None:
    assert python("lambda x, y: Add(x, y)") == "lambda x, y: x + y"
    assert python("lambda a: Min(a, Neg(a))") == "lambda a: a.builder.min(a, -a)"
    assert python("lambda t: Tuple(GetTupleElement(t, 1))") == "lambda t: t.builder.tuple(t[1])"


def test_generated_markdown_shows_as_text() -> None:
    assert escaped("a[i] * b < c `x[0]` d") == r"a\[i\] \* b \< c `x[0]` d"
    assert wrapped('  x = f32[2] add(a, b), metadata={op_name="long"}', 30).splitlines() == [
        "  x = f32[2] add(a, b),",
        '      metadata={op_name="long"}',
    ]


def test_public_names_have_pages() -> None:
    pages = api.pages()
    text = pages["hloom.compile"]
    assert ":::::{py:function} hloom.compile(module: Program | Callable" in text
    assert "- **backend**: " in text and "```pycon\n>>> run = hl.compile(" in text
    assert all(f"({name}.md)" in pages["index"] for name in pages if name != "index")
    assert "[`top_k`](../operations/topk.md)" in pages["hloom.XlaBuilder"]
    assert "`hl.bf16` | 16 | `bfloat16`" in pages["index"]


def test_examples_have_one_page() -> None:
    text = examples_page.examples_page()
    assert all(f'<span id="{example["id"]}"></span>' in text for example in specification.examples())
    assert "reverse[REV-2]" in text  # the message of an example that is an error


def test_pictures_show_what_operations_give() -> None:
    """NumPy's results of the same movements."""
    operands, result = drawings.run(programs.MOVEMENTS["transpose"])
    np.testing.assert_array_equal(result, operands[0].T)
    operands, result = drawings.run(programs.MOVEMENTS["gather"])
    np.testing.assert_array_equal(result, operands[0][[3, 1]])
    _, result = drawings.run(programs.MOVEMENTS["pad"])
    np.testing.assert_array_equal(result, [0, 1, 0, 2, 0, 3, 0, 0])
    made = dict(drawings.pictures())
    assert set(page.PICTURED) == set(made)
    for drawing in made.values():
        assert drawing.startswith("<svg") and ("result" in drawing or "after" in drawing)


def test_pictures_of_sums_mark_what_is_read() -> None:
    drawing = dict(drawings.pictures())["dot"]
    marked = re.findall(rf'fill="{re.escape(drawings.ACCENT)}"/><text[^>]*>(\d+)<', drawing)
    lhs, rhs = np.arange(1, 13).reshape(3, 4), np.arange(13, 25).reshape(4, 3)
    assert [int(each) for each in marked] == [*lhs[1], *rhs[:, 2], lhs[1] @ rhs[:, 2]]
