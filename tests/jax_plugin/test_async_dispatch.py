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
started = time.perf_counter()
y = long(x)
returned = time.perf_counter() - started
assert not y.is_ready()
y.block_until_ready()
ended = time.perf_counter() - started
assert y.is_ready() and returned < ended / 4
check(y)
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
for _ in range(9):
    y = long(y)
found = np.asarray(y)
y = x
for _ in range(9):
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
for _ in range(6):
    before, y = y, step(y)
    assert before.is_deleted()
found = np.asarray(y)
y = x
for _ in range(6):
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
    for _ in range(3):
        y = long(y)
    return np.asarray(y)
with ThreadPoolExecutor(6) as executor:
    results = list(executor.map(work, range(12)))
for found in results:
    check(found, results[0])
check(results[0], np.asarray(long(long(long(x)))))
""",
    "memory is released": """
def in_use():
    y.block_until_ready()
    gc.collect()
    jax.device_put(0.0)
    return jax.devices()[0].memory_stats()["bytes_in_use"]
y = later()
before = in_use()
for _ in range(20):
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
    out = run(f"""{LONG}
import os, warnings
warnings.simplefilter("ignore")
y = later()
child = os.fork()
if not child:
    check(long(x))
    print("child", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
check(y)
last = later()
print("parent")
""")
    assert out.split() == ["child", "parent"]
