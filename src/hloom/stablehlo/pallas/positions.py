"""Evaluation of kernels that ask for their position in the grid inside loops, branches and functions.

JAX replaces `program_id` while it evaluates the equations of a kernel, but not those of jaxprs within. Here control
flow that needs it is traced again, as functions that refer to the position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jax import lax
from jax._src import core


def evaluate(jaxpr: Any, constants: Sequence[Any], *arguments: Any) -> list[Any]:
    """Returns the results of a jaxpr, in the grid environment of the caller."""
    if not any(map(_needs_inside, jaxpr.eqns)):
        return core.eval_jaxpr(jaxpr, constants, *arguments)
    names = jaxpr.debug_info.with_unknown_names()
    environment = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *arguments), strict=True))

    def value_of(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else environment[atom]

    for equation in jaxpr.eqns:
        if _needs_inside(equation):
            operands = [*map(value_of, equation.invars)]
            results = _EVALUATED[equation.primitive.name](equation.params, operands)
        else:
            variables = [*dict.fromkeys(v for v in equation.invars if isinstance(v, core.Var))]
            alone = core.Jaxpr((), variables, equation.outvars, [equation], equation.effects, names)
            results = core.eval_jaxpr(alone, (), *(environment[v] for v in variables))
        environment |= zip(equation.outvars, results, strict=True)
    return [*map(value_of, jaxpr.outvars)]


def _needs_inside(equation: Any) -> bool:
    return equation.primitive.name in _EVALUATED and any(map(_needs, core.jaxprs_in_params(equation.params)))


def _needs(jaxpr: Any) -> bool:
    names = {equation.primitive.name for equation in jaxpr.eqns}
    return not names.isdisjoint({"program_id", "num_programs"}) or any(map(_needs_inside, jaxpr.eqns))


def _function(closed: Any) -> Callable[..., list[Any]]:
    return lambda *arguments: evaluate(closed.jaxpr, closed.consts, *arguments)


def _call(parameters: Any, operands: list[Any]) -> list[Any]:
    return _function(parameters["jaxpr"])(*operands)


def _conditional(parameters: Any, operands: list[Any]) -> list[Any]:
    return lax.switch(operands[0], [*map(_function, parameters["branches"])], *operands[1:])  # type: ignore[no-any-return]


def _while(parameters: Any, operands: list[Any]) -> list[Any]:
    tested, used = parameters["cond_nconsts"], parameters["cond_nconsts"] + parameters["body_nconsts"]
    condition, body = _function(parameters["cond_jaxpr"]), _function(parameters["body_jaxpr"])
    return lax.while_loop(  # type: ignore[no-any-return]
        lambda state: condition(*operands[:tested], *state)[0],
        lambda state: body(*operands[tested:used], *state),
        operands[used:],
    )


def _scan(parameters: Any, operands: list[Any]) -> list[Any]:
    constants, initial, stacked = _scanned(parameters, operands)
    body = _function(parameters["jaxpr"])

    def step(state: list[Any], elements: list[Any]) -> tuple[list[Any], list[Any]]:
        results = body(*constants, *state, *elements)
        return results[: len(state)], results[len(state) :]

    options = {name: parameters[name] for name in ("reverse", "length", "unroll")}
    state, results = lax.scan(step, initial, stacked, **options)
    return [*state, *results]


def _scanned(parameters: Any, operands: list[Any]) -> Iterator[list[Any]]:
    """The constants, the initial state and the stacked operands of a scan."""
    if "ft_in" in parameters:  # newer than JAX 0.10
        return map(list, parameters["ft_in"].update(operands).unpack())
    used = parameters["num_consts"]
    carried = used + parameters["num_carry"]
    return iter([operands[:used], operands[used:carried], operands[carried:]])


_EVALUATED: dict[str, Callable[[Any, list[Any]], list[Any]]] = {
    "jit": _call, "pjit": _call, "cond": _conditional, "while": _while, "scan": _scan,
}  # fmt: skip
