"""The functions users start with, and their errors."""

from __future__ import annotations

import importlib.metadata
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from hloom.proto import module_to_bytes

TEXT = "HloModule m\nENTRY e { x = f32[2] parameter(0)\n ROOT y = f32[2] negate(x) }"


def test_text_and_protos_are_distinguished_by_content(tmp_path: Path) -> None:
    text, proto = tmp_path / "a.pb", tmp_path / "a.hlo"
    text.write_text(TEXT)
    proto.write_bytes(module_to_bytes(hl.parse(TEXT)))
    for path in (text, str(proto)):
        assert hl.compile(hl.load(path))(np.ones(2, np.float32)).tolist() == [-1, -1]


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    stablehlo = "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n  return %a : tensor<2xf32>\n}"
    path = tmp_path / "from_windows"
    for text in (TEXT, stablehlo):
        path.write_text(text, encoding="utf-8-sig")
        assert path.read_bytes()[:1] == b"\xef"
        for module in (hl.load(path), hl.parse(path.read_text(encoding="utf-8"))):
            assert module.to_text() == hl.parse(text).to_text()


def test_modules_text_and_built_computations_compile() -> None:
    b = hl.XlaBuilder()
    built = b.build(-b.parameter(0, hl.f32[2]))
    for program in (TEXT, hl.parse(TEXT), built, built.module, built.module.entry):
        assert hl.compile(program)(np.ones(2, np.float32)).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hl.compile(3), "a program is a Module, .* or the path of a file, got int"),
        (lambda: hl.compile(TEXT, backend="gpu"), "there is no backend 'gpu'"),
        (lambda: hl.compile(TEXT, replicas=0), "at least one replica"),
        (lambda: hl.compile(TEXT, replicas="2"), "replicas is an integer"),
        (lambda: hl.compile(TEXT, seed=-1), "seed is an integer >= 0"),
        (lambda: hl.compile(TEXT, timeout="long"), "timeout and step_limit are numbers"),
        (lambda: hl.compile(TEXT, devices=[]), "runs on 1 devices, got 0"),
        (lambda: hl.compile(TEXT, replicas=10**9), "at most 65536 devices, got 1000000000"),
        (lambda: hl.load(3), "a path is a string"),
        (lambda: hl.save(hl.parse(TEXT), None), "a path is a string"),
        (lambda: hl.build(hl.parse(TEXT)), "build takes a dictionary of names and modules, got Module"),
        (lambda: hl.load("no\0name"), "cannot read"),
        (lambda: hl.load("/"), "there is no module in /"),
        (lambda: hl.parse(b"x"), "HLO text is a str"),
        (lambda: hl.parse_shape("f32"), "expected '\\['"),
        (lambda: hl.compile(TEXT, replicas=2)(1), "use run_replicas"),
    ],
)
def test_invalid_arguments(call: object, message: str) -> None:
    with pytest.raises(hl.HloomError, match=message):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(
    "error",
    [
        hl.ArgumentError("no").at("%x"),
        hl.RuleError("pad", "PAD-3", "interior padding must be >= 0").at("line 3"),
        hl.ParseError("expected a size", 2, 3, "f32[x"),
    ],
)
def test_errors_are_pickled_with_their_fields_and_locations(error: hl.HloomError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


def test_errors_of_the_builder_name_the_users_line() -> None:
    b = hl.XlaBuilder()
    x = b.parameter(0, hl.f32[2, 3])
    with pytest.raises(hl.RuleError) as error:
        b.transpose(x, [0, 0])
    assert str(error.value).startswith(
        "transpose[TRANSPOSE-2]: permutation must be one of 0 .. 1 for f32[2,3], got [0, 0]"
    )
    assert "test_api.py:" in str(error.value)


def test_operators_and_indexing_of_operations() -> None:
    b = hl.XlaBuilder()
    x = b.parameter(0, hl.s32[4, 3])
    roots = [x + 1, 10 - x, x * x, x % 2, x & 6, x << 1, ~x, abs(-x), x[1], x[1:3, ::2]]
    roots += [x[..., -1], x > 2, x != 3, b.tuple(x, x)[1]]
    given = np.arange(12, dtype=np.int32).reshape(4, 3)
    got = hl.compile(b.build(b.tuple(*roots)))(given)
    want = [given + 1, 10 - given, given * given, given % 2, given & 6, given << 1, ~given, given, given[1]]
    want += [given[1:3, ::2], given[..., -1], given > 2, given != 3, given]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)
    with pytest.raises(hl.ArgumentError, match="not known while building"):
        bool(x)
    with pytest.raises(hl.RuleError, match="BC-3"):
        _ = x + b.constant(np.zeros(3, np.int32))
    with pytest.raises(hl.ArgumentError, match="belongs to the builder"):
        hl.XlaBuilder("other").neg(x)


def test_a_computation_can_have_several_callers_and_a_builder_be_used_further() -> None:
    a = hl.XlaBuilder("inner")
    inner = a.build(a.parameter(0, hl.f32[()]) * 2.0)
    results = []
    for factor in (1.0, 3.0):
        b = hl.XlaBuilder("outer")
        x = b.parameter(0, hl.f32[()])
        first = b.build(b.call(inner, x) * factor)
        second = b.build(b.call(inner, b.call(inner, x)))
        results += [float(hl.compile(c)(1.0)) for c in (first, second)]
    assert results == [2, 4, 6, 4]


def test_static_operands_of_map_are_constants_or_scalars() -> None:
    """MAP-3."""
    b = hl.XlaBuilder()
    x, n = b.parameter(0, hl.f32[3]), b.parameter(1, hl.f32[()])
    root = b.map([x], lambda e, c, m: e * m + c, [0], static_operands=[np.float32(10), n])
    got = hl.compile(b.build(root))(np.array([1, 2, 3], np.float32), np.float32(2))
    assert got.tolist() == [12, 14, 16]
    with pytest.raises(hl.RuleError, match="MAP-3"):
        b.map([x], lambda e, c: e, [0], static_operands=[x])


def test_names_become_valid_in_hlo_text() -> None:
    b = hl.XlaBuilder("my model, 1")
    text = b.build(b.neg(b.parameter(0, hl.f32[2], "s2 x"))).to_text()
    assert hl.parse(text).name == "my_model__1" and "s2_x = f32[2]{0} parameter(0)" in text
    assert hl.XlaBuilder("").name == "computation"


# Programs of all kinds


def test_a_path_is_a_program(tmp_path: Path) -> None:
    path = tmp_path / "double.hlo"
    path.write_text("HloModule m\nENTRY e { x = f32[2] parameter(0)\n ROOT y = f32[2] add(x, x) }")
    for program in (path, str(path)):
        assert hl.compile(program)(np.ones(2, np.float32)).tolist() == [2, 2]
    with pytest.raises(hl.HloomError, match="cannot read"):
        hl.compile(str(tmp_path / "none.hlo"))


def test_an_op_is_none_and_the_error_says_what_is() -> None:
    b = hl.XlaBuilder("axpy")
    x = b.parameter(0, hl.f32[2], "x")
    with pytest.raises(hl.ArgumentError, match=r"b\.build\(op\) with the builder 'axpy'"):
        hl.compile(x)  # type: ignore[arg-type]
    with pytest.raises(hl.ArgumentError, match="is no array: it has a value when its computation runs"):
        hl.compile(b.build(x + x))(x)


def test_objects_show_what_they_are() -> None:
    b = hl.XlaBuilder("axpy")
    x = b.parameter(0, hl.f32[2], "x")
    assert repr(b) == "XlaBuilder(axpy: 1 instruction)" and repr(x) == "XlaOp(%x = f32[2] parameter(0))"
    built = b.build(x + x)
    assert repr(hl.compile(built)) == "CpuExecutable(axpy: (f32[2]) -> f32[2])"
    assert repr(built.module) == "Module(axpy: 1 computation, 2 instructions)"
    assert repr(hl.Device(3)) == "Device(3)" and hl.__version__ == importlib.metadata.version("hloom")


@pytest.mark.long
def test_a_function_of_jax_is_traced_for_each_set_of_shapes() -> None:
    jnp = pytest.importorskip("jax.numpy")
    run = hl.compile(lambda tree, y: jnp.sin(tree["x"]) + y)
    assert repr(run) == "TracedExecutable(<lambda>)"
    with pytest.raises(hl.ArgumentError, match="traced at its first call"):
        _ = run.input_shapes
    for size in (2, 3, 2):
        x = np.ones(size, np.float32)
        np.testing.assert_allclose(run({"x": x}, x), np.sin(x) + 1, rtol=1e-6)
        assert run.output_shape == hl.f32[size]


def test_a_function_without_jax_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(hl.ArgumentError, match="pip install jax"):
        hl.compile(lambda x: x)(np.ones(2, np.float32))
