"""Writes the pass rates of tests that others wrote, as a page and badges, from recorded results.

    python tools/write_pass_rates.py --jax jax-test-results 0.10.2 --stablehlo stablehlo-test-results 1.16

reads the results of these suites into docs/pass_rates.json, those of the others stay; then docs/pass_rates.md and the
badges in docs/badges/ are written from that file. The tools named on the page run the tests.
"""

from __future__ import annotations

from pathlib import Path

import click

from handbook.markdown import table
from pass_rates import rates
from pass_rates.badge import badge
from pass_rates.rates import Part, Suite

DOCS = Path(__file__).resolve().parents[1] / "docs"
DATA, PAGE, BADGES = DOCS / "pass_rates.json", DOCS / "pass_rates.md", DOCS / "badges"

NAMES = {"jax": "JAX's tests", "stablehlo": "StableHLO's tests", "xla": "XLA's modules", "array_api": "array API tests"}
TEXTS = {
    "jax": """JAX's own tests with `JAX_PLATFORMS=hloom` and on XLA's CPU backend, with eight devices each. A test
counts if it passes on XLA. The sample of a file is reproducible: the tests whose names have the smallest hashes.

    python tools/run_jax_tests.py run path/to/jax --sample 4 --platform cpu   # to 20; then: --platform hloom
""",
    "stablehlo": """The programs of StableHLO's reference interpreter (`tests/interpret`) and of its operations
(`testdata`), which contain the results to expect. They run on the interpreter and compiled (`cpu`);
files without a check do not count. Most differences are roundings: a result is compared with that of one order of
summation, or of one approximation, within a few units in the last place.

    python tools/run_stablehlo_tests.py path/to/stablehlo --backend cpu
""",
    "xla": """The modules in XLA's own tests: HLO and StableHLO that its passes are tested on. A module that XLA's
parser accepts has to load, and its text has to be read by both; one that XLA's CPU backend runs has to have the same
results on the interpreter and compiled, on random arguments. Modules are chosen by the first digit of their SHA-1.
Among those that differ are modules whose result the clauses leave open, such as sorts that need not be stable and
arrays that nothing initialises, programs that XLA compiles wrongly, and some that take the interpreter too long.

    python tools/run_xla_tests.py run path/to/xla --digests 01234567
""",
    "array_api": """The tests of the Python array API standard, with `jax.numpy` on both platforms: generated
arguments, the same on both.

    python tools/run_library_tests.py run array-api-tests --sample 20
""",
}
HEAD = """# Pass rates

Tests that others wrote, on hloom. The counts are those of recorded runs (`docs/pass_rates.json`), from which
`python tools/write_pass_rates.py` makes this page and the badges. [Libraries on hloom](libraries.md) has tests of
libraries, [miscompilations](xla_bugs.md) programs that XLA compiles wrongly.
"""
COLUMNS = ("", "tests", "ran", "pass on XLA", "pass on hloom of these")


def page(suites: dict[str, Suite]) -> str:
    """Returns the Markdown of the page."""
    parts = [HEAD, *(image(name) for name in suites), ""]
    for name, suite in suites.items():
        rows = [*map(_row, suite.parts)] + [_row(suite.total)] * (len(suite.parts) > 1 and name != "xla")
        parts += [f"## {NAMES[name]}\n", f"{TEXTS[name]}\nVersion: {suite.version}.\n", _numeric(table(COLUMNS, rows))]
        if suite.lost:
            parts += [
                "Fail on hloom alone:\n",
                *(f"- `{test}`: {_line(error)}" for test, error in suite.lost.items()),
                "",
            ]
    return "\n".join(parts)


def image(name: str) -> str:
    """Returns the Markdown of a badge, on a page of the documentation."""
    return f"![{NAMES[name]}](badges/{name}.svg)"


def _row(part: Part) -> tuple[str, ...]:
    return (part.name, *(f"{count:,}" for count in (part.tests, part.ran, part.expected, part.passed)))


def _numeric(text: str) -> str:
    """A table whose columns of counts are aligned on the right."""
    return text.replace("| --- | --- | --- | --- | --- |", "| --- | ---: | ---: | ---: | ---: |")


def _line(error: str, most: int = 160) -> str:
    """An error as code on one line."""
    line = " ".join(error.replace("`", "'").split())
    return f"`{line[:most]}{' ..' if len(line) > most else ''}`"


def badges(suites: dict[str, Suite]) -> dict[str, str]:
    """Returns the badge of each suite: the tests that pass, of those that pass on XLA."""
    totals = {name: suite.parts[-1] if name == "xla" else suite.total for name, suite in suites.items()}
    return {
        name: badge(NAMES[name], f"{total.passed:,} of {total.expected:,}", total.passed / max(total.expected, 1))
        for name, total in totals.items()
    }


def suite_option(name: str):  # type: ignore[no-untyped-def]  # a decorator of click
    kind = (click.Path(exists=True, file_okay=False, path_type=Path), str)
    return click.option(f"--{name.replace('_', '-')}", name, type=kind, metavar="FOLDER VERSION")


@click.command(help=__doc__)
@suite_option("jax")
@suite_option("stablehlo")
@suite_option("xla")
@suite_option("array_api")
def main(**given: tuple[Path, str] | None) -> None:
    read = {name: rates.READERS[name](*results) for name, results in given.items() if results}
    rates.write(DATA, rates.read(DATA) | read)
    suites = rates.read(DATA)
    PAGE.write_text(page(suites))
    BADGES.mkdir(exist_ok=True)
    for name, drawing in badges(suites).items():
        (BADGES / f"{name}.svg").write_text(drawing)


if __name__ == "__main__":
    main()
