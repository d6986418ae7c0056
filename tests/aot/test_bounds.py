"""Modules with dynamic sizes that are built once for all sizes up to bounds: each gives what its own module gives."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hlo_text import module_text
from hloom.aot import Emit
from hloom.aot.bounded_function import BoundedFunction
from hloom.numerics import Array
from targets.c_program import compiler_of

CASES = int(os.environ.get("HLOOM_CASES", "1000"))
ROWS = "x = f32[?,3] parameter(0)\nz = f32[] constant(0)\nb = f32[?,3] broadcast(z), dimensions={}\n"
RELU = module_text(f"{ROWS}ROOT r = f32[?,3] maximum(x, b)")
X = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
MAIN = """
#include <math.h>
#include <stdio.h>
#include "f.h"
int main(void) {
  float x[18], result[18];
  static char scratch[F_SCRATCH_BYTES];
  for (int n = 0; n <= 6; n++) {
    for (int i = 0; i < 18; i++) x[i] = i % 2 ? i : -i, result[i] = 7;
    if (f(n, x, result, scratch, NULL)) return 1;
    for (int i = 0; i < 18; i++) if (result[i] != (i < 3 * n ? fmaxf(x[i], 0) : 7)) return 2;
  }
  return f(7, x, result, scratch, NULL) != 2 || f(-1, x, result, scratch, NULL) != 2 || f(1, NULL, result, scratch, NULL) != 1;
}
"""


def floats(*sizes: int) -> Array:
    return X[: int(np.prod(sizes))].reshape(sizes)


class Call:
    """Calls a function of a library on dense arrays."""

    def __init__(self, module: Any, folder: Path, bounds: Any) -> None:
        library = hl.build({"f": module}, folder, bounds=bounds, emit=Emit.SHARED, threads=1)
        (function,) = library.sized
        assert isinstance(function, BoundedFunction)
        self.function, self.code = function, ctypes.CDLL(str(folder / "libf.so"))
        self.header = library.files["f.h"].decode()

    def __call__(self, sizes: Sequence[int], arguments: Iterable[Array], results: Sequence[Array]) -> int:
        """Stores results, all elements beyond those that it should have being 7; returns the status."""
        scratch = np.zeros(1 << 21, np.uint8)
        computed = [np.zeros((), np.int32) for _ in self.function.computed]
        arrays = [*map(np.ascontiguousarray, arguments), *results, *computed, scratch]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
        return int(self.code.f(*map(ctypes.c_int64, sizes), *pointers, None))


def check(module: Any, folder: Path, bounds: Any, arguments: Callable[..., list[Array]], sizes: Iterable[Any]) -> None:
    """Compares results for sizes with the interpreter's for the module that is specialised to them."""
    call, executable = Call(module, folder, bounds), hl.compile(module, "interpreter")
    for given in sizes:
        each = given if isinstance(given, tuple) else (given,)
        values = arguments(*each)
        results = [np.full(4 * 4096, 7, np.uint8) for _ in call.function.outputs]
        try:
            want = executable(*values)
        except hl.HloomError:
            assert call(each, values, results) == 2, given
            continue
        assert call(each, values, results) == 0, given
        for expected, memory in zip(
            map(np.asarray, want if isinstance(want, tuple) else (want,)), results, strict=True
        ):
            got = memory[: expected.nbytes].view(expected.dtype).reshape(expected.shape)
            np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-6, err_msg=str(given))
            assert np.all(memory[expected.nbytes :] == 7), given


def test_a_c_program_takes_any_size_up_to_the_bound(tmp_path: Path) -> None:
    """SL-25, SETDIMENSIONSIZE-6: also none and all; others are refused."""
    library = hl.build({"f": RELU}, tmp_path, bounds=6, threads=1)
    assert (
        "int64_t size, /* a size, at most 6 */\n    const float *x, /* f32[size,3] */" in library.files["f.h"].decode()
    )
    (tmp_path / "main.c").write_text(MAIN)
    objects = [*library.binaries]
    subprocess.run(
        [*compiler_of(library), "main.c", *objects, "-lm", "-lpthread", "-o", "main"], cwd=tmp_path, check=True
    )
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0


@pytest.mark.long
def test_each_size_has_its_own_bound(tmp_path: Path) -> None:
    """Dense arrays in memory are rows of the sizes, not of the bounds."""
    three = module_text("x = f32[?,2,?] parameter(0)\nROOT r = f32[?,2,?] tanh(x)")
    sizes = itertools.product(range(4), range(5))
    check(three, tmp_path, (3, 4), lambda m, n: [floats(m, 2, n)], sizes)


def test_bounds_are_checked() -> None:
    with pytest.raises(hl.ArgumentError, match="f has 1 dynamic sizes: give bounds, one for all or for each.* not"):
        hl.build({"f": RELU}, bounds=(1, 2))
    own = module_text("x = f32[<=8,3] parameter(0)\nROOT r = f32[<=8,3] tanh(x)")
    with pytest.raises(hl.ArgumentError, match="give bounds"):
        hl.build({"f": own}, bounds=9)


def test_sizes_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    """SETDIMENSIONSIZE-3: at run time; a bounded array has its bound already."""
    both = "x = f32[<=8] parameter(0)\ny = f32[<=8] parameter(1)\nROOT r = f32[<=8] add(x, y)"
    call = Call(module_text(both), tmp_path, None)
    result = np.zeros(8, np.float32)
    assert [call((m, n), [floats(8), floats(8)], [result]) for m, n in ((3, 3), (3, 4), (9, 9))] == [0, 2, 2]
    assert result.tolist() == [*(2 * X[:3]), *[0] * 5]


def causal(q: Any, k: Any, v: Any) -> Any:
    import jax
    import jax.numpy as jnp

    mask = jnp.tril(jnp.ones((q.shape[0], k.shape[0]), bool))
    return jax.nn.softmax(jnp.where(mask, q @ k.T, -1e9)) @ v


def functions() -> dict[str, tuple[Callable[..., Any], Sequence[str], Any]]:
    """JAX functions of arrays of symbolic sizes, with bounds."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def heads(x: Any) -> Any:
        y = x.reshape(x.shape[0], x.shape[1], 2, 3).transpose(0, 2, 1, 3)
        y = jax.nn.softmax(y @ y.swapaxes(-1, -2)) @ y
        return y.transpose(0, 2, 1, 3).reshape(x.shape)

    def scanned(x: Any) -> Any:
        return lax.scan(lambda c, row: (c * 0.5 + row, c.sum()), jnp.zeros(3), x)

    rows = ["n,3"]
    return {
        "softmax": (lambda x: jax.nn.softmax(x, 0), rows, 9),
        "causal attention": (causal, ["n,4"] * 3, 9),
        "heads": (heads, ["b,s,6"], (3, 5)),
        "variance": (lambda x: x.var(), rows, 9),
        "gradient": (lambda x: jax.grad(lambda x: jnp.mean(jnp.tanh(x) ** 2))(x), rows, 9),
        "concatenation": (lambda x: jnp.concatenate([x, 2 * x, x[:1]]), rows, 9),
        "sum of two": (lambda x, y: jnp.concatenate([x, y]).sum(0), ["n,3", "m,3"], (4, 3)),
        "differences": (lambda x: x[1:] - x[:-1], rows, 9),
        "last": (lambda x: x[-1], rows, 9),
        "every second": (lambda x: x[::2], rows, 9),
        "first half": (lambda x: x[: x.shape[0] // 2], rows, 9),
        "dynamic part": (lambda x: lax.dynamic_slice(x, (jnp.int32(x[0, 0] > 0), 0), (x.shape[0] - 1, 3)), rows, 9),
        "reversed": (lambda x: x[::-1], rows, 9),
        "sorted": (lambda x: jnp.sort(x, 0), rows, 9),
        "argmax": (lambda x: jnp.argmax(x, 0), rows, 9),
        "running sum": (lambda x: jnp.cumsum(x, 0), rows, 9),
        "running maximum, backwards": (lambda x: lax.cummax(x, 0, reverse=True), rows, 9),
        "flat": (lambda x: (x @ x.T).reshape(-1), rows, 9),
        "positions": (lambda x: jnp.arange(x.shape[0]) * x.shape[0], rows, 9),
        "padding": (lambda x: jnp.pad(x, ((1, 2), (0, 0))), rows, 9),
        "scan": (scanned, rows, 9),
        "loop": (lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i] * i, jnp.zeros(3)), rows, 9),
        "loop of arrays": (lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + x, x), rows, 9),
        "branches": (lambda x: lax.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, x), rows, 9),
        "special function": (jax.scipy.special.gammaln, rows, 9),
        "updated": (lambda x: x.at[0].set(1.0), rows, 9),
        "convolution": (lambda x: lax.conv(x, jnp.ones((2, 3, 3, 3)), (1, 1), "SAME"), ["n,3,5,5"], 3),
    }


@pytest.mark.long
@pytest.mark.parametrize("name", functions() if pytest.importorskip("jax") else [])
def test_functions_of_jax(name: str, tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    from jax import export

    function, shapes, bounds = functions()[name]
    words = list(dict.fromkeys(word for shape in shapes for word in shape.split(",") if word.isalpha()))
    symbols = dict(zip(words, export.symbolic_shape(",".join(words)), strict=True))
    sizes = [[symbols.get(word) or int(word) for word in shape.split(",")] for shape in shapes]
    module = hl.from_jax(function, *(jax.ShapeDtypeStruct(each, np.float32) for each in sizes))

    def arguments(*given: int) -> list[Array]:
        value = dict(zip(words, given, strict=True))
        return [floats(*(value[word] if word in value else int(word) for word in shape.split(","))) for shape in shapes]

    every = itertools.product(*(range(bound + 1) for bound in (bounds if isinstance(bounds, tuple) else (bounds,))))
    check(module, tmp_path, bounds, arguments, itertools.islice(every, CASES))
