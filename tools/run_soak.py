"""Compiles and runs random programs for hours in one process, and fails if it leaks, crashes, hangs or errs.

    nice -n 19 python tools/run_soak.py --minutes 360 --output soak.jsonl --plot soak.svg

Several threads work (`soak/work.py`), under a limit of address space, while Ctrl-C interrupts the main thread, the
process forks, and files of the cache are removed and damaged. Every program is run many times and has the same results
each time. A line of JSON is written every few seconds. Ten times, the first after warming up, all threads pause: what
is held in these pauses must not grow (`soak/samples.py`).
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import random
import resource
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import json_lines

if TYPE_CHECKING:
    from soak.samples import Sample
    from soak.work import Soak

SAMPLE_SECONDS, FORK_EVERY, HANG_SECONDS = 5.0, 20.0, 600.0
WARM_SHARE, PAUSES = 0.2, 10
"""The share of the time that counts as warming up, and the number of pauses from then on."""
MAX_ADDRESS_SPACE = 3 << 30
"""Bytes that the process may map beyond those of its first minute's work."""


def main() -> int:
    """Runs the soak; returns 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--threads", type=int, default=3, help="threads that work beside the main one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--interrupts", type=float, default=1.0, help="mean seconds between two of them")
    parser.add_argument("--output", type=Path, help="file of samples, a line of JSON each")
    parser.add_argument("--plot", type=Path, help="picture of the samples")
    options = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy, about values of random programs
    from soak.chart import draw  # now: the checkout may change in the meantime
    from soak.samples import Sample

    with tempfile.TemporaryDirectory(prefix="hloom-soak-") as folder:
        cache = Path(folder, "cache")
        cache.mkdir(mode=0o700)
        os.environ["HLOOM_CACHE_DIR"] = str(cache)
        output = options.output or Path(folder, "samples.jsonl")
        quiet, failures = run(options, cache, output)
        if options.plot:
            draw([*json_lines.read(output, Sample, "time").values()], quiet, options.plot)
    print(json.dumps({"summary": summary(quiet), "failures": failures[:20]}, indent=1))
    return 1 if failures else 0


def run(options: argparse.Namespace, cache: Path, output: Path) -> tuple[list[Sample], list[str]]:
    """Writes all samples to a file; returns those of pauses, and what was wrong."""
    from soak.samples import leaks, take_sample
    from soak.work import Soak

    soak, rng, started = Soak(options.seed, cache), random.Random(options.seed), time.monotonic()
    load_everything()
    for number in range(options.threads):
        threading.Thread(target=soak.work, args=(number,), daemon=True).start()
    threading.Thread(target=soak.interrupt, args=(options.interrupts,), daemon=True).start()
    duration, quiet = 60 * options.minutes, []
    next_pause = WARM_SHARE * duration
    next_sample = next_fork = 0.0
    kept: list[object] = []
    limit_address_space()
    output.unlink(missing_ok=True)
    while (now := time.monotonic() - started) < duration and not soak.counts.failures:
        soak.step(rng, kept)
        if now >= next_fork:
            soak.fork(rng)
            next_fork = now + FORK_EVERY
        if now >= next_pause:
            quiet.append(pause(soak, kept, options.threads, started))
            next_pause += (1 - WARM_SHARE) * duration / (PAUSES - 1)
        if now >= next_sample:
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            json_lines.append(output, take_sample(now, **soak.counts.as_dict()))
            check_progress(soak)
            next_sample = now + SAMPLE_SECONDS
    quiet.append(pause(soak, kept, options.threads, started))
    soak.stop.set()
    faulthandler.cancel_dump_traceback_later()
    return quiet, soak.counts.failures + leaks(quiet)


def load_everything() -> None:
    """Imports modules that programs need for some operations only, which would look like a leak: SciPy, kernels."""
    import hloom.backends.cpu
    import hloom.ops

    names = ["scipy.fft", "scipy.linalg.cython_blas", "scipy.linalg.cython_lapack", "scipy.sparse", "scipy.special"]
    for package in (hloom.backends.cpu, hloom.ops):
        names += [found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    for name in names:
        importlib.import_module(name)
    # Otherwise Python's table of interned strings grows by 1 MiB at some time.
    _ = [sys.intern(f"soak {number}") for number in range(1 << 14)]


def limit_address_space() -> None:
    """Limits the address space to that in use and some more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MAX_ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def pause(soak: Soak, kept: list[object], threads: int, started: float) -> Sample:
    """Returns what is held while no thread works and all executables are collected."""
    import hloom as hl
    from hloom.system import shield
    from hloom.system.machine import release_freed_memory
    from soak.samples import take_sample

    soak.paused.set()
    kept.clear()
    deadline = time.monotonic() + HANG_SECONDS
    while (len(soak.idle) < threads or shield.is_working()) and time.monotonic() < deadline:
        time.sleep(0.1)  # until abandoned work has ended, too
    gc.collect()
    hl.compile(
        "HloModule m\nENTRY e { x = f32[] parameter(0)\n ROOT r = f32[] negate(x) }"
    )  # disposes of collected code
    gc.collect()
    release_freed_memory()
    sample = take_sample(time.monotonic() - started, **soak.counts.as_dict())
    soak.idle.clear()
    soak.paused.clear()
    return sample


def check_progress(soak: Soak) -> None:
    """Ends the process with the stack of every thread if one of them has been doing the same for too long."""
    oldest = min(soak.progress.values(), default=time.monotonic())
    if time.monotonic() - oldest > HANG_SECONDS:
        faulthandler.dump_traceback(all_threads=True)
        os._exit(2)


def summary(quiet: list[Sample]) -> dict[str, object]:
    """Returns the counts, and what was held in pauses."""
    from soak.samples import growth

    held = {
        name: [getattr(sample, name) for sample in quiet]
        for name in ("rss", "pss", "anonymous", "live", "blocks", "descriptors", "threads", "engines")
    }
    counts = {
        name: getattr(quiet[-1], name) for name in ("time", "programs", "interrupts", "forks", "evictions", "refusals")
    }
    return {
        **counts,
        "growth": {name: round(growth(quiet, name), 4) for name in ("live", "blocks", "anonymous")},
        "held in pauses": held,
    }


if __name__ == "__main__":
    sys.exit(main())
