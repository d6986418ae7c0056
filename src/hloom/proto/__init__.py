"""HloModuleProto: reader and writer of XLA's serialised modules."""

from hloom.proto.reader import module_from_bytes, module_from_proto
from hloom.proto.writer import module_to_bytes, module_to_proto

__all__ = ["module_from_bytes", "module_from_proto", "module_to_bytes", "module_to_proto"]
