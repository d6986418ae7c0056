"""Construction of windows from the builder's arguments: sizes, strides, dilations, padding."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.builder.arguments import ints, sequence
from hloom.builder.xla_op import Padding
from hloom.errors import RuleError
from hloom.ops.attributes import WindowDimension


def make_window(
    opcode: str,
    base: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int] | None,
    padding: Padding,
    base_dilations: Sequence[int] | None,
    window_dilations: Sequence[int] | None,
) -> tuple[WindowDimension, ...]:
    """Returns a window over dimensions of sizes `base`; padding is SAME, VALID or pairs (low, high) (WIN-5, WIN-6)."""
    count = len(base)

    def listed(what: str, values: Sequence[int] | None, default: int) -> list[int]:
        entries = [default] * count if values is None else ints(opcode, what, values)
        if len(entries) != count:
            raise RuleError(opcode, "WIN-6", f"{what} needs {count} entries, got {entries}")
        if any(entry < 1 for entry in entries):
            raise RuleError(opcode, "WIN-6", f"{what} must be >= 1, got {entries}")
        return entries

    window_sizes = ints(opcode, "window_dimensions", sizes)
    if len(window_sizes) != count:
        raise RuleError(opcode, "WIN-6", f"window_dimensions needs {count} entries, got {window_sizes}")
    steps = listed("window_strides", strides, 1)
    dilated_base = listed("base dilations", base_dilations, 1)
    dilated_window = listed("window dilations", window_dilations, 1)
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID"):
            raise RuleError(opcode, "WIN-5", f"padding is SAME, VALID or pairs, got {padding!r}")
        pairs = [
            _same_padding(n, w, d, s) if padding == "SAME" else (0, 0)
            for n, w, d, s in zip(base, window_sizes, dilated_window, steps, strict=True)
        ]
    else:
        given = [ints(opcode, "padding", pair) for pair in sequence(opcode, "padding", padding)]
        if len(given) != count or any(len(pair) != 2 for pair in given):
            raise RuleError(opcode, "WIN-6", f"padding needs {count} pairs (low, high), got {list(padding)}")
        pairs = [(low, high) for low, high in given]
    return tuple(
        WindowDimension(w, s, low, high, wd, bd)
        for w, s, (low, high), wd, bd in zip(window_sizes, steps, pairs, dilated_window, dilated_base, strict=True)
    )


def _same_padding(size: int, window: int, dilation: int, stride: int) -> tuple[int, int]:
    """The padding (low, high) for ceil(size / stride) positions; an odd element is at the high end (WIN-5)."""
    positions = -(-size // stride)
    total = max((positions - 1) * stride + (window - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2
