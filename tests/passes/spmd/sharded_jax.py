"""Programs of JAX over several devices: as a script, traces them on 8 CPU devices and writes what JAX computes.

For each name on a line of the standard input it pickles to the standard output the program's HLO proto, the arguments,
and JAX's results. With the argument `gspmd` shardings travel as GSPMD has them, otherwise as Shardy has them.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from functools import partial
from typing import Any

# Programs run once: to optimise them takes longer.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib import _jax

jax.config.update("jax_use_shardy_partitioner", "gspmd" not in sys.argv)

mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
explicit_mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


def sharded(*axes: Any) -> NamedSharding:
    return NamedSharding(mesh, P(*axes))


def array(*sizes: int, axes: Any = ()) -> jax.Array:
    values = np.random.default_rng(len(sizes)).standard_normal(sizes).astype(np.float32)
    return jax.device_put(values, sharded(*axes))


PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {}


def program(*arguments: Any, **options: Any) -> Any:
    """Adds a function, under its name, with its arguments."""

    def add(function: Any) -> Any:
        jitted = function if hasattr(function, "lower") else jax.jit(function, **options)
        PROGRAMS[function.__name__] = (jitted, arguments)
        return function

    return add


X = array(8, 4, axes=("x", "y"))


@program(X, X, out_shardings=(sharded("x"), None))
def shardings_in_and_out(a, b):
    return a @ b.T, jnp.sum(a)


@program(X)
def constraint(a):
    return lax.with_sharding_constraint(jnp.sin(a), sharded(None, "y")) * 2


@program(X)
def attention(a):
    return jax.nn.softmax(a @ a.T, axis=-1) @ a


@partial(jax.shard_map, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
def summed_and_scaled(a):
    return a * lax.axis_index("x") + lax.psum(a, "y")


@program(X)
def manual(a):
    return summed_and_scaled(a) + 1


@program(X)
def manual_in_a_loop(a):
    def step(i, c):
        return lax.with_sharding_constraint(c + summed_and_scaled(c), sharded("y", "x"))

    return lax.fori_loop(0, 3, step, a)


@program(X)
@partial(jax.shard_map, mesh=mesh, in_specs=P("x", "y"), out_specs=P(("x", "y")), check_vma=False)
def every_collective(a):
    return (
        lax.ppermute(a, "x", [(i, (i + 1) % 4) for i in range(4)]),
        lax.psum_scatter(a, "y", scatter_dimension=1, tiled=True),
        lax.all_to_all(a, "y", 1, 0, tiled=True),
        lax.pmax(a, ("x", "y")),
        lax.all_gather(a, ("y", "x")),
        jax.random.normal(jax.random.key(0), (2,)),
        lax.axis_index(("x", "y"))[None],
    )


@program(X)
@partial(jax.shard_map, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
def a_branch_of_its_own(a):
    return lax.cond(lax.axis_index("x") % 2 == 0, jnp.sin, jnp.cos, a)


@program(X)
@partial(jax.shard_map, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
def a_ring_in_a_loop(a):
    def step(i, state):
        total, block = state
        return total + block * i, lax.ppermute(block, "x", [(k, (k + 1) % 4) for k in range(4)])

    return lax.fori_loop(0, 4, step, (a * 0, a))[0]


@program(X)
def two_values_cross_the_boundary(a):
    body = jax.shard_map(
        lambda u, v: (u * 2, lax.all_gather(v, "x", tiled=True)),
        mesh=mesh,
        in_specs=(P("x", "y"), P(None, "x")),
        out_specs=(P("x", "y"), P("x")),
    )
    return body(a, a)


@program(X)
@partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
def partly_manual(a):
    return lax.with_sharding_constraint(a * 2, P(None, "y")) + lax.psum(a, "x")


@program(X)
@partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
def nested_manual(a):
    def inner(b):
        return lax.psum(b, "x") * lax.axis_index("y")

    return jax.shard_map(inner, in_specs=P(None, "y"), out_specs=P(None, "y"), axis_names={"y"})(a)


@program(X)
def random_values(a):
    return lax.with_sharding_constraint(jax.random.normal(jax.random.key(0), (8, 4)), sharded("x", "y")) + a


@program(array(8, 6, 6, 4, axes=("x",)), array(3, 3, 4, 8, axes=()))
def convolution_gradient(images, kernel):
    def loss(k):
        out = lax.conv_general_dilated(images, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jnp.mean(jax.nn.relu(out) ** 2)

    return jax.grad(loss)(kernel)


@program(array(16, 8), jax.device_put(np.arange(32, dtype=np.int32).reshape(8, 4) % 16, sharded("x")))
def embedding_gradient(table, tokens):
    return jax.grad(lambda t: jnp.sum(jnp.sin(t[tokens])))(table)


@program(array(8, 3, axes=()))
def scan_over_layers(a):
    weights = jnp.stack([jnp.eye(3) * k for k in range(1, 4)])
    return lax.scan(lambda c, w: (jnp.tanh(c @ w), c.sum()), a, weights)


def layers(batch: int) -> tuple[Any, ...]:
    sizes = [(16, 32), (32, 32), (32, 8)]
    return tuple((array(*size), array(size[1])) for size in sizes)


def loss(parameters, inputs, targets):
    for weights, bias in parameters:
        inputs = jnp.tanh(inputs @ weights + bias)
    return jnp.mean((inputs - targets) ** 2)


BATCH = (array(64, 16, axes=(("x", "y"),)), array(64, 8, axes=(("x", "y"),)))


@program(layers(64), *BATCH)
def data_parallel_gradient(parameters, inputs, targets):
    return jax.value_and_grad(loss)(parameters, inputs, targets)


LENGTH, WIDTH, HEADS, WORDS, DEPTH = 8, 16, 4, 32, 2
TRANSFORMER = {
    "table": array(WORDS, WIDTH),
    "qkv": array(DEPTH, WIDTH, 3 * WIDTH) * 0.2,
    "out": array(DEPTH, WIDTH, WIDTH) * 0.2,
    "up": array(DEPTH, WIDTH, 4 * WIDTH) * 0.2,
    "down": array(DEPTH, 4 * WIDTH, WIDTH) * 0.2,
}


def normalized(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def block(h, weights):
    """Causal attention and a perceptron."""
    batch = h.shape[0]
    q, k, v = jnp.split((normalized(h) @ weights["qkv"]).reshape(batch, LENGTH, 3 * HEADS, -1), 3, axis=2)
    scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), jnp.einsum("bthd,bshd->bhts", q, k), -1e9)
    attended = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, -1), v).reshape(h.shape)
    h = h + attended @ weights["out"]
    return h + jax.nn.gelu(normalized(h) @ weights["up"]) @ weights["down"], None


def sentences() -> jax.Array:
    words = np.random.default_rng(0).integers(0, WORDS, (16, LENGTH + 1)).astype(np.int32)
    return jax.device_put(words, sharded(("x", "y")))


@program(TRANSFORMER, sentences())
def transformer_step(parameters, words):
    def loss(parameters):
        layers = {name: value for name, value in parameters.items() if name != "table"}
        h, _ = lax.scan(block, parameters["table"][words[:, :-1]], layers)
        logits = jax.nn.log_softmax(h @ parameters["table"].T)
        return -jnp.mean(jnp.take_along_axis(logits, words[:, 1:, None], -1))

    value, gradients = jax.value_and_grad(loss)(parameters)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients)


FSDP = jax.tree.map(lambda a: jax.device_put(a, sharded("x")), layers(64))


@program(FSDP, *BATCH, out_shardings=jax.tree.map(lambda a: a.sharding, FSDP))
def sharded_parameters_step(parameters, inputs, targets):
    gradients = jax.grad(loss)(parameters, inputs, targets)
    return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients)


SPECS = ((P(None, "y"), P("y")), (P("y"), P()), (P(None, "y"), P("y")))
TENSOR = tuple(
    tuple(jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip(pair, specs, strict=True))
    for pair, specs in zip(layers(64), SPECS, strict=True)
)


@program(TENSOR, array(64, 16, axes=("x",)), array(64, 8, axes=("x",)))
def tensor_parallel_gradient(parameters, inputs, targets):
    return jax.value_and_grad(loss)(parameters, inputs, targets)


PROGRAMS["pmap"] = (jax.pmap(lambda a: a / lax.psum(a, "i"), axis_name="i"), (np.ones((8, 3), np.float32),))


def explicit(a):
    return jnp.sin(a) @ jax.sharding.reshard(a.T, P(None, None))


def proto_of(jitted: Any, arguments: tuple[Any, ...]) -> bytes:
    """The HLO proto that a plugin receives for a jitted function."""
    file = io.BytesIO()
    jitted.lower(*arguments).compiler_ir("stablehlo").operation.write_bytecode(file)
    computation = _jax.mlir.mlir_module_to_xla_computation(file.getvalue(), use_tuple_args=False, return_tuple=True)
    return computation.as_serialized_hlo_module_proto()


def expected(jitted: Any, arguments: tuple[Any, ...]) -> tuple[bytes, list[Any], list[Any]]:
    results = [np.asarray(leaf) for leaf in jax.tree.leaves(jitted(*arguments))]
    return proto_of(jitted, arguments), [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)], results


def main() -> None:
    for line in sys.stdin:
        if (name := line.strip()) == "explicit":
            with jax.set_mesh(explicit_mesh):
                a = jax.device_put(np.asarray(X), NamedSharding(explicit_mesh, P("x", "y")))
                traced = expected(jax.jit(explicit), (a,))
        else:
            traced = expected(*PROGRAMS[name])
        pickle.dump(traced, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
