"""Runs programs of the corpus and writes their results: a process that `test_windows_python.py` starts on two systems.

`python corpus_results.py FOLDER BACKEND PROGRAM ..` writes `PROGRAM.npz` for each, or `PROGRAM.txt` with an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

import hloom as hl
from hloom.bench.workloads import Workload
from hloom.files.arrays import write_arrays

CORPUS = Path(__file__).parents[1] / "corpus"


def main(folder: str, backend: str, *names: str) -> None:
    for name in names:
        workload = Workload.at(CORPUS / name)
        module = hl.load(workload.module)
        try:
            result = hl.compile(module, backend)(*workload.arguments(module))
        except hl.HloomError as error:
            Path(folder, f"{name}.txt").write_text(str(error), "utf-8")
        else:
            write_arrays(str(Path(folder, f"{name}.npz")), [result])


if __name__ == "__main__":
    main(*sys.argv[1:])
