"""Codecs of attributes about accuracy: precisions, dot algorithms, result accuracy."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hloom.errors import ArgumentError
from hloom.ops.attributes import DotAlgorithm, ResultAccuracy
from hloom.shape import Shape
from hloom.stablehlo.attributes.codecs import AttributeCodec
from hloom.stablehlo.attributes.values import (
    PRECISION,
    Attributes,
    FieldValues,
    entries,
    enum_case,
    floating_point,
    integer,
    parameters,
    required,
)
from hloom.stablehlo.mlir.ir import Attribute, DialectAttribute, Number, ScalarType
from hloom.stablehlo.mlir.types import F64, i64
from hloom.system.records import record


@record(slots=True)
class Precisions(AttributeCodec):
    """`precision_config = [#stablehlo<precision HIGHEST>, ..]`; omitted beside a dot algorithm, which overrides it."""

    dialect: str = "stablehlo"

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> FieldValues:
        return {"operand_precision": tuple(map(PRECISION.read, entries(attributes.get("precision_config", []))))}

    def write(self, fields: FieldValues) -> dict[str, Attribute]:
        precisions = fields["operand_precision"]
        if not precisions or fields.get("algorithm") not in _NO_ALGORITHM:
            return {}
        return {"precision_config": [DialectAttribute(f"{self.dialect}.precision", p.name) for p in precisions]}


_NO_ALGORITHM = (None, DotAlgorithm.ALG_UNSET)
_ALGORITHM = re.compile(r"dot_(any_f8|[a-z]+\d+)_(any_f8|[a-z]+\d+)_([a-z]+\d+)(?:_x([369]))?(_fast_accum)?")
_ALGORITHM_FIELDS = (
    "lhs_precision_type",
    "rhs_precision_type",
    "accumulation_type",
    "lhs_component_count",
    "rhs_component_count",
    "num_primitive_operations",
    "allow_imprecise_accumulation",
)


class Algorithm(AttributeCodec):
    """`algorithm = #stablehlo.dot_algorithm<lhs_precision_type = tf32, ..>`, which has a single name in HLO."""

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> FieldValues:
        attribute = attributes.get("algorithm")
        if attribute is None:
            return {}
        body = parameters(attribute, "dot_algorithm")
        values = [required(body, name) for name in _ALGORITHM_FIELDS]
        given = [v.name if isinstance(v, ScalarType) else v.value if isinstance(v, Number) else v for v in values]
        lhs, rhs, accumulator = ("any_f8" if str(name).startswith("f8") else name for name in given[:3])
        products = "" if given[5] == 1 else f"_x{given[5]}"
        name = f"dot_{lhs}_{rhs}_{accumulator}{products}{'_fast_accum' if given[6] else ''}"
        if name not in {member.value for member in DotAlgorithm} or given[3:5] != [1, 1]:
            raise ArgumentError(f"there is no dot algorithm {tuple(given)}")
        return {"algorithm": DotAlgorithm(name)}

    def write(self, fields: FieldValues) -> dict[str, Attribute]:
        algorithm = fields["algorithm"]
        if algorithm in _NO_ALGORITHM:
            return {}
        match = _ALGORITHM.fullmatch(algorithm.value)
        assert match is not None
        types: list[Attribute] = [ScalarType(name.replace("any_f8", "f8E5M2")) for name in match.group(1, 2, 3)]
        counts: list[Attribute] = [i64(1), i64(1), i64(int(match[4] or 1))]
        body = dict(zip(_ALGORITHM_FIELDS, [*types, *counts, match[5] is not None], strict=True))
        return {"algorithm": DialectAttribute("stablehlo.dot_algorithm", body)}


class Accuracy(AttributeCodec):
    """`result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<HIGHEST>>`."""

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> FieldValues:
        attribute = attributes.get("result_accuracy")
        if attribute is None:
            return {}
        body = parameters(attribute, "result_accuracy")
        mode = enum_case(body["mode"], "result_accuracy_mode").lower() if "mode" in body else "tolerance"
        if mode != "tolerance":
            return {"result_accuracy": ResultAccuracy(mode)}
        atol, rtol = (floating_point(body[name]) if name in body else 0.0 for name in ("atol", "rtol"))
        return {"result_accuracy": ResultAccuracy("default", atol, rtol, integer(body.get("ulps", i64(0))))}

    def write(self, fields: FieldValues) -> dict[str, Attribute]:
        accuracy: ResultAccuracy = fields["result_accuracy"]
        if accuracy == ResultAccuracy():
            return {}
        mode = "TOLERANCE" if accuracy.has_tolerance else accuracy.mode.upper()
        body: dict[str, Attribute] = {}
        if accuracy.has_tolerance:
            body = {"atol": Number(accuracy.atol, F64), "rtol": Number(accuracy.rtol, F64), "ulps": i64(accuracy.ulps)}
        body["mode"] = DialectAttribute("stablehlo.result_accuracy_mode", mode)
        return {"result_accuracy": DialectAttribute("stablehlo.result_accuracy", body)}
