"""Damaged HLO text and protos, which may be valid or not: reading them raises errors of hloom's, or nothing."""

from __future__ import annotations

import re

import numpy as np

from hloom.errors import HloomError
from hloom.faults.case import Case
from hloom.fuzz.grammar.draw import Draw
from hloom.fuzz.oracles import Problem
from hloom.fuzz.reference import Reference
from hloom.fuzz.runner import exception_text
from hloom.proto import module_from_bytes, module_to_bytes
from hloom.text import parse_module
from hloom.verifier import verify_module

_TOKEN = re.compile(r"[\w.\-]+|[^\w\s]|\s+")
_WORDS = [
    "f32[]", "f32[2,3]{1,0}", "f32[<=4]", "(f32[], s32[])", "token[]", "pred[]", "s32[0]", "bf16[2]{0:T(2)}", "{",
    "}", "(", ")", "{}", "{0,1}", "{1,0}", "-1", "0", "1", "99999999999999999999", "nan", "inf", "1e400", "add",
    "reduce", "while", "ROOT", "ENTRY", "dimensions={0}", "dimensions={5}", "to_apply=x", "%", ",", "=", '"', "/*",
    "*/", "{...}", "\0", "é", "2_2x", "window={size=3x3 stride=0x1}", "window={size=99999999999}", "slice={[0:9:0]}",
    "{{{{", "f32[1099511627776,1099511627776]", "<=", "->", "?", "f32[9223372036854775807]",
    "sharding={devices=[2,2]0}", "[2,4]<=[8]T(1,0)", "constant", "parameter(7)",
]  # fmt: skip


def mutate_text(text: str, rng: np.random.Generator) -> str:
    """Returns the text with one to four tokens deleted, doubled, swapped or replaced, or a sequence of tokens
    removed.
    """
    tokens = _TOKEN.findall(text)
    for _ in range(int(rng.integers(1, 5))):
        if not tokens:
            break
        at = int(rng.integers(len(tokens)))
        kind = rng.integers(8)
        if kind == 0:
            del tokens[at]
        elif kind == 1:
            tokens.insert(at, tokens[at])
        elif kind == 2:
            other = int(rng.integers(len(tokens)))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif kind == 3:
            tokens[at] = _WORDS[int(rng.integers(len(_WORDS)))]
        elif kind == 4:
            tokens[at] = tokens[int(rng.integers(len(tokens)))]
        elif kind == 5:
            del tokens[at : at + int(rng.integers(1, 20))]
        elif kind == 6 and tokens[at].isdigit():
            tokens[at] = str(int(rng.integers(-3, 12)))
        else:
            token = tokens[at]
            split = int(rng.integers(len(token) + 1))
            tokens[at] = token[:split] + chr(int(rng.integers(32, 127))) + token[split + 1 :]
    return "".join(tokens)


def mutate_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """Returns the bytes with some flipped or removed, or truncated."""
    data = bytearray(content)
    kind = rng.integers(3)
    if kind == 0 and data:
        return bytes(data[: int(rng.integers(len(data)))])
    for _ in range(int(rng.integers(1, 6))):
        if data:
            at = int(rng.integers(len(data)))
            if kind == 1:
                data[at] = int(rng.integers(256))
            else:
                del data[at : at + int(rng.integers(1, 5))]
    return bytes(data)


def damaged(case: Case, reference: Reference, draw: Draw) -> Problem | None:
    """Reads and verifies the module from damaged text, or from a damaged proto: HloomError is what may be raised."""
    try:
        if draw.chance(0.5):
            verify_module(parse_module(mutate_text(case.module.to_text(), draw.rng)))
        else:
            verify_module(module_from_bytes(mutate_bytes(module_to_bytes(case.module), draw.rng)))
    except HloomError:
        return None
    except Exception as error:
        return Problem("exception", f"damaged: {exception_text(error)}")
    return None
