"""Calls of long programs return early, without any visible effect on those that read or delete results."""

from __future__ import annotations

import json

import pytest

from jax_plugin.platform_process import run

LONG = """
import gc, time
from concurrent.futures import ThreadPoolExecutor

def layers(x):
    y = x
    for _ in range(24):
        y = jnp.tanh(y @ y / 20)
    return x + y  # the argument is read to the end

long = jax.jit(layers)
given = np.random.default_rng(0).standard_normal((384, 384), dtype=np.float32)
x = jax.device_put(given)
wanted = np.asarray(long(x))  # the first call is inline, and timed
twice = np.asarray(long(wanted))
def check(found, wanted=wanted):
    np.testing.assert_array_equal(np.asarray(found), wanted)
def later():
    y = long(x)
    assert not y.is_ready()
    return y
"""

CASES = {
    "a call returns before its program has ended": """
def returns_early():
    started = time.perf_counter()
    y = long(x)
    returned, is_ready = time.perf_counter() - started, y.is_ready()
    y.block_until_ready()
    ended = time.perf_counter() - started
    assert y.is_ready()
    check(y)
    return not is_ready and returned < ended / 4
assert any(returns_early() for _ in range(5))  # others may have the processor meanwhile
y = later()
while not y.is_ready():
    time.sleep(0.001)
check(y)
""",
    "counted loops are queued too": """
loop = jax.jit(lambda x: jax.lax.scan(lambda y, _: (jnp.tanh(y @ y / 20), y[0]), x, None, 24))
first = [np.asarray(y) for y in loop(x)]  # inline, and timed
results = loop(x)
assert not results[0].is_ready()
after = long(results[0])
for found, wanted_ in zip(results, first):
    check(found, wanted_)
check(after, np.asarray(long(first[0])))
""",
    "loops that may run for ever are not": """
until = jax.jit(lambda x: jax.lax.while_loop(lambda y: y[0, 0] < 1e9, lambda y: jnp.tanh(y @ y) + 1e8 + y, x))
for _ in range(3):
    assert until(x).is_ready()
""",
    "calls take results that are not ready": """
y = x
for _ in range(4):
    y = long(y)
found = np.asarray(y)
y = x
for _ in range(4):
    y = long(y).block_until_ready()
check(found, np.asarray(y))

total = jax.jit(jnp.sum)                                                  # short
loop = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x + i, x))  # short
call = jax.jit(lambda x: jax.pure_callback(lambda v: v + 1, x, x))        # needs the host
for f in (total, loop, call):
    f(wanted)
assert float(total(later())) == float(total(wanted))
check(loop(later()), wanted + np.float32(1) + np.float32(2))
check(call(later()), wanted + 1)
check(later() + 1, wanted + 1)
""",
    "reads of a result wait for it": """
check(np.asarray(later()))
check(jax.device_get(later()))
check(np.from_dlpack(later()))
check(jax.device_put(later(), jax.devices()[1]))
check(jnp.copy(later()))
assert later()[3, 4].item() == wanted[3, 4]
check(later().addressable_data(0))
check(later().copy())
""",
    "buffers may be deleted while a program uses them": """
of_python = jax.jit(lambda x: jax.pure_callback(lambda v: v * 1, x, x))  # Python owns its result
for is_deleted in (False, True):
    for make in (jax.jit(lambda x: x * 1), of_python):
        z = make(given)
        y = long(z)
        if is_deleted:
            z.delete()
        del z
        gc.collect()
        jax.device_put(np.ones((3, 4), np.float32).T)  # handled by Python, which frees retired buffers
        others = [np.full((384, 384), k, np.float32) for k in range(8)]
        others += [jax.device_put(other) for other in others]
        check(y)

y = long(later())  # the intermediate result has no other owner
others = [jnp.full((384, 384), k) for k in range(8)]
check(y, twice)
later().delete()

f = jax.jit(lambda x: layers(x) + 1)
f(x)
y = f(x)
del f
gc.collect()
jax.clear_caches()
others = [jax.jit(lambda x, k=k: x * k)(1.0) for k in range(4)]
check(y, wanted + 1)
""",
    "donation happens in order": """
step = jax.jit(layers, donate_argnums=0)
y = jnp.array(given)
step(jnp.array(given))
for _ in range(4):
    before, y = y, step(y)
    assert before.is_deleted()
found = np.asarray(y)
y = x
for _ in range(4):
    y = long(y)
check(found, np.asarray(y))

looked_at = later()
view = np.asarray(looked_at)  # keeps its memory
step(looked_at).block_until_ready()
check(view)
""",
    "threads share the queue": """
def work(k):
    y = x
    for _ in range(2):
        y = long(y)
    return np.asarray(y)
with ThreadPoolExecutor(6) as executor:
    results = list(executor.map(work, range(8)))
for found in results:
    check(found, results[0])
check(results[0], np.asarray(long(long(x))))
""",
    "programs of several devices are queued too": """
from functools import partial
from jax.sharding import NamedSharding, PartitionSpec as P
import hloom
mesh = jax.make_mesh((2,), ("i",))
blocks = partial(jax.shard_map, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
def body(x):
    for _ in range(24):
        x = jnp.tanh(x @ (x * 0.9).T @ x / 20) + jax.lax.psum(x, "i")
    return x
both = jax.jit(blocks(body))
halves = jax.device_put(given, NamedSharding(mesh, P("i")))
step = jax.jit(blocks(body), donate_argnums=0)
steps = jax.jit(blocks(lambda x: jax.lax.fori_loop(0, 24, lambda k, x: jnp.tanh(x @ x.T @ x) + jax.lax.pmean(x, "i"), x)))
once = np.asarray(both(halves))  # inline, and timed
again = np.asarray(both(both(halves)))
looped, stepped = np.asarray(steps(halves)), np.asarray(step(jnp.copy(halves)))
check(stepped, once)

y = both(halves)
assert not y.is_ready()
check(y, once)
check(both(both(halves)), again)
y = steps(halves)
assert not y.is_ready()
check(y, looped)
copy = jnp.copy(halves)
y = step(step(copy))
assert copy.is_deleted() and not y.is_ready()
check(y, again)
both(halves).delete()
check(jax.device_put(both(halves), jax.devices()[0]), once)

text = "HloModule m  s { a = s32[] parameter(0)  b = s32[] parameter(1)  ROOT c = s32[] add(a, b) }"
text += "ENTRY e { x = s32[] parameter(0)  ROOT y = s32[] all-reduce(x), to_apply=s }"
pair = hloom.compile(text, replicas=2)  # takes the same threads
def work(k):
    if k % 3 == 0:
        assert [pair.run_replicas([[j], [k]]) for j in range(50)] == [[j + k] * 2 for j in range(50)]
        return once
    return np.asarray(both(halves)) if k % 3 == 1 else np.asarray(steps(halves)) - looped + once
with ThreadPoolExecutor(6) as executor:
    for found in executor.map(work, range(9)):
        np.testing.assert_allclose(found, once)

def in_use():
    jax.block_until_ready(y)
    gc.collect()
    return [device.memory_stats()["bytes_in_use"] for device in jax.devices()]
before = in_use()
for _ in range(6):
    y = both(y)
assert in_use() == before
""",
    "memory is released": """
def in_use():
    y.block_until_ready()
    gc.collect()
    return jax.devices()[0].memory_stats()["bytes_in_use"]
y = later()
before = in_use()
for _ in range(6):
    y = long(y)
assert in_use() == before
""",
}
EACH = """
import json, traceback
found = {}
for name, case in CASES.items():
    try:
        exec(case, dict(globals()))
        found[name] = ""
    except Exception:
        found[name] = traceback.format_exc()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def failures() -> dict[str, str]:
    """Traceback of each case, "" if it passed. All cases share a process, since that takes seconds to start."""
    found: dict[str, str] = json.loads(run(f"{LONG}CASES = {CASES!r}\n{EACH}", devices=2))
    return found


@pytest.mark.parametrize("case", CASES)
def test_results_equal_those_of_inline_calls(case: str, failures: dict[str, str]) -> None:
    assert not failures[case], failures[case]


def test_a_forked_child_has_a_queue_of_its_own_and_processes_end_while_programs_run() -> None:
    out = run(
        f"""{LONG}
import os, warnings
from jax.sharding import NamedSharding, PartitionSpec as P
warnings.simplefilter("ignore")
mesh = jax.make_mesh((2,), ("i",))
halves = jax.device_put(given, NamedSharding(mesh, P("i")))
both = jax.jit(jax.shard_map(lambda x: layers(x[:, :192])[:, :1] * jax.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P("i")))
once = np.asarray(both(halves))
y = later()
child = os.fork()
if not child:
    check(long(x))
    for _ in range(3):
        y = both(halves)
    # JAX reads all shards at once with threads, which the child does not have.
    check(np.concatenate([shard.data for shard in y.addressable_shards]), once)
    print("child", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
check(y)
last = later(), both(halves)
print("parent")
""",
        devices=2,
    )
    assert out.split() == ["child", "parent"]
