"""Every public name is documented: what `hloom` exports, and the public methods and properties of its classes."""

from __future__ import annotations

import inspect
import re

from handbook.public_names import PUBLIC, members
from hloom.types import PrimitiveType


def test_every_public_name_has_a_docstring() -> None:
    missing = []
    for name, value in PUBLIC.items():
        if isinstance(value, (PrimitiveType, dict)):
            continue
        if not (inspect.getdoc(value) or "").strip():
            missing.append(name)
        if inspect.isclass(value):
            missing += [each for each, member in members(name, value) if not (inspect.getdoc(member) or "").strip()]
    assert missing == [], "\n".join(missing)


def test_docstrings_of_public_functions_speak_of_every_parameter_and_of_the_result() -> None:
    missing = []
    for name, value in PUBLIC.items():
        if inspect.isclass(value) or not callable(value):
            continue
        text = inspect.getdoc(value) or ""
        for parameter in inspect.signature(value).parameters:
            if not re.search(rf"\b{parameter}\b", text):
                missing.append(f"{name}: {parameter}")
    assert missing == [], "\n".join(missing)
