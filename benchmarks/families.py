"""Families of HLO texts that are long in one respect each, as functions of the number of items.

Compile time should be proportional to the number of items in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

Family = Callable[[int], str]
FLAT: dict[str, Family] = {}
"""Families whose items are side by side."""
NESTED: dict[str, Family] = {}
"""Families whose items are nested; some tens of levels are many."""


def flat(family: Family) -> Family:
    """Registers a family whose items are side by side."""
    FLAT[family.__name__] = family
    return family


def nested(family: Family) -> Family:
    """Registers a family whose items are nested."""
    NESTED[family.__name__] = family
    return family


def module(entry: Iterable[str], *computations: Iterable[str], header: str = "") -> str:
    """Returns the text of a module from the lines of its computations; each but the entry begins with its name."""
    bodies = "".join(f"{name} {{\n  {_lines(lines)}\n}}\n" for name, *lines in computations)
    return f"HloModule family{header}\n{bodies}ENTRY entry {{\n  {_lines(entry)}\n}}\n"


def _lines(lines: Iterable[str]) -> str:
    return "\n  ".join(lines)


def tuple_of(shape: str, count: int) -> str:
    """Returns the shape of a tuple of equal elements."""
    return f"({', '.join([shape] * count)})"


def names(prefix: str, count: int) -> str:
    """Returns a list of operands."""
    return ", ".join(f"{prefix}{k}" for k in range(count))


def chain(first: str, link: Callable[[int], str], n: int, last: str) -> str:
    """Returns a module of n links, v1 to v<n>, which read their predecessors; `first` defines v0, `last` reads v<n>."""
    return module([*first.split("; "), *(link(k) for k in range(1, n + 1)), last.format(f"v{n}")])


# Side by side


@flat
def additions(n: int) -> str:
    """A chain of element-wise operations."""
    return chain(
        "v0 = f32[8] parameter(0)", lambda k: f"v{k} = f32[8] add(v{k - 1}, v0)", n, "ROOT r = f32[8] negate({})"
    )


@flat
def elements_of_a_tuple(n: int) -> str:
    """A parameter of n elements, each of which is read."""
    shape = tuple_of("f32[]", n)
    reads = (f"x{k} = f32[] get-tuple-element(p), index={k}" for k in range(n))
    return module([f"p = {shape} parameter(0)", *reads, f"ROOT r = {shape} tuple({names('x', n)})"])


@flat
def operands(n: int) -> str:
    """A concatenation of n arrays."""
    parameters = (f"x{k} = f32[3] parameter({k})" for k in range(n))
    return module([*parameters, f"ROOT r = f32[{3 * n}] concatenate({names('x', n)}), dimensions={{0}}"])


@flat
def updates_in_place(n: int) -> str:
    """An array that is updated n times, one update after another."""
    return chain(
        "v0 = f32[64] parameter(0); u = f32[1] parameter(1); k = s32[] parameter(2)",
        lambda k: f"v{k} = f32[64] dynamic-update-slice(v{k - 1}, u, k)",
        n,
        "ROOT r = f32[64] negate({})",
    )


@flat
def transposes(n: int) -> str:
    """Sums of a matrix and its transpose: 2^n terms for each element unless intermediate results are stored."""
    return chain(
        "v0 = f32[8,8] parameter(0)",
        lambda k: f"t{k} = f32[8,8] transpose(v{k - 1}), dimensions={{1,0}}\n  v{k} = f32[8,8] add(v{k - 1}, t{k})",
        n,
        "ROOT r = f32[8,8] negate({})",
    )


@flat
def reshapes(n: int) -> str:
    """Reshaped transposes, whose combined index expression has n divisions."""
    return chain(
        "v0 = f32[4,6] parameter(0)",
        lambda k: f"t{k} = f32[6,4] transpose(v{k - 1}), dimensions={{1,0}}\n  v{k} = f32[4,6] reshape(t{k})",
        n,
        "ROOT r = f32[4,6] negate({})",
    )


@flat
def elements_of_a_loop(n: int) -> str:
    """A loop that carries n arrays and changes one."""
    shape = f"(s32[], {', '.join(['f32[8]'] * n)})"
    reads = (f"x{k} = f32[8] get-tuple-element(t), index={k + 1}" for k in range(n))
    body = ["body", f"t = {shape} parameter(0)", *_counted(), *reads, f"y = f32[8] add(x0, x{n - 1})"]
    rest = "".join(f", x{k}" for k in range(1, n))
    return module(
        [f"t = {shape} parameter(0)", f"ROOT w = {shape} while(t), condition=less, body=body"],
        _less(shape, 3),
        [*body, f"ROOT r = {shape} tuple(next, y{rest})"],
    )


@flat
def computations(n: int) -> str:
    """Nested calls of n computations."""
    innermost = ["f0", "x = f32[8] parameter(0)", "ROOT r = f32[8] sine(x)"]
    outer = (
        [f"f{k}", "x = f32[8] parameter(0)", f"ROOT r = f32[8] call(x), to_apply=f{k - 1}"] for k in range(1, n + 1)
    )
    return module(["x = f32[8] parameter(0)", f"ROOT r = f32[8] call(x), to_apply=f{n}"], innermost, *outer)


@flat
def branches(n: int) -> str:
    """A conditional of n branches."""
    each = (
        [f"b{k}", "x = f32[] parameter(0)", f"c = f32[] constant({k})", "ROOT r = f32[] multiply(x, c)"]
        for k in range(n)
    )
    arguments, called = ", ".join(["x"] * n), names("b", n)
    choice = f"ROOT r = f32[] conditional(k, {arguments}), branch_computations={{{called}}}"
    return module(["k = s32[] parameter(0)", "x = f32[] parameter(1)", choice], *each)


# Nested


def _less(shape: str, limit: int) -> list[str]:
    """A condition: whether the first element of a tuple is less than a limit."""
    return [
        "less",
        f"t = {shape} parameter(0)",
        "i = s32[] get-tuple-element(t), index=0",
        f"limit = s32[] constant({limit})",
        "ROOT l = pred[] compare(i, limit), direction=LT",
    ]


def _counted() -> list[str]:
    """Instructions for the first element of the tuple t, and the next integer."""
    return ["i = s32[] get-tuple-element(t), index=0", "one = s32[] constant(1)", "next = s32[] add(i, one)"]


@nested
def loops(n: int) -> str:
    """A nest of n while loops."""
    shape = "(s32[])"
    innermost = ["body0", f"t = {shape} parameter(0)", *_counted(), f"ROOT r = {shape} tuple(next)"]
    outer = (
        [f"body{k}", f"t = {shape} parameter(0)", f"ROOT w = {shape} while(t), condition=less, body=body{k - 1}"]
        for k in range(1, n)
    )
    entry = [f"t = {shape} parameter(0)", f"ROOT w = {shape} while(t), condition=less, body=body{n - 1}"]
    return module(entry, _less(shape, 1), innermost, *outer)


@nested
def shared_loops(n: int) -> str:
    """Loops whose bodies are two loops each: 2^n, if all were copied."""
    shape = "(s32[], f32[8])"
    start = [f"t = {shape} parameter(0)", "x = f32[8] get-tuple-element(t), index=1"]
    innermost = ["body0", *start, *_counted(), "y = f32[8] sine(x)", f"ROOT r = {shape} tuple(next, y)"]

    def body(k: int) -> list[str]:
        def run(state: str, result: str) -> list[str]:
            loop = f"{result}w = {shape} while({state}), condition=less, body=body{k - 1}"
            return [loop, f"{result} = f32[8] get-tuple-element({result}w), index=1"]

        again = ["zero = s32[] constant(0)", f"s = {shape} tuple(zero, a)"]
        return [
            f"body{k}", *start, *_counted(), *run("t", "a"), *again, *run("s", "b"), f"ROOT r = {shape} tuple(next, b)",
        ]  # fmt: skip

    entry = [f"t = {shape} parameter(0)", f"ROOT w = {shape} while(t), condition=less, body=body{n - 1}"]
    return module(entry, _less(shape, 3), innermost, *(body(k) for k in range(1, n)))


@nested
def shared_branches(n: int) -> str:
    """Conditionals whose two branches are conditionals again: 2^n, if all were copied."""
    both = (("a", "sine"), ("b", "cosine"))
    innermost = [[f"{name}0", "x = f32[8] parameter(0)", f"ROOT r = f32[8] {op}(x)"] for name, op in both]
    outer = []
    for k in range(1, n + 1):
        for name, other in (("a", "b"), ("b", "a")):
            outer.append(
                [
                    f"{name}{k}",
                    "x = f32[8] parameter(0)",
                    "first = f32[1] slice(x), slice={[0:1]}",
                    "one = f32[] reshape(first)",
                    f"limit = f32[] constant({k})",
                    "p = pred[] compare(one, limit), direction=LT",
                    f"ROOT r = f32[8] conditional(p, x, x), true_computation={name}{k - 1}, "
                    f"false_computation={other}{k - 1}",
                ]
            )
    return module(["x = f32[8] parameter(0)", f"ROOT r = f32[8] call(x), to_apply=a{n}"], *innermost, *outer)


@nested
def shared_calls(n: int) -> str:
    """Functions that call another function twice each: 2^n calls."""
    return _call_tree(n, ["x = f32[8] parameter(0)", "ROOT r = f32[8] sine(x)"])


@nested
def shared_effects(n: int) -> str:
    """Functions as in `shared_calls` that draw random values, on the host."""
    draw = ["z = f32[] constant(0)", "o = f32[] constant(1)", "u = f32[8] rng(z, o), distribution=rng_uniform"]
    return _call_tree(n, ["x = f32[8] parameter(0)", *draw, "ROOT r = f32[8] add(u, x)"])


def _call_tree(n: int, innermost: Iterable[str]) -> str:
    outer = (
        [
            f"f{k}",
            "x = f32[8] parameter(0)",
            f"y = f32[8] call(x), to_apply=f{k - 1}",
            f"ROOT r = f32[8] call(y), to_apply=f{k - 1}",
        ]
        for k in range(1, n + 1)
    )
    entry = ["x = f32[8] parameter(0)", f"ROOT r = f32[8] call(x), to_apply=f{n}"]
    return module(entry, ["f0", *innermost], *outer)
