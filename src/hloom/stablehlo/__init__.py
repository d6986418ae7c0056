"""StableHLO: modules of it in and out, as MLIR text."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hloom.stablehlo.exporter.module import print_stablehlo
    from hloom.stablehlo.importer.module import parse_stablehlo

_MODULES = {"parse_stablehlo": "importer.module", "print_stablehlo": "exporter.module"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'hloom.stablehlo' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hloom.stablehlo.{_MODULES[name]}"), name)


__all__ = ["parse_stablehlo", "print_stablehlo"]
