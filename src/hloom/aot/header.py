"""Headers of libraries: their functions, the runtime, and the file of constants."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.aot.constants import ConstantBlock
from hloom.aot.interface import VERSION
from hloom.aot.targets import BuildTarget

_POOL_FUNCTIONS = """
/* Returns a pool of some threads, the caller's among them; NULL without memory. Threads start at the first call. */
hloom_pool *hloom_pool_new(int threads);

/* Ends the threads of a pool that no call uses, and frees it. */
void hloom_pool_free(hloom_pool *pool);
"""
_THREADS = (
    "Threads that share the work of a call. A pool serves one call at a time; others meanwhile run on their own thread."
)
_NO_THREADS = "Functions of this library run on their caller's thread: there are no pools, pass NULL."


def runtime_header(target: BuildTarget) -> str:
    """Returns the header of the runtime."""
    return f"""\
/* The runtime of libraries that hloom builds. */
#ifndef HLOOM_H
#define HLOOM_H
#include <stdint.h>
#define HLOOM_INTERFACE {VERSION}
#ifdef __cplusplus
extern "C" {{
#endif

/* {_THREADS if target.has_threads else _NO_THREADS} */
typedef struct hloom_pool hloom_pool;
{_POOL_FUNCTIONS if target.has_threads else ""}
#ifdef __cplusplus
}}
#endif
#endif
"""


def header(library: str, declarations: Sequence[str], target: BuildTarget, constants: ConstantBlock | None) -> str:
    """Returns the header of a library; `constants` are those in a file."""
    guard = f"{library.upper()}_H"
    functions = "\n\n".join(declarations)
    return f"""\
/* {library}: built by hloom for {target.name}.

   Functions return 0, or 1 if a pointer is NULL that must not be, or not aligned as its comment says; other arrays are
   aligned to their elements. Arrays are row-major, and results must not overlap other arrays. Calls are re-entrant if
   each has its own scratch memory, of any alignment. pred is 0 or 1; 4-bit elements take a byte each; complex numbers
   are pairs of a real and an imaginary part; f16, bf16 and f8 are bits. Functions of custom calls, which are declared
   `extern`, get the address of the result, or of an array with those of several, and an array with the addresses
   of the operands. */
#ifndef {guard}
#define {guard}
#include "hloom.h"
{_MAPS if constants is not None else ""}#ifdef __cplusplus
extern "C" {{
#endif

{_support(library, target)}{_map(library, constants) if constants is not None else ""}{functions}

#ifdef __cplusplus
}}
#endif
#endif
"""


def _support(library: str, target: BuildTarget) -> str:
    """Returns the C function that tells whether a processor can run the library; none but for x86-64."""
    if target.processor.architecture != "x86_64":
        return ""
    feature = {64: "avx512f", 32: "avx2", 16: "sse4.2"}[target.processor.vector_bytes]
    return f"""\
#ifdef __GNUC__
/* Whether this processor has the vector instructions that the functions use. */
static inline int {library}_is_supported(void) {{ return __builtin_cpu_supports("{feature}") != 0; }}
#endif

"""


_MAPS = """\
#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#endif
"""


def _map(library: str, constants: ConstantBlock) -> str:
    """Returns the C function that maps the file of constants."""
    checksum = ", ".join(map(str, constants.checksum))
    size = f"{library.upper()}_CONSTANTS_BYTES"
    return f"""\
#define {size} {constants.size}
#if defined(__unix__) || defined(__APPLE__)
/* Maps {library}.constants, for functions of this library; NULL if it cannot be read, or is of another build. */
static inline const void *{library}_map_constants(const char *path) {{
  static const unsigned char checksum[] = {{{checksum}}};
  int file = open(path, O_RDONLY);
  void *memory = file < 0 || lseek(file, 0, SEEK_END) != {size}
                     ? MAP_FAILED
                     : mmap(0, {size}, PROT_READ, MAP_PRIVATE, file, 0);
  if (file >= 0) close(file);
  if (memory == MAP_FAILED) return 0;
  if (memcmp(memory, checksum, sizeof checksum) == 0) return memory;
  munmap(memory, {size});
  return 0;
}}
#endif

"""
