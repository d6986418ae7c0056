"""Reading and writing each kind of attribute in HLO text, and errors for damaged text (GEN-3)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloom as hl
from hloom.ops import kinds
from hloom.ops.attributes import (
    ComparisonDirection,
    ConvolutionDimensionNumbers,
    DotAlgorithm,
    FftType,
    IotaReplicaGroups,
    OutputOperandAlias,
    PaddingDimension,
    Precision,
    ReplicaGroups,
    ResultAccuracy,
    SliceDimension,
    WindowDimension,
)
from hloom.ops.kinds import AttributeKind, EnumKind
from hloom.text.attributes import read, write

DIRECTION, FFT, ALGORITHM = EnumKind(ComparisonDirection), EnumKind(FftType), EnumKind(DotAlgorithm)


def value_of(kind: AttributeKind, text: str) -> Any:
    return read(kind, text, text, 0)


CASES: list[tuple[AttributeKind, str, Any]] = [
    (kinds.BOOL, "true", True),
    (kinds.BOOL, "false", False),
    (kinds.INT, "-7", -7),
    (kinds.FLOAT, "0.5", 0.5),
    (kinds.FLOAT, "1e-05", 1e-05),
    (kinds.FLOAT, "2", 2.0),
    (kinds.STRING, '"a \\"b\\" \\n"', 'a "b" \n'),
    (kinds.INTS, "{}", ()),
    (kinds.INTS, "{2,0,1}", (2, 0, 1)),
    (kinds.BOOLS, "{true,false}", (True, False)),
    (kinds.DIMENSION, "{3}", 3),
    (kinds.SHAPE, "f32[2,3]{0,1}", hl.f32[2, 3].with_layout((0, 1))),
    (kinds.SHAPES, "{f32[2]{0}, (s32[], pred[])}", (hl.f32[2], hl.Shape.tuple_of([hl.s32[()], hl.pred[()]]))),
    (kinds.WINDOW, "{}", ()),
    (kinds.WINDOW, "{size=3x1}", (WindowDimension(3), WindowDimension())),
    (kinds.WINDOW, "{size=2 stride=3 pad=-1_4 lhs_dilate=5 rhs_dilate=6 rhs_reversal=1}",
     (WindowDimension(2, 3, -1, 4, window_dilation=6, base_dilation=5, window_reversal=True),)),
    (kinds.DIM_LABELS, "b01f_01io->b01f", ConvolutionDimensionNumbers(0, 3, (1, 2), 3, 2, (0, 1), 0, 3, (1, 2))),
    (kinds.DIM_LABELS, "bf_oi->bf", ConvolutionDimensionNumbers.default(0)),
    (kinds.DIM_LABELS, "bf012_oi012->bf012", ConvolutionDimensionNumbers.default(3)),
    (kinds.PADDING, "0_1x-2_3", (PaddingDimension(0, 1), PaddingDimension(-2, 3))),
    (kinds.PADDING, "0_1_2x0_0_0", (PaddingDimension(0, 1, 2), PaddingDimension())),
    (kinds.SLICES, "{[0:5], [1:9:2]}", (SliceDimension(0, 5), SliceDimension(1, 9, 2))),
    (kinds.REPLICA_GROUPS, "{}", ReplicaGroups()),
    (kinds.REPLICA_GROUPS, "{{0,2},{1,3}}", ReplicaGroups(((0, 2), (1, 3)))),
    (kinds.REPLICA_GROUPS, "[2,4]<=[8]", IotaReplicaGroups(2, 4, (8,))),
    (kinds.REPLICA_GROUPS, "[4,2]<=[2,4]T(1,0)", IotaReplicaGroups(4, 2, (2, 4), (1, 0))),
    (kinds.PAIRS, "{{0,1},{1,0}}", ((0, 1), (1, 0))),
    (kinds.PRECISIONS, "{highest,default}", (Precision.HIGHEST, Precision.DEFAULT)),
    (kinds.ALIASING, "{{0}: (1, {}), {1}: (0, {2, 3}, must-alias)}",
     (OutputOperandAlias((0,), 1, ()), OutputOperandAlias((1,), 0, (2, 3), "must-alias"))),
    (kinds.RESULT_ACCURACY, "{mode=highest}", ResultAccuracy("highest")),
    (kinds.RESULT_ACCURACY, "{tolerance={atol=0,rtol=0.5,ulps=2}}", ResultAccuracy(rtol=0.5, ulps=2)),
    (DIRECTION, "LT", ComparisonDirection.LT),
    (FFT, "IRFFT", FftType.IRFFT),
    (ALGORITHM, "dot_bf16_bf16_f32", DotAlgorithm.ALG_DOT_BF16_BF16_F32),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "value"), CASES)
def test_text_and_value(kind: AttributeKind, text: str, value: Any) -> None:
    got = value_of(kind, text)
    assert (tuple(got) if isinstance(got, list) else got) == value
    assert write(kind, value) == text


@pytest.mark.parametrize(
    ("kind", "text", "same_as"),
    [
        (kinds.BOOL, "1", "true"),
        (kinds.INTS, " { 2 , 0 } ", "{2,0}"),
        (kinds.WINDOW, "{pad=1_1 size=3}", "{size=3 pad=1_1}"),
        (kinds.WINDOW, "{size=3 stride=1 pad=0_0 lhs_dilate=1 rhs_dilate=1 rhs_reversal=0}", "{size=3}"),
        (kinds.PADDING, "0_1_0x2_3", "0_1x2_3"),
        (kinds.SLICES, "{[0:5:1]}", "{[0:5]}"),
        (kinds.PRECISIONS, "{HIGHEST}", "{highest}"),
        (kinds.STRING, '"\\303\\244\\x41"', '"äA"'),
        (kinds.FLOAT, "5e-1", "0.5"),
        (ALGORITHM, "DOT_BF16_BF16_F32", "dot_bf16_bf16_f32"),
    ],
)
def test_other_spellings(kind: AttributeKind, text: str, same_as: str) -> None:
    assert value_of(kind, text) == value_of(kind, same_as)
    assert write(kind, value_of(kind, text)) == same_as


@pytest.mark.parametrize(
    ("kind", "text", "column", "message"),
    [
        (kinds.BOOL, "yes", 1, "expected true or false"),
        (ALGORITHM, "dot_bf16", 1, "expected one of unset | dot_any_f8_any_f8_f32 |"),
        (kinds.INT, "1.5", 2, "expected an integer, got '.5'"),
        (kinds.INT, "9223372036854775808", 1, "9223372036854775808 does not fit 64 bits"),
        (kinds.FLOAT, "x", 1, "expected a number, got 'x'"),
        (kinds.STRING, "bare", 1, "expected a quoted string, got 'bare'"),
        (kinds.INTS, "{1;2}", 3, "expected ',' between elements, got ';2}'"),
        (kinds.INTS, "{1", 3, "expected ',' between elements, got the end of the text"),
        (kinds.INTS, "{1}}", 4, "expected a list of integers, got '}'"),
        (kinds.BOOLS, "{true,2}", 1, "expected true or false"),
        (kinds.DIMENSION, "{0,1}", 1, "expected one dimension number in braces, got 2"),
        (kinds.SHAPE, "f32[2]{0", 9, "expected '}' at the end of a layout, got the end of the text"),
        (kinds.SHAPES, "{f32[2] s32[]}", 9, "expected ',' between elements"),
        (kinds.WINDOW, "{size=3 size=3}", 9, "each once"),
        (kinds.WINDOW, "{size=3 sride=2}", 9, "cannot read the window's sride=2"),
        (kinds.WINDOW, "{size=3 pad=1}", 9, "cannot read the window's pad=1"),
        (kinds.WINDOW, "{size=3 pad=1_2_3}", 9, "cannot read the window's pad=1_2_3"),
        (kinds.WINDOW, "{size=3x3 stride=2}", 1, "every list has an entry for each dimension"),
        (kinds.WINDOW, "{stride=2}", 1, "a window gives size="),
        (kinds.WINDOW, "{size=9223372036854775807}", 2, "cannot read the window's size="),
        (kinds.DIM_LABELS, "b01f_01io", 1, "expected dimension labels like b01f_01io->b01f"),
        (kinds.DIM_LABELS, "b00f_01io->b01f", 1, "'b00f' must have b, f and the digits 0 .. 1, once each"),
        (kinds.DIM_LABELS, "b01f_01oo->b01f", 1, "'01oo' must have o, i and the digits 0 .. 1"),
        (kinds.PADDING, "{0_1}", 1, "expected padding like 0_1x2_0_1"),
        (kinds.PADDING, "0_1x", 4, "got 'x'"),
        (kinds.PADDING, "0_99999999999999999999", 1, "a padding number does not fit"),
        (kinds.SLICES, "{[0]}", 5, "expected [start:limit] or [start:limit:stride]"),
        (kinds.SLICES, "{[0:1:2:3]}", 11, "expected [start:limit] or [start:limit:stride]"),
        (kinds.SLICES, "{0:1}", 2, "expected '[', got '0:1}'"),
        (kinds.REPLICA_GROUPS, "{0,1}", 2, "expected '{', got '0,1}'"),
        (kinds.REPLICA_GROUPS, "[2,4]<=[7]", 1, "with as many ids on both sides"),
        (kinds.REPLICA_GROUPS, "[8]<=[8]", 1, "with as many ids on both sides"),
        (kinds.REPLICA_GROUPS, "[2,4]", 6, "expected '<='"),
        (kinds.REPLICA_GROUPS, "[2,4]<=[4,2]T(0,0)", 8, "T must permute the 2 sizes"),
        (kinds.PAIRS, "{{0,1,2}}", 2, "expected a pair {source,target}"),
        (kinds.PRECISIONS, "{lowest}", 8, "expected default, high or highest, got 'lowest'"),
        (kinds.ALIASING, "{{0} (1, {})}", 6, "expected ':'"),
        (kinds.ALIASING, "{{0}: (x, {})}", 8, "expected an operand number, got 'x, {})}'"),
        (kinds.RESULT_ACCURACY, "{mode=best}", 1, "expected mode=default or mode=highest, got 'best'"),
        (kinds.RESULT_ACCURACY, "{speed=1}", 2, "expected 'tolerance=' or mode="),
        (kinds.RESULT_ACCURACY, "{tolerance={ulps=0.5}}", 19, "expected"),
        (DIRECTION, "lt", 1, "expected one of EQ | NE | GE | GT | LE | LT"),
        (FFT, "DCT", 1, "expected one of FFT | IFFT | RFFT | IRFFT"),
    ],
)  # fmt: skip
def test_damaged_attributes(kind: AttributeKind, text: str, column: int, message: str) -> None:
    """Columns count in the full text: the value is on line 2, after 5 characters."""
    full_text = f"first line\nabc, {text}, more"
    with pytest.raises(hl.ParseError) as error:
        read(kind, text, full_text, 11 + 5)
    assert message in error.value.message
    assert (error.value.line, error.value.column) == (2, 5 + column)


def test_iota_groups_count_as_written() -> None:
    """COLL-7: iota, reshaped, transposed, split into rows."""
    assert value_of(kinds.REPLICA_GROUPS, "[2,4]<=[8]").groups == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert value_of(kinds.REPLICA_GROUPS, "[4,2]<=[2,4]T(1,0)").groups == ((0, 4), (1, 5), (2, 6), (3, 7))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_iota_groups_are_the_transposed_iota(sizes: list[int], data: st.DataObject) -> None:
    """COLL-7."""
    count = int(np.prod(sizes))
    members = data.draw(st.sampled_from([d for d in range(1, count + 1) if count % d == 0]))
    order = data.draw(st.permutations(range(len(sizes))))
    text = f"[{count // members},{members}]<=[{','.join(map(str, sizes))}]T({','.join(map(str, order))})"
    rows = np.arange(count).reshape(sizes).transpose(order).reshape(-1, members)
    groups = value_of(kinds.REPLICA_GROUPS, text)
    assert [list(group) for group in groups.groups] == rows.tolist()
    again = write(kinds.REPLICA_GROUPS, groups)
    assert value_of(kinds.REPLICA_GROUPS, again) == groups and len(again) <= len(text)


integers = st.integers(-(2**61), 2**61)
positive = st.integers(1, 2**61)
windows = st.lists(
    st.builds(WindowDimension, positive, positive, integers, integers, positive, positive, st.booleans()), max_size=4
).map(tuple)
paddings = st.lists(st.builds(PaddingDimension, integers, integers, st.integers(0, 2**61)), max_size=4).map(tuple)
slices = st.lists(st.builds(SliceDimension, integers, integers, positive), max_size=4).map(tuple)
TREES: list[tuple[AttributeKind, st.SearchStrategy[Any]]] = [
    (kinds.WINDOW, windows),
    (kinds.PADDING, paddings),
    (kinds.SLICES, slices),
    (kinds.INTS, st.lists(st.integers(-(2**63), 2**63 - 1)).map(tuple)),
    (kinds.STRING, st.text()),
    (kinds.FLOAT, st.floats(width=32, allow_nan=False)),
    (kinds.PAIRS, st.lists(st.tuples(integers, integers)).map(tuple)),
    (kinds.PRECISIONS, st.lists(st.sampled_from(Precision)).map(tuple)),
    (kinds.BOOLS, st.lists(st.booleans()).map(tuple)),
]


@given(st.one_of([st.tuples(st.just(kind), tree) for kind, tree in TREES]))
def test_writing_and_reading_are_inverse(case: tuple[AttributeKind, Any]) -> None:
    """GEN-2: text keeps the value."""
    kind, value = case
    got = value_of(kind, write(kind, value))
    if kind is kinds.FLOAT:
        got = np.float32(got)  # the attribute's own width: its text is the shortest one that names the f32
    assert (tuple(got) if isinstance(got, list) else got) == value


@given(st.integers(0, 3), st.data())
def test_dimension_labels_name_each_dimension_once(spatial: int, data: st.DataObject) -> None:
    digits = [str(d) for d in range(spatial)]
    sides = ["".join(data.draw(st.permutations([*letters, *digits]))) for letters in ("bf", "oi", "bf")]
    text = f"{sides[0]}_{sides[1]}->{sides[2]}"
    dimensions = value_of(kinds.DIM_LABELS, text)
    assert write(kinds.DIM_LABELS, dimensions) == text
    assert dimensions.input_batch_dimension == sides[0].index("b")
    assert dimensions.kernel_input_feature_dimension == sides[1].index("i")
    assert dimensions.output_spatial_dimensions == tuple(sides[2].index(d) for d in digits)


def test_kinds_do_not_read_each_others_texts_by_accident() -> None:
    """Texts of the list above with a stray bracket after them are errors for their own kind."""
    for (kind, text, _), stray in itertools.product(CASES, ("}", ")", "{", " x")):
        with pytest.raises(hl.ParseError):
            value_of(kind, text + stray)


def test_the_padding_of_a_scalar_is_empty() -> None:
    """PAD-1 has no dimension then; XLA and hloom print `padding=`."""
    text = 'ENTRY e { x = f32[] parameter(0)\n a = f32[] pad(x, x), padding=\n b = f32[] pad(a, x), padding=, metadata={op_name="b"}\n ROOT c = f32[] pad(b, x), padding=}'
    module = hl.parse(text)
    assert hl.parse(module.to_text()).to_text() == module.to_text()
    assert all(i.op.padding_config == () for i in module.entry.instructions[1:])
