"""Matrix products of a traced function, with the turns of its loops, which the compiler's count lacks."""

import math

import jax
from jax.extend import core


def product_flops(function, *arguments) -> int:
    """Floating point operations (a multiply-add is two) of all products in what `function` is traced to."""
    return _of(jax.make_jaxpr(function)(*arguments).jaxpr)


def _of(jaxpr: core.Jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        name, turns = equation.primitive.name, equation.params.get("length", 1)
        if name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[i] for i in contracted)
        elif name == "triangular_solve":
            system, sides = (x.aval.shape for x in equation.invars)
            total += math.prod(sides) * system[-1]  # half of a product
        elif name == "while":
            raise ValueError("a loop whose turns are known only when run")
        total += turns * sum(_of(inner) for inner in _inner(equation.params))
    return total


def _inner(params: dict):
    for value in params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, core.ClosedJaxpr):
                yield each.jaxpr
            elif isinstance(each, core.Jaxpr):
                yield each
