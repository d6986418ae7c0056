"""Writes docs/xla_bugs.md: known miscompilations on hloom and on XLA's CPU backend: `python tools/xla_bugs.py`.

The cases are in `tests/miscompilations/`; XLA, that of the installed jaxlib, runs in a process of its own. Verdicts on
cases that have not changed are kept, and so are those of other versions: without the page, all cases are run.
"""

from __future__ import annotations

import re
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
its CPU backend, in versions of jaxlib: a report may concern another version, backend or compiler, so XLA may be right
here. Columns of proofs have the verdict of `hloom prove --xla` on the module, for all arguments.
"""


Verdicts = dict[str, dict[str, tuple[str, str]]]
"""The verdict of XLA, and that of the proof, by version of jaxlib and name of a case."""


def page(peer: XlaPeer, old: str) -> str:
    """Returns the page: verdicts of an old page on cases that it has as they are, others from runs on both sides."""
    cases = sorted(CASES, key=lambda case: case.name)
    known = [case.name for case in cases if section(case) in old]
    verdicts = {v: {name: found[name] for name in known if name in found} for v, found in stated(old).items()}
    installed = verdicts.setdefault(version("jaxlib"), {})
    changed = [case for case in cases if case.name not in installed]
    for case, proof in zip(changed, proof_verdicts(changed), strict=True):
        installed[case.name] = peer_verdict(case, peer), proof
    versions = sorted(verdicts, key=lambda v: [*map(int, v.split("."))])
    summary = [f"{len(cases)} cases.", *(_summary(v, [*verdicts[v].values()]) for v in versions)]
    columns = ["case", "reports", "clause", "hloom"]
    for v in versions:
        columns += [f"XLA {v}", f"proof {v}"]
    rows = [_row(case, [verdicts[v] for v in versions]) for case in cases]
    table = [f"| {' | '.join(row)} |" for row in [columns, *rows]]
    table.insert(1, "|---" * len(columns) + "|")
    return "\n".join([INTRODUCTION, " ".join(summary), "", *table, "", *map(section, cases)])


def _summary(version: str, verdicts: Sequence[tuple[str, str]]) -> str:
    wrong, crashes = (sum(peer.startswith(word) for peer, _ in verdicts) for word in ("wrong", "crash"))
    refuted = sum(proof.startswith("refuted") for _, proof in verdicts)
    return f"XLA of jaxlib {version} is wrong in {wrong}, and aborts in {crashes}; proofs refute {refuted}."


def _row(case: Case, verdicts: Sequence[dict[str, tuple[str, str]]]) -> list[str]:
    stated = [cell for found in verdicts for cell in found.get(case.name, ("", ""))]
    return [f"[{case.name}](#{case.name})", _reports(case), case.clause, own_verdict(case), *stated]


def stated(page: str) -> Verdicts:
    """Returns the verdicts that a page states."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    columns, *rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines] or [[]]
    found: Verdicts = {}
    for k, column in enumerate(columns):
        if column.startswith("XLA "):
            named = ((row[0].split("]")[0][1:], row) for row in rows)
            found[column[4:]] = {name: (row[k], row[k + 1]) for name, row in named if row[k]}
    return found


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
    PAGE.write_text(page(xla, PAGE.read_text() if PAGE.is_file() else ""))
    xla.close()
