"""Parts of docstrings: the arguments that they describe."""

from __future__ import annotations

import inspect
import re
from typing import Any


def arguments_of(function: Any) -> dict[str, str]:
    """Returns the arguments that a docstring describes, and the description of each."""
    blocks = (inspect.getdoc(function) or "").split("\n\n")
    return next((entries(block) for block in blocks if block.startswith("Arguments:")), {})


def entries(block: str) -> dict[str, str]:
    """Returns the entries of a block of arguments, each on one line."""
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", block, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}
