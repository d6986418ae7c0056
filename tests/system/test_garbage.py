"""The garbage collector runs less often while modules are compiled, and as before afterwards."""

from __future__ import annotations

import gc

import pytest

import hloom as hl
from hloom.backends.cpu import compiler


@pytest.mark.parametrize("cache", ["", "a folder"])
def test_the_collector_waits_while_a_module_is_compiled(
    cache: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLOOM_CACHE_DIR", cache and str(tmp_path_factory.mktemp("cache")))
    during: list[int] = []
    compile_once = compiler._compile_once

    def watched(*arguments: object) -> object:
        during.append(gc.get_threshold()[0])
        return compile_once(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compiler, "_compile_once", watched)
    before = gc.get_threshold()
    hl.compile("ENTRY e { x = f32[3] parameter(0) ROOT r = f32[3] sine(x) }")
    assert during and min(during) >= 50_000 > before[0]
    assert gc.get_threshold() == before
