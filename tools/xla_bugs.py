"""Writes docs/xla_bugs.md: known miscompilations on hloom and on XLA's CPU backend: `python tools/xla_bugs.py`.

The cases are in `tests/miscompilations/`; XLA runs in a process of its own. Rows of cases that have not changed are
kept: without the page, all cases are run.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from hloom.bench.peer_process import XlaCrash, XlaError, XlaPeer  # noqa: E402
from hloom.cli import main  # noqa: E402
from hloom.errors import HloomError  # noqa: E402
from hloom.files.arrays import flat  # noqa: E402
from hloom.values import Value  # noqa: E402
from miscompilations.case import Case, fault, results  # noqa: E402
from miscompilations.cases import CASES  # noqa: E402

RUNS = 20
"""Runs of cases whose results vary."""
PAGE = ROOT / "docs" / "xla_bugs.md"
INTRODUCTION = """# Known miscompilations

Wrong results of array compilers: public reports that can be expressed in HLO, each as a small module of our own with
the result that the specification demands, and faults that our random programs found (without a report). Made from
`tests/miscompilations/` by `python tools/xla_bugs.py`; every case is a test of hloom, interpreted and compiled. XLA is
its CPU backend, jaxlib {version}: a report may concern another version, backend or compiler, so XLA may be right here.
The last column is the verdict of `hloom prove --xla` on the module, for all arguments.

{summary}

| case | reports | clause | hloom | XLA | `hloom prove --xla` |
|---|---|---|---|---|---|
"""


def page(peer: XlaPeer, old: str) -> str:
    """Returns the page: rows of an old page for cases that it has as they are, others from runs on both sides."""
    cases = sorted(CASES, key=lambda case: case.name)
    changed = [case for case in cases if section(case) not in old or not row_of(case.name, old)]
    rows = {case.name: row_of(case.name, old) for case in cases}
    for case, proof in zip(changed, proof_verdicts(changed), strict=True):
        rows[case.name] = _row(case, own_verdict(case), peer_verdict(case, peer), proof)
    table = list(rows.values())
    wrong, refuted = (sum(f"| {word}" in row for row in table) for word in ("wrong", "refuted"))
    crashes = sum("| crash |" in row for row in table)
    summary = (
        f"{len(table)} cases. XLA is wrong in {wrong}, and aborts in {crashes}; `hloom prove --xla` refutes {refuted}."
    )
    sections = [section(case) for case in cases]
    introduction = INTRODUCTION.format(version=version("jaxlib"), summary=summary)
    return "\n".join([introduction + "\n".join(table), "", *sections])


def _row(case: Case, own: str, peer: str, proof: str) -> str:
    return f"| [{case.name}](#{case.name}) | {_reports(case)} | {case.clause} | {own} | {peer} | {proof} |"


def row_of(name: str, text: str) -> str:
    """Returns the row of a case in a page."""
    return next((line for line in text.splitlines() if line.startswith(f"| [{name}]")), "")


def section(case: Case) -> str:
    """Returns the section of a case: why, its module, arguments and right result."""
    lines = [f"## {case.name}", "", case.why, "", "<details><summary>module</summary>", "", "```", case.text.strip()]
    lines += ["```", "", "</details>", "", "```"]
    lines += [f"argument {k}: {_shown(value)}" for k, value in enumerate(case.arguments)]
    return "\n".join([*lines, f"right result: {_shown(case.expected)}", "```", ""])


def own_verdict(case: Case) -> str:
    """Returns hloom's verdict on a case, interpreted and compiled: `right`, or what is wrong."""
    for backend in ("interpreter", "cpu"):
        try:
            found = fault(case, results(case, backend))
        except HloomError as error:
            return f"refused: {_line(error)}"
        if found:
            return f"wrong ({backend}): {_escaped(found)}"
    return "right"


def peer_verdict(case: Case, peer: XlaPeer) -> str:
    """Returns XLA's verdict on a case: `right`, `wrong` with the first element, `refused` or `crash`."""
    arguments = [leaf for value in case.arguments for leaf in flat(value)]
    try:
        runs = [peer.run(case.text, arguments) for _ in range(RUNS if case.varies else 1)]
    except XlaCrash:
        return "crash"
    except XlaError as error:
        return f"refused: {_line(error)}"
    found = next(filter(None, (fault(case, results) for results in runs)), "")
    if case.varies:
        return "wrong, and varies" if found else "right"
    return f"wrong: {_escaped(found)}" if found else "right"


def proof_verdicts(cases: Sequence[Case]) -> Iterator[str]:
    """Yields the verdicts of `hloom prove --xla` on the modules of cases, in another process, which XLA may end."""
    pool = ProcessPoolExecutor(1, get_context("spawn"))
    for case in cases:
        try:
            yield pool.submit(_proof_verdict, case.text).result()
        except BrokenProcessPool:
            yield "crash"
            pool = ProcessPoolExecutor(1, get_context("spawn"))


def _proof_verdict(text: str) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".hlo") as file:
        file.write(text)
        file.flush()
        shown = CliRunner().invoke(main, ["prove", "--xla", "--seconds", "20", file.name]).output
    lines = [line for line in shown.splitlines() if line.startswith(("proved", "refuted", "not decided", "error"))]
    word, _, reason = (lines or ["error: XLA does not compile it"])[0].partition(":")
    return f"{word}: {_escaped(reason)}" if word in ("not decided", "error") else word


def _reports(case: Case) -> str:
    links = []
    for report in case.reports:
        repository, number = report.split("#")
        links.append(f"[{repository.split('/')[1]}#{number}](https://github.com/{repository}/issues/{number})")
    return ", ".join(links) or "found by fuzzing"


def _shown(value: Value) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    return np.array2string(np.asarray(value), threshold=40, separator=", ", max_line_width=110)


def _line(error: Exception) -> str:
    return _escaped((str(error).splitlines() or [type(error).__name__])[0][:100])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'").replace("<", "&lt;").strip()


if __name__ == "__main__":
    xla = XlaPeer()
    known = PAGE.read_text() if PAGE.is_file() else ""
    PAGE.write_text(page(xla, known if f"jaxlib {version('jaxlib')}" in known else ""))
    xla.close()
