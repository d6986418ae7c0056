"""The report of a fuzzing run: a page without scripts, with figures, findings and coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from pathlib import Path

from hloom.files.formats import write_file
from hloom.fuzz.grammar.draw import TYPES
from hloom.fuzz.grammar.proposals import kinds_of
from hloom.fuzz.lines import PACKAGE, Lines, lines_of
from hloom.fuzz.peer import KNOWN
from hloom.fuzz.state import Counts, Finding, State
from hloom.ops.operation import OPERATIONS
from hloom.text.html import highlighted

SHADES = ((1000, 4), (100, 3), (10, 2), (1, 1))
"""Counts from which a cell of the heat map has a shade."""


def write_report(state: State, path: Path) -> None:
    """Writes the page."""
    write_file(path, page(state).encode())


def page(state: State) -> str:
    """Returns the page, a single file."""
    jobs, findings = state.jobs(), state.findings()
    template = (files("hloom.fuzz") / "assets" / "report.html").read_text("utf-8")
    parts = {
        "figures": _figures(jobs, len(findings)),
        "oracles": _oracles(jobs),
        "findings": "".join(_finding(*pair) for pair in findings) or "<p>None.</p>",
        "known": _known(_sum(job.known for job in jobs)),
        "refused": _table(("oracle", "cases"), _sum(job.refused for job in jobs).most_common(30)),
        "heat": _heat_map(_sum(job.pairs for job in jobs)),
        "lines": _line_coverage(jobs),
    }
    for name, text in parts.items():
        template = template.replace("{{" + name + "}}", text)
    return template


def _sum(counts: Iterable[dict[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total


def _figures(jobs: list[Counts], findings: int) -> str:
    pairs = sum(1 for key in _sum(job.pairs for job in jobs) if not key.endswith(" "))
    figures = {
        "CPU hours": f"{sum(job.cpu_seconds for job in jobs) / 3600:.2f}",
        "modules": f"{sum(job.modules for job in jobs):,}",
        "instructions": f"{sum(job.instructions for job in jobs):,}",
        "comparisons": f"{sum(_sum(job.comparisons for job in jobs).values()):,}",
        "opcode × type": f"{pairs:,}",
        "findings": str(findings),
    }
    return "".join(f"<div><b>{value}</b>{name}</div>" for name, value in figures.items())


def _oracles(jobs: list[Counts]) -> str:
    return _table(("oracle", "comparisons"), sorted(_sum(job.comparisons for job in jobs).items()))


def _known(counts: Counter[str]) -> str:
    """The classes of known differences of XLA's, with their reasons, and its aborts by what failed."""
    rows = [(f"{known.name}: {known.reason}", counts[known.name]) for known in KNOWN]
    aborts = [(name, count) for name, count in counts.most_common() if name.startswith("aborts: ")]
    return _table(("class", "differences"), rows + aborts)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, int]]) -> str:
    head = "".join(f"<th>{head}</th>" for head in heads)
    body = "".join(f"<tr><td>{escape(name)}</td><td class=n>{count:,}</td></tr>" for name, count in rows)
    return f"<table><tr>{head}</tr>{body}</table>" if body else "<p>None.</p>"


def _finding(finding: Finding, folder: Path) -> str:
    text = (folder / "case.hlo").read_text("utf-8")
    title = f"{finding.oracle}: {finding.kind}, {', '.join(finding.operations[:5])} <i>×{finding.count}</i>"
    later = f"<p><b>{escape(finding.later)}</b></p>" if finding.later else ""
    body = f"{later}<p>{escape(finding.message)}</p><p><code>{escape(str(folder / 'case.pb'))}</code></p>"
    return f"<details><summary>{title}</summary>{body}<pre>{highlighted(text)}</pre></details>"


def _heat_map(pairs: Counter[str]) -> str:
    """A row for each opcode and a column for each element type; hovering shows the number of instructions.

    Pairs that the declaration excludes are white.
    """
    head = "".join(f"<th><span>{t.text}</span></th>" for t in TYPES)
    rows = []
    for opcode in sorted(OPERATIONS):
        counts = [pairs[f"{opcode} {t.text}"] for t in TYPES]
        kinds = kinds_of(OPERATIONS[opcode])
        cells = "".join(_cell(opcode, t.text, n, t.kind in kinds) for t, n in zip(TYPES, counts, strict=True))
        rows.append(f"<tr><th>{opcode}</th>{cells}<td class=n>{pairs[opcode + ' ']:,}</td></tr>")
    return f"<table class=heat><tr><th></th>{head}<th></th></tr>{''.join(rows)}</table>"


def _cell(opcode: str, element_type: str, count: int, is_taken: bool) -> str:
    shade = next((str(shade) for least, shade in SHADES if count >= least), "0" if is_taken else "n")
    return f"<td class=s{shade} title='{opcode} {element_type}: {count:,}'></td>"


def _line_coverage(jobs: list[Counts]) -> str:
    """The share of the lines of functions that ran, by package, of the sample of modules that are traced."""
    seen = Lines()
    for job in jobs:
        seen.merge(job.lines)
    covered, whole = Counter[str](), Counter[str]()
    for path in sorted(Path(PACKAGE).rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        lines = lines_of(path)
        package = name.rpartition("/")[0] or name
        whole[package] += len(lines)
        covered[package] += len(lines & seen.seen.get(name, set()))
    rows = "".join(_share(name, covered[name], count) for name, count in sorted(whole.items()) if covered[name])
    return f"<table><tr><th>package</th><th>lines that ran</th><th></th></tr>{rows}</table>"


def _share(package: str, covered: int, whole: int) -> str:
    share = 100 * covered / whole
    bar = f"<div class=bar><div style='width:{share:.0f}%'></div></div>"
    counts = f"<td class=n>{covered:,} of {whole:,}</td>"
    return f"<tr><td>{package}</td>{counts}<td>{bar}</td><td class=n>{share:.0f} %</td></tr>"
