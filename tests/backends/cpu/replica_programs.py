"""Random programs of several replicas: alternating element-wise steps and collectives, straight or in a loop."""

from __future__ import annotations

import numpy as np

import hloom as hl

ADD = "sum { a = s32[] parameter(0)\n b = s32[] parameter(1)\n ROOT c = s32[] add(a, b) }\n"


def draw_replicas(seed: int) -> tuple[hl.Module, list[list[np.ndarray]]]:
    """A module of 2 to 4 replicas on whole numbers, and the arguments of each."""
    rng = np.random.default_rng(seed)
    replicas = int(rng.integers(2, 5))
    n = replicas * int(rng.choice([1, 3, 8, 40]))
    lines = _steps(rng, replicas, n, "x")
    if rng.random() < 0.5:
        text = f"{ADD}ENTRY e {{\n x = s32[{n}] parameter(0)\n" + "\n".join(lines) + f"\n ROOT r = s32[{n}] copy(y)\n}}"
    else:
        iterations = int(rng.integers(0, 4))
        text = (
            f"{ADD}body {{ t = (s32[], s32[{n}]) parameter(0)\n i = s32[] get-tuple-element(t), index=0\n"
            f" one = s32[] constant(1)\n j = s32[] add(i, one)\n x = s32[{n}] get-tuple-element(t), index=1\n"
            + "\n".join(lines)
            + f"\n ROOT r = (s32[], s32[{n}]) tuple(j, y)\n}}\n"
            f"condition {{ t = (s32[], s32[{n}]) parameter(0)\n i = s32[] get-tuple-element(t), index=0\n"
            f" m = s32[] constant({iterations})\n ROOT p = pred[] compare(i, m), direction=LT\n}}\n"
            f"ENTRY e {{\n x = s32[{n}] parameter(0)\n z = s32[] constant(0)\n t = (s32[], s32[{n}]) tuple(z, x)\n"
            f" ROOT w = (s32[], s32[{n}]) while(t), condition=condition, body=body\n}}"
        )
    module = hl.parse(f"HloModule m, replica_count={replicas}\n{text}")
    return module, [[rng.integers(-100, 100, n).astype(np.int32)] for _ in range(replicas)]


def _steps(rng: np.random.Generator, replicas: int, n: int, value: str) -> list[str]:
    """Lines that make `y` of a value, both s32[n]."""
    everyone = "{" + ",".join(map(str, range(replicas))) + "}"
    ring = ",".join(f"{{{k},{(k + 1) % replicas}}}" for k in range(replicas))
    shape, part, whole = f"s32[{n}]", f"s32[{n // replicas}]", f"s32[{n * replicas}]"
    lines = []
    for k in range(int(rng.integers(1, 6))):
        x, y = value, f"v{k}"
        kind = int(rng.integers(0, 7))
        if kind == 0:
            lines.append(f" {y} = {shape} multiply({x}, {x})")
        elif kind == 1:
            lines.append(f" u{k} = u32[] replica-id()\n s{k} = s32[] convert(u{k})")
            lines.append(f" w{k} = {shape} broadcast(s{k}), dimensions={{}}\n {y} = {shape} add({x}, w{k})")
        elif kind == 2:
            lines.append(f" {y} = {shape} all-reduce({x}), replica_groups={{{everyone}}}, to_apply=sum")
        elif kind == 3:
            lines.append(f" {y} = {shape} collective-permute({x}), source_target_pairs={{{ring}}}")
        elif kind == 4:
            lines.append(f" g{k} = {whole} all-gather({x}), replica_groups={{{everyone}}}, dimensions={{0}}")
            start = int(rng.integers(0, n * (replicas - 1) + 1))
            lines.append(f" {y} = {shape} slice(g{k}), slice={{[{start}:{start + n}]}}")
        elif kind == 5:
            lines.append(
                f" q{k} = {part} reduce-scatter({x}), replica_groups={{{everyone}}}, dimensions={{0}}, to_apply=sum"
            )
            lines.append(f" {y} = {shape} concatenate({', '.join([f'q{k}'] * replicas)}), dimensions={{0}}")
        else:
            lines.append(f" {y} = {shape} all-to-all({x}), replica_groups={{{everyone}}}, dimensions={{0}}")
        value = y
    return [*lines, f" y = {shape} reverse({value}), dimensions={{0}}"]
