"""The end of programs and of libraries in them: threads of pools may be alive, parked or computing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import hloom as hl
from hlo_text import module_text
from hloom.aot import Emit

WIDE = module_text("x = f32[600,700] parameter(0)\ny = f32[600,700] tanh(x)\nROOT r = f32[600,700] exponential(y)")
"""Enough work for several threads."""
MAIN = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define COUNT (600 * 700)
static int (*f)(const float *, float *, void *, void *);
static void *pool, *(*new_pool)(int);
static void (*free_pool)(void *);
static float *x, *y;
static void *library(void) {
  void *loaded = dlopen("./libf.so", RTLD_NOW | RTLD_LOCAL);
  if (!loaded) exit(9);
  *(void **)&f = dlsym(loaded, "f");
  *(void **)&new_pool = dlsym(loaded, "hloom_pool_new");
  *(void **)&free_pool = dlsym(loaded, "hloom_pool_free");
  return loaded;
}
static void *compute(void *unused) { for (;;) f(x, y, NULL, pool); }
int main(int argc, char **argv) {
  void *loaded = library();
  posix_memalign((void **)&x, 64, COUNT * 4);
  posix_memalign((void **)&y, 64, COUNT * 4);
  memset(x, 0, COUNT * 4);
  pool = new_pool(4);
  if (f(x, y, NULL, pool) || y[7] != 1) return 8;
  if (!strcmp(argv[1], "computing")) {
    pthread_t thread;
    pthread_create(&thread, NULL, compute, NULL);
    usleep(20000);
    exit(0);
  }
  if (!strcmp(argv[1], "freed")) free_pool(pool);
  if (strcmp(argv[1], "parked")) {
    dlclose(loaded);
    usleep(20000);
    if (!strcmp(argv[1], "again")) {
      library();
      void *other = new_pool(3);
      if (f(x, y, NULL, other) || y[7] != 1) return 7;
      free_pool(other);
    }
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("exit")
    library = hl.build({"f": WIDE}, folder, threads=4, emit=Emit.SHARED)
    assert library.functions[0].scratch_bytes == 0
    (folder / "main.c").write_text(MAIN)
    subprocess.run(["cc", "main.c", "-o", "main", "-ldl", "-lpthread"], cwd=folder, check=True)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("end", ["parked", "computing", "freed", "closed", "again"])
def test_programs_end_whatever_their_threads_do(end: str, program: Path) -> None:
    """Pools that are freed, parked at exit, or computing; libraries closed before, with pools alive."""
    for _ in range(5):
        subprocess.run([program / "main", end], cwd=program, check=True, timeout=20)
