"""A library for browsers and Node: an ES module around the WebAssembly file, its types, and a page that runs it."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files

from hloom.aot.interface import ArrayParameter, CFunction
from hloom.aot.link import MAX_SHARED_BYTES, initial_pages
from hloom.backends.cpu.llvm.native.types import LINE
from hloom.backends.cpu.runtime.thread_pool import SHARES

_TYPES = {"float": "Float32Array", "double": "Float64Array", "int64_t": "BigInt64Array", "uint64_t": "BigUint64Array"}


def web_files(library: str, functions: Sequence[CFunction], wasm: bytes, threads: int) -> dict[str, bytes]:
    """Returns the WebAssembly file, `NAME.mjs`, `NAME.d.mts` and `index.html`."""
    texts = {
        f"{library}.mjs": _module(library, functions, wasm, threads),
        f"{library}.d.mts": _declarations(functions),
        "index.html": filled(_asset("page.html"), library, functions, wasm, threads),
    }
    return {f"{library}.wasm": wasm, **{name: text.encode() for name, text in texts.items()}}


def _module(library: str, functions: Sequence[CFunction], wasm: bytes, threads: int) -> str:
    described = json.dumps([_described(function) for function in functions], indent=1)
    values = {"WASM": f'"{library}.wasm"', "FUNCTIONS": described, "POOL": json.dumps(_pool(wasm, threads))}
    head = "".join(f"const {name} = {value};\n" for name, value in values.items())
    return f"// {library}: built by hloom.\n{head}\n{_asset('loader.js')}"


def _pool(wasm: bytes, threads: int) -> dict[str, int] | None:
    """Returns sizes in bytes of a pool, and in pages of the shared memory; None for a library without workers."""
    if b"hloom_web_pool" not in wasm:
        return None
    return {
        "threads": threads,
        "bytes": SHARES,
        "share": LINE,
        "initial": initial_pages(wasm),
        "maximum": MAX_SHARED_BYTES >> 16,
    }


def _described(function: CFunction) -> dict[str, object]:
    def arrays(each: Sequence[ArrayParameter]) -> list[dict[str, object]]:
        return [{"name": a.name, "type": a.c_type, "shape": a.shape, "sizes": a.sizes, "count": a.count} for a in each]

    return {
        "name": function.name,
        "scratch": function.scratch_bytes,
        "inputs": arrays(function.inputs),
        "outputs": arrays(function.outputs),
    }


def _declarations(functions: Sequence[CFunction]) -> str:
    """Returns the types of the module for TypeScript."""
    types = [f"{_record(f.inputs, ' | number[]')}, {_record(f.outputs)}" for f in functions]
    members = "\n".join(f"  {f.name}: Callable<{each}>;" for f, each in zip(functions, types, strict=True))
    return f"""\
export interface Callable<Inputs, Outputs> {{
  (inputs: Inputs): Outputs;
  /** Views of all arrays in the library's memory. */
  arrays: Record<string, ArrayLike<number | bigint>>;
  /** Runs on the arrays in memory. */
  run(): void;
}}
export interface Library {{
{members}
}}
export function load(source?: string | URL | BufferSource, options?: {{ threads?: number }}): Promise<Library>;
"""


def _record(arrays: Sequence[ArrayParameter], more: str = "") -> str:
    fields = [f"{a.name}: {_view(a)}{more if a.c_type not in ('int64_t', 'uint64_t') else ''}" for a in arrays]
    return f"{{ {'; '.join(fields)} }}"


def _view(array: ArrayParameter) -> str:
    name = array.c_type.removesuffix("_t")
    return _TYPES.get(array.c_type) or f"{name.capitalize()}Array"


def filled(page: str, library: str, functions: Sequence[CFunction], wasm: bytes, threads: int) -> str:
    """Returns a page that needs no other file.

    `{{module}}` becomes the ES module's text, `{{wasm}}` the argument of its `load`, `{{title}}` the library's name and
    `{{size}}` that of the WebAssembly file.
    """
    content = f'Uint8Array.from(atob("{base64.b64encode(wasm).decode()}"), (c) => c.charCodeAt(0))'
    values = {"title": html.escape(library), "size": f"{len(wasm) / 1024:.1f} KB", "wasm": content}
    values["module"] = _module(library, functions, wasm, threads)
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values.get(match[1], match[0]), page)


def _asset(name: str) -> str:
    return (files("hloom.aot") / "assets" / name).read_text("utf-8")
