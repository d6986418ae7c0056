"""The options that JAX passes on to a compiler: hloom checks their names and values, and has no use for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hloom.errors import ArgumentError

_OPTIONS = {
    "bool": {
        *("use_shardy_partitioner", "use_spmd_partitioning", "xla_allow_excess_precision"),
        *("xla_cpu_enable_concurrency_optimized_scheduler", "xla_cpu_enable_fast_math", "xla_cpu_enable_fast_min_max"),
        *("xla_cpu_fast_math_honor_division", "xla_cpu_fast_math_honor_functions", "xla_cpu_fast_math_honor_infs"),
        *("xla_cpu_fast_math_honor_nans", "xla_cpu_use_acl", "xla_cpu_use_thunk_runtime", "xla_dump_hlo_as_proto"),
        *("xla_dump_hlo_as_text", "xla_embed_ir_in_executable", "xla_hlo_profile", "xla_test_all_input_layouts"),
        *("xla_llvm_disable_expensive_passes", "xla_gpu_enable_latency_hiding_scheduler", "xla_gpu_enable_triton_gemm"),
    },
    "int": {
        *("num_partitions", "num_replicas", "xla_backend_optimization_level", "xla_force_host_platform_device_count"),
        *("xla_cpu_parallel_codegen_split_count", "xla_cpu_prefer_vector_width", "xla_gpu_autotune_level"),
    },
    "float": {"exec_time_optimization_effort", "memory_fitting_effort"},
    "level": {"memory_fitting_level", "optimization_level"},
}
"""XLA's options whose values are checked, by their type; others begin with `xla_`."""


def check_overrides(overrides: Mapping[str, Any]) -> None:
    """Raises ArgumentError for names that are not options of XLA, and for values of another type than the option's.

    The values are messages OptionOverrideProto.
    """
    for name, override in overrides.items():
        kind = next((kind for kind, names in _OPTIONS.items() if name in names), "")
        if not kind and not name.startswith("xla_"):
            raise ArgumentError(f"No such compile option: {name!r}")
        value = getattr(override, override.WhichOneof("value") or "string_field")
        if kind and not _is_valid(kind, value):
            raise ArgumentError(f"compile option {name!r}: {value!r} is not a valid {kind} value.")


def _is_valid(kind: str, value: object) -> bool:
    if kind == "bool":
        return value in (True, False, 0, 1, "True", "true", "False", "false")
    if kind == "level" and value in ("O0", "O1", "O2", "O3"):
        return True
    if isinstance(value, bool):
        return False
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return kind == "float" or number.is_integer()
