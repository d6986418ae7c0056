"""The schema gives protobuf classes with XLA's names and numbers, and reads every module that XLA wrote."""

from __future__ import annotations

import lzma
import subprocess
import sys
from typing import Any

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

from conftest import CORPUS
from hloom.proto import schema
from hloom.types import PrimitiveType


def unknown_fields(message: Any, path: str = "") -> list[str]:
    """Paths of fields in a message, and in messages inside it, that the schema lacks; empty fields are ignored."""
    unknown = UnknownFieldSet(message)  # type: ignore[attr-defined]
    unknown_paths = [f"{path}: field {field.field_number}" for field in unknown if field.data != b""]
    for field, value in message.ListFields():
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            continue
        if field.message_type.GetOptions().map_entry:
            value_type = field.message_type.fields_by_name["value"].type
            inner = list(value.values()) if value_type == FieldDescriptor.TYPE_MESSAGE else []
        else:
            inner = list(value) if field.is_repeated else [value]
        for item in inner:
            unknown_paths += unknown_fields(item, f"{path}.{field.name}")
    return unknown_paths


def check_reads(data: bytes) -> list[str]:
    """Errors of reading `data` as a module and writing it again; empty if there are none."""
    module = schema.message_class("HloModuleProto").FromString(data)
    again = schema.message_class("HloModuleProto").FromString(module.SerializeToString())
    return unknown_fields(module) + ([] if again == module else ["not equal after a round trip"])


def all_messages() -> dict[str, Any]:
    """Descriptors of all messages of the schema, including nested ones, by full name without the package."""
    descriptors: dict[str, Any] = {}
    waiting = list(schema.message_class("HloModuleProto").DESCRIPTOR.file.message_types_by_name.values())
    while waiting:
        descriptor = waiting.pop()
        descriptors[descriptor.full_name.removeprefix("xla.")] = descriptor
        waiting += [nested for nested in descriptor.nested_types if not nested.GetOptions().map_entry]
    return descriptors


def enum_values(name: str) -> dict[str, int]:
    """The values of an enumeration of the file (`FftType`) or of a message (`OpSharding.Type`)."""
    outer, _, inner = name.rpartition(".")
    file = schema.message_class("HloModuleProto").DESCRIPTOR.file
    scope = schema.message_class(outer).DESCRIPTOR if outer else file
    return {value.name: value.number for value in scope.enum_types_by_name[inner].values}


# --------------------------------------------------------------------------------------------- the tables


def test_every_message_has_a_class_that_can_be_created_and_written() -> None:
    assert len(all_messages()) > 60
    for name, descriptor in all_messages().items():
        cls = schema.message_class(name)
        assert cls.DESCRIPTOR.full_name == descriptor.full_name
        assert cls().SerializeToString() == b""


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("FftType", {"FFT": 0, "IFFT": 1, "RFFT": 2, "IRFFT": 3}),
        ("PrimitiveType", {"PRED": 1, "F32": 11, "BF16": 16, "F8E5M2": 19, "S1": 30, "F6E2M3FN": 36}),
        ("PaddingValue", {"INVALID_PAD": 0, "LOWEST_PAD": 3, "UNKNOWN_PAD": 5}),
        ("TriangularSolveOptions.Transpose", {"NO_TRANSPOSE": 1, "TRANSPOSE": 2, "ADJOINT": 3}),
        ("PrecisionConfig.Precision", {"DEFAULT": 0, "HIGH": 1, "HIGHEST": 2}),
        ("OpSharding.Type", {"REPLICATED": 0, "OTHER": 3, "UNREDUCED": 6}),
    ],
)
def test_enumerations_have_the_values_of_XLA(name: str, some: dict[str, int]) -> None:
    assert some.items() <= enum_values(name).items()


def test_the_element_types_of_hloom_are_those_of_the_proto() -> None:
    values = enum_values("PrimitiveType")
    values["OPAQUE"] = values["OPAQUE_TYPE"]
    assert {t.name: t.value for t in PrimitiveType}.items() <= values.items()


def test_a_message_that_is_not_in_the_schema_is_named() -> None:
    with pytest.raises(KeyError, match="HloTypo"):
        schema.message_class("HloTypo")


def test_a_message_has_one_class() -> None:
    shape = schema.message_class("ShapeProto")
    assert schema.message_class("ShapeProto") is shape
    assert type(schema.message_class("LiteralProto")().shape) is shape


# ------------------------------------------------------------------------------------------------ the wire


def test_wire_bytes_have_the_field_tags_of_XLA() -> None:
    shape = schema.message_class("ShapeProto")(element_type=11, dimensions=[2, 3])
    shape.layout.minor_to_major[:] = [1, 0]
    # 2: varint 11; 3: two packed integers; 5: a message of four bytes with 1: two packed integers
    assert shape.SerializeToString() == bytes.fromhex("10 0b  1a 02 02 03  2a 04 0a 02 01 00")


def test_a_layout_keeps_its_padding_SL_8_SL_14() -> None:
    layout = schema.message_class("LayoutProto")(padded_dimensions=[3, 5])
    layout.padding_value = enum_values("PaddingValue")["ONE_PAD"]
    assert layout.SerializeToString() == bytes.fromhex("12 02 03 05  18 02")


def test_maps_are_maps() -> None:
    attributes = schema.message_class("FrontendAttributes")()
    attributes.map["a"] = "1"
    attributes.map.update(b="2")
    again = schema.message_class("FrontendAttributes").FromString(attributes.SerializeToString())
    assert dict(again.map) == {"a": "1", "b": "2"}

    schedule = schema.message_class("HloScheduleProto")()
    schedule.sequences[7].instruction_ids.extend([1, 2])
    again = schema.message_class("HloScheduleProto").FromString(schedule.SerializeToString())
    assert list(again.sequences[7].instruction_ids) == [1, 2]


def test_fields_of_a_oneof_exclude_one_another() -> None:
    instruction = schema.message_class("HloInstructionProto")()
    instruction.collective_device_list.replica_groups.add(replica_ids=[0, 1])
    assert instruction.WhichOneof("replica_group_list") == "collective_device_list"
    instruction.iota_collective_device_list.num_replica_groups = 2
    assert instruction.WhichOneof("replica_group_list") == "iota_collective_device_list"
    assert not instruction.HasField("collective_device_list")
    assert not instruction.HasField("cross_program_prefetch_index")
    instruction.cross_program_prefetch_index = 0
    assert instruction.HasField("cross_program_prefetch_index")


def test_unknown_fields_are_found_in_nested_messages() -> None:
    """Checks `unknown_fields`, which the tests of the corpus use."""
    computation = schema.message_class("HloComputationProto")(name="c")
    module = schema.message_class("HloModuleProto")(computations=[computation])
    assert unknown_fields(module) == []
    module.computations[0].MergeFromString(bytes.fromhex("f8 07 01"))  # field 127
    assert unknown_fields(module) == [".computations: field 127"]


# -------------------------------------------------------------------------------- beside other libraries


def test_the_default_pool_is_left_alone() -> None:
    """jaxlib or TensorFlow in the same process may register `xla.HloModuleProto` there."""
    schema.message_class("HloModuleProto")
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("xla.HloModuleProto")


def test_importing_the_schema_does_not_import_protobuf() -> None:
    """`import hloom` has a budget of 50 ms."""
    code = "import sys; from hloom.proto import schema; print('google.protobuf' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# ----------------------------------------------------------------------------------- modules that XLA wrote


def test_the_modules_of_the_corpus_hold_no_unknown_fields_and_are_rewritten_unchanged() -> None:
    files = sorted(CORPUS.glob("*/module.pb.xz"))
    assert files
    wrong = {file.parent.name: check_reads(lzma.decompress(file.read_bytes())) for file in files}
    assert {name: what for name, what in wrong.items() if what} == {}


def test_the_optimised_modules_that_jaxlib_converts_hold_no_unknown_fields() -> None:
    hlo = pytest.importorskip("jaxlib._hlo", reason="jaxlib converts the text to a proto")
    files = sorted(CORPUS.glob("parse/*.hlo"))
    assert files
    modules = {file.stem: hlo.hlo_module_from_text(file.read_text()) for file in files}
    wrong = {name: check_reads(m.as_serialized_hlo_module_proto()) for name, m in modules.items()}
    assert {name: what for name, what in wrong.items() if what} == {}
