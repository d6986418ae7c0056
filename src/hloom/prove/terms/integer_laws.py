"""Laws of integers: sums and products are polynomials modulo 2^bits."""

from __future__ import annotations

from hloom.ops import elementwise_binary as binary
from hloom.ops import elementwise_unary as unary
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert
from hloom.ops.operation import Operation
from hloom.prove.terms.functions import EQUAL, Terms, apply, converted, polynomial
from hloom.prove.terms.term import Polynomial, Term, constant, from_code, node
from hloom.types import PrimitiveType

MAX_PRODUCTS = 256
"""Products of a polynomial, above which products of sums are left as they are."""

Products = dict[tuple[Term, ...], int]
"""The coefficient of each product of factors, which are sorted."""


def of_integers(op: Operation, type: PrimitiveType, operands: Terms) -> Term | None:
    """Returns the normal form of an operation on integers; None if there is no law."""
    match op:
        case binary.Add() | binary.Subtract() | binary.Multiply():
            return _sum_or_product(op, type, operands)
        case unary.Negate():
            return polynomial(type, _scaled(products_of(operands[0]), -1))
        case unary.Abs() if type.is_signed:
            return _absolute(type, operands[0])
        case unary.Not():
            return polynomial(type, _plus(_scaled(products_of(operands[0]), -1), {(): -1}))
        case binary.Shift():
            return _shift(op, type, operands)
        case binary.Divide() | binary.Remainder():
            return _quotient(op, type, operands)
    return None


def _absolute(type: PrimitiveType, x: Term) -> Term | None:
    """|-x| and ||x|| are |x|, for the minimum too, which is its own absolute value (ABS-1)."""
    if isinstance(x.op, unary.Abs):
        return x
    products = products_of(x)
    first = min(products, key=lambda factors: [factor.ordinal for factor in factors], default=())
    is_negative = products and products[first] & ((1 << type.bits) - 1) > 1 << (type.bits - 1)
    return apply(unary.Abs(), type, (polynomial(type, _scaled(products, -1)),)) if is_negative else None


def products_of(x: Term) -> Products:
    """Returns the products of which a term is the sum."""
    if isinstance(x.op, Polynomial):
        return {tuple(x.operands[k] for k in factors): c for c, factors in x.op.products}
    return {(): x.known} if x.known is not None else {(x,): 1}


def _plus(a: Products, b: Products) -> Products:
    total = dict(a)
    for factors, coefficient in b.items():
        total[factors] = total.get(factors, 0) + coefficient
    return total


def _scaled(a: Products, factor: int) -> Products:
    return {factors: c * factor for factors, c in a.items()}


def _sum_or_product(op: Operation, type: PrimitiveType, operands: Terms) -> Term | None:
    a, b = map(products_of, operands)
    if not isinstance(op, binary.Multiply):
        return polynomial(type, _plus(a, b if isinstance(op, binary.Add) else _scaled(b, -1)))
    if len(a) * len(b) > MAX_PRODUCTS:
        return None
    total: Products = {}
    for left, c in a.items():
        for right, d in b.items():
            factors = tuple(sorted((*left, *right), key=lambda x: x.ordinal))
            total[factors] = total.get(factors, 0) + c * d
    return polynomial(type, total)


def _shift(op: binary.Shift, type: PrimitiveType, operands: Terms) -> Term | None:
    x, amount = operands
    if amount.known is None:
        return None
    if amount.known == 0:
        return x
    if isinstance(op, binary.ShiftLeft):
        return polynomial(type, _scaled(products_of(x), 1 << min(amount.known, type.bits)))
    return from_code(type, 0) if isinstance(op, binary.ShiftRightLogical) and amount.known >= type.bits else None


def _quotient(op: Operation, type: PrimitiveType, operands: Terms) -> Term | None:
    """Divides by powers of two with shifts and masks, if there are no signs; by 1 always."""
    x, y = operands
    if y.known == 1:
        return x if isinstance(op, binary.Divide) else from_code(type, 0)
    if type.is_signed or not y.known or y.known & (y.known - 1):
        return None
    if isinstance(op, binary.Divide):
        return apply(binary.ShiftRightLogical(), type, (x, constant(type, y.known.bit_length() - 1)))
    return apply(binary.And(), type, (x, from_code(type, y.known - 1)))


def resized(op: Operation, type: PrimitiveType, x: Term) -> Term | None:
    """Moves a conversion that keeps the low bits into the products, each of whose factors it converts."""
    if type.bits > x.type.bits or not isinstance(op, (Convert, BitcastConvert)):
        return None
    if not isinstance(x.op, Polynomial):
        return None
    found: Products = {}
    for factors, coefficient in products_of(x).items():
        sorted_factors = tuple(sorted((narrowed(f, type) for f in factors), key=lambda f: f.ordinal))
        for inner, c in _product_of(sorted_factors, type).items():
            found[inner] = found.get(inner, 0) + c * coefficient
    return polynomial(type, found)


def narrowed(x: Term, type: PrimitiveType) -> Term:
    """Converts a factor to an integer type of no more bits; conversions from it to a wider type and back vanish."""
    if isinstance(x.op, Convert) and x.operands[0].type is type:
        return x.operands[0]
    return converted(x, type)


def expanded(op: Polynomial, type: PrimitiveType, operands: Terms) -> Term:
    """Returns a polynomial of operands that may be constants or polynomials."""
    found: Products = {}
    for coefficient, factors in op.products:
        for inner, c in _product_of(tuple(operands[k] for k in factors), type).items():
            found[inner] = found.get(inner, 0) + c * coefficient
    return polynomial(type, found)


def _product_of(factors: tuple[Term, ...], type: PrimitiveType) -> Products:
    product = polynomial(type, {(): 1})
    for factor in factors:
        product = _sum_or_product(binary.Multiply(), type, (product, factor)) or apply(
            binary.Multiply(), type, (product, factor)
        )
    return products_of(product)


def compared(op: Compare, x: Term, y: Term) -> Term | None:
    """Compares integers for equality by their difference, whose constant part stands on the other side."""
    if op != EQUAL or (x.known is None and y.known is None and not _is_sum(x) and not _is_sum(y)):
        return None
    products = _plus(products_of(x), _scaled(products_of(y), -1))
    rest = -products.pop((), 0)
    mask = (1 << x.type.bits) - 1
    kept = {f: c & mask for f, c in products.items() if c & mask}
    if not kept:
        return from_code(PrimitiveType.PRED, int(rest & mask == 0))
    first = min(kept, key=lambda f: [x.ordinal for x in f])
    if kept[first] > mask // 2 + 1:
        kept, rest = _scaled(kept, -1), -rest
    left, right = polynomial(x.type, kept), from_code(x.type, rest & mask)
    operands = (left, right) if left.ordinal < right.ordinal else (right, left)
    return node(PrimitiveType.PRED, op, operands)


def _is_sum(x: Term) -> bool:
    return isinstance(x.op, Polynomial)
