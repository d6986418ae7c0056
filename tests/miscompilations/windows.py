"""Windows: padding that is negative, holes of dilated arrays, and one after the other."""

from __future__ import annotations

import numpy as np

from miscompilations.case import Case, module

S32, F32 = np.int32, np.float32
PLUS = "plus {; a = s32[] parameter(0); b = s32[] parameter(1); ROOT r = s32[] add(a, b); }"
FPLUS = PLUS.replace("s32[]", "f32[]")
MAXIMUM = "largest {; a = f32[] parameter(0); b = f32[] parameter(1); ROOT r = f32[] maximum(a, b); }"
PICTURE = (100 * np.arange(15)[:, None, None] + 10 * np.arange(6)[:, None] + np.arange(8)).astype(F32)
SQUARE = np.arange(64 * 128, dtype=F32).reshape(64, 128)


def dilated_rows(x: np.ndarray) -> np.ndarray:
    """The maxima of pairs of rows, with -inf between neighbouring columns."""
    result = np.full((32, 255), -np.inf, F32)
    result[:, ::2] = np.maximum(x[::2], x[1::2])
    return result


CASES = [
    Case(
        "cropped-then-padded-window",
        ("openxla/xla#48715",),
        "PAD-2",
        "The first column is removed, and the window pads with zeros: 0 - 763; not 669 - 763 without both.",
        module(
            "cropped",
            """x = s32[1,2] parameter(0); zero = s32[] constant(0)
            p = s32[1,1] pad(x, zero), padding=0_0_1x-1_0
            ROOT r = s32[1,1] reduce-window(p, zero), window={size=1x2 pad=0_0x1_0}, to_apply=plus""",
            PLUS,
        ),
        (np.array([[669, -763]], S32),),
        np.array([[-763]], S32),
    ),
    Case(
        "cropped-then-padded-convolution",
        ("openxla/xla#48715",),
        "PAD-2",
        "The last of three elements is removed, and the convolution pads with a zero: 1 + 2, 2 + 0.",
        module(
            "cropped",
            """x = s32[1,1,3] parameter(0); k = s32[1,1,2] parameter(1); zero = s32[] constant(0)
            p = s32[1,1,2] pad(x, zero), padding=0_0x0_0_1x0_-1
            ROOT r = s32[1,1,2] convolution(p, k), window={size=2 pad=0_1}, dim_labels=bf0_oi0->bf0""",
        ),
        (np.array([[[1, 2, 4]]], S32), np.array([[[1, 1]]], S32)),
        np.array([[[3, 2]]], S32),
    ),
    Case(
        "convolution-with-negative-padding",
        ("openxla/xla#48713", "openxla/xla#48748"),
        "WIN-4",
        "Five of six columns are removed, and a zero column is added: the last column of the picture, and zeros.",
        module(
            "cropped_picture",
            """x = f32[1,15,6,8] parameter(0); k = f32[1,1,8,8] parameter(1)
            ROOT r = f32[1,15,2,8] convolution(x, k), window={size=1x1 pad=0_0x-5_1}, dim_labels=b01f_01io->b01f""",
        ),
        (PICTURE[None], np.eye(8, dtype=F32).reshape(1, 1, 8, 8)),
        np.stack([PICTURE[:, 5], np.zeros((15, 8), F32)], axis=1)[None],
    ),
    Case(
        "window-over-holes",
        ("openxla/xla#48714",),
        "WIN-3",
        "Between two columns is a hole, whose windows have the initial value -inf; XLA leaves holes out in long arrays.",
        module(
            "window_over_holes",
            """x = f32[64,128] parameter(0); low = f32[] constant(-inf)
            ROOT r = f32[32,255] reduce-window(x, low), window={size=2x1 stride=2x1 lhs_dilate=1x2}, to_apply=largest""",
            MAXIMUM,
        ),
        (SQUARE,),
        dilated_rows(SQUARE),
    ),
    Case(
        "window-of-one-with-negative-padding",
        ("openxla/xla#48719", "openxla/xla#48875"),
        "WIN-4",
        "Windows of one element that begin at the second row: all rows but the first. XLA aborts the process.",
        module(
            "window_of_one",
            """x = f32[8,4] parameter(0); zero = f32[] constant(0)
            ROOT r = f32[7,4] reduce-window(x, zero), window={size=1x1 pad=-1_0x0_0}, to_apply=plus""",
            FPLUS,
        ),
        (np.arange(32, dtype=F32).reshape(8, 4),),
        np.arange(4, 32, dtype=F32).reshape(7, 4),
    ),
]
