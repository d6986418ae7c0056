"""Checks the language of the project: retired words, first sentences of docstrings, public functions without one.

    python tools/prose.py [--list] [PATH ...]

`docs/glossary.md` has the terms to use instead. Exits with an error if anything is found; `--list` shows every finding
rather than a table of counts. Identifiers and prose are looked at in Python files, prose alone in Markdown.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATHS = (
    "src/hloom",
    "tools",
    "benchmarks",
    "examples",
    "tests",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
)
QUOTED = ("docs/specification/", "docs/glossary.md", "tools/prose.py", "src/hloom/passes/simplify/constant_folding.py")
"""Files that quote others or the retired words, and that of constant folding."""

IDENTIFIERS = {
    "fold": r"folds?|folded",
    "iteration": r"rounds?",
    "transpose / reverse / swap": r"turn(s|ed|ing)?",
    "call-only": r"glue",
    "OpBuilder": r"makers?",
    "topology": r"company",
    "partial sum": r"summands?",
    "allocation": r"homes?",
    "boundary": r"borders?",
    "identity": r"neutral",
    "index / ordinal / count / value": r"numbers|numbered",
    "address / offset / position": r"places?|placed",
    "access pattern": r"ways?",
    "tile / shard": r"cuts?",
    "strip-mine / panel": r"strips?",
    "poll / request": r"ask(s|ed|ing)?",
    "handler": r"answer(s|ed|er)?",
    "debug location": r"ties?|tied",
    "retire": r"bury|buried",
    "removed / collapsed": r"gone",
    "MIN / MAX": r"(least|most|largest|longest)(?=_)",
}
"""The subwords of identifiers that are retired, by what to say instead."""
ALLOWED_NAMES = re.compile(
    r"fpRoundToIntegral|dimension_numbers|ConvolutionDimensionNumbers|round_nearest\w*|RoundNearest\w*|\w*(?i:replace)\w*|\w*in_place\w*"
    r"|strip|[lr]strip|home|XDG_CACHE_HOME|most_common|fold_in|\w*round_trip\w*|\w*strip_mine\w*|\w*ties_to_\w+|\w*rounds_once\w*|constant_fold\w*|ConstantFold\w*|least_significant\w*|most_significant\w*|round"
)
"""Names of XLA, StableHLO, Python and NumPy."""

PROSE = {
    "reduction (constant folding keeps its name)": r"folds?|folded",
    "iteration": r"rounds?(?! (to|half|towards?|up|down|off|trip|robin|ties|away|nearest)\b|-)",
    "transpose / reverse / swap / alternate": r"turn(s|ed|ing)?(?! (on|off|out)\b)",
    "call-only": r"glue",
    "partial sum": r"summands?",
    "identity": r"neutral",
    "boundary": r"borders?",
    "address / offset / position / location": r"places?|placed",
    "tile / shard / split": r"cuts?",
    "panel / strip-mine": r"strips?",
    "unroll": r"writ(es?|ten) out",
    "non-temporal": r"past the caches?",
    "parallel loop": r"independent rounds?|rounds? at once",
    "pass / forward": r"hand(s|ed)? (over|on)",
    "package / module / layer": r"rooms?|floors?(?!-\d)|house",
    "is not a / are not": r"(?<!\bthere )(?:is|are) no (?!longer\b|more\b|less\b)\w+",
    "per": r"one (?:file|function|line|row) an? (?:family|subcommand|operation|row|axis|store)",
    "a later addition to XLA": r"today's XLA",
    "predictable / recently / if requested": r"foretold|of late|as ever|so wished",
}
"""The words that are retired in prose, by what to say instead."""
IDIOMS = re.compile(
    r"\bin[-\s]+places?\b|\bin\s+turns?\b|\bt(ak(es?|ing)|ook)\s+place\b|\b(decimal|last)\s+places?\b"
    r"|\b[Ss]trip-min\w+|\bRounds\b|\brounds\s+(an?|the|each|it|values|numbers)\b"
    r"|\bround\s+trips?\b"
    r"|constant[-\s]fold(s|ed|ing)?|`[^`\n]*`|\b(make|no)\s+room\b|\broom\s+for\b|round[-\s]to[-\s]\w+"
)
"""What prose may say all the same: quoted code, and fixed phrases."""

OPENING = re.compile(
    r"(What|Those|These|This|That|One|Ones|It|Its|They|Their|Them|Of|Which|Where|When|Who|Whose|How|As|So|None|Both|Some"
    r"|Others?|The same|There|Here|For|From|With|By|In|At|To|If)\b(?! (of the )?[A-Z_]{2,})"
)
"""How no docstring begins: its first sentence is a verb, or names the thing."""

CODE = re.compile(r"(?ms)^```.*?^```$|^ {4}.*?$")
"""Code blocks of Markdown."""

SUBWORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


@dataclass(frozen=True)
class Finding:
    """A line of a file, the kind of what is wrong there, and the text."""

    path: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.text}"


def retired(words: dict[str, str]) -> dict[str, re.Pattern[str]]:
    return {term: re.compile(rf"\b({pattern})\b", re.IGNORECASE) for term, pattern in words.items()}


NAMES, TEXTS = retired(IDENTIFIERS), retired(PROSE)
ANY_TEXT = re.compile("|".join(pattern.pattern for pattern in TEXTS.values()), re.IGNORECASE)


def name_findings(path: str, tokens: Iterable[tokenize.TokenInfo]) -> Iterator[Finding]:
    """Identifiers of which a part is a retired word, each once in a file."""
    seen: set[str] = set()
    for token in tokens:
        name = token.string
        if token.type != tokenize.NAME or name in seen or ALLOWED_NAMES.fullmatch(name.lstrip("_")):
            continue
        seen.add(name)
        parts = "_".join(part.lower() for part in SUBWORD.findall(name))
        for term, pattern in NAMES.items():
            if pattern.search(parts.replace("_", " ") if "(?=_)" not in pattern.pattern else parts):
                yield Finding(path, token.start[0], "identifier", f"{name}: {term}")


def prose_findings(path: str, line: int, text: str) -> Iterator[Finding]:
    """Retired words in a text that begins on a line."""
    plain = IDIOMS.sub(blank, text)
    for term, pattern in TEXTS.items() if ANY_TEXT.search(plain) else ():
        for match in pattern.finditer(plain):
            yield Finding(path, line + plain.count("\n", 0, match.start()), "word", f"{match[0]}: {term}")


def blank(match: re.Match[str]) -> str:
    """The lines of a match, empty."""
    return "\n" * match[0].count("\n")


def comments(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[tuple[int, str]]:
    """The comments with their first lines; comments on consecutive lines are one."""
    first, rows = 0, list[str]()
    for token in tokens:
        if token.type == tokenize.COMMENT:
            if rows and token.start[0] != first + len(rows):
                yield first, "\n".join(rows)
                rows = []
            first = first if rows else token.start[0]
            rows.append(token.string.lstrip("# "))
    if rows:
        yield first, "\n".join(rows)


def statements(owner: ast.AST) -> Iterator[ast.AST]:
    """All statements inside a node, at any depth. Expressions are not entered, which makes this fast."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(owner, block, ()):
            yield node
            yield from statements(node)


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """The strings that stand alone: docstrings, and those of constants and fields."""
    for node in statements(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def opening_findings(path: str, nodes: Iterable[ast.Constant]) -> Iterator[Finding]:
    """Docstrings with an opening that is not allowed."""
    for node in nodes:
        if OPENING.match(node.value):
            yield Finding(path, node.lineno, "opening", node.value.split("\n")[0])


def undocumented(path: str, tree: ast.Module, inherited: dict[str, set[str]]) -> Iterator[Finding]:
    """Public functions, methods and classes without a docstring; overrides have that of the base class."""
    for owner in [tree, *classes_of(tree)]:
        if isinstance(owner, ast.ClassDef) and owner.name.startswith("_"):
            continue
        bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in getattr(owner, "bases", ())}
        known = set().union(*(inherited.get(base, set()) for base in bases))
        for node in owner.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                is_overload = any(
                    "overload" in ast.unparse(d) or ".setter" in ast.unparse(d) for d in node.decorator_list
                )
                if node.name not in known and not is_overload and ast.get_docstring(node) is None:
                    yield Finding(path, node.lineno, "undocumented", node.name)


def classes_of(owner: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef]:
    """The classes of a module, and the classes inside them."""
    for node in owner.body:
        if isinstance(node, ast.ClassDef):
            yield node
            yield from classes_of(node)


def methods(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """The names of the methods of each class, with those of its bases."""
    classes: dict[str, list[ast.ClassDef]] = defaultdict(list)
    for node in (node for tree in trees.values() for node in classes_of(tree)):
        classes[node.name].append(node)
    found: dict[str, set[str]] = {}

    def of(name: str) -> set[str]:
        if name in found or name not in classes:
            return found.get(name, set())
        found[name] = set()
        for owner in classes[name]:  # a name may be that of several classes
            found[name] |= {n.name for n in owner.body if isinstance(n, ast.FunctionDef)}
            found[name] |= {
                n.target.id for n in owner.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
            }
            for base in owner.bases:
                found[name] |= of(ast.unparse(base).split("[")[0].split(".")[-1])
        return found[name]

    return {name: of(name) for name in list(classes)}


def python_findings(path: str, source: str, tree: ast.Module, inherited: dict[str, set[str]]) -> Iterator[Finding]:
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    yield from name_findings(path, tokens)
    for line, text in comments(tokens):
        yield from prose_findings(path, line, text)
    nodes = list(docstrings(tree))
    for node in nodes:
        yield from prose_findings(path, node.lineno, node.value)
    if path.startswith(("src", "tools", "benchmarks", "tests")):
        yield from opening_findings(path, nodes)
    if path.startswith("src"):
        yield from undocumented(path, tree, inherited)


def findings(paths: Iterable[str]) -> Iterator[Finding]:
    files = sorted(
        file
        for path in paths
        for file in ([ROOT / path] if (ROOT / path).is_file() else (ROOT / path).rglob("*"))
        if file.suffix in (".py", ".md")
    )
    source = {str(file.relative_to(ROOT)): file.read_text() for file in files}
    source = {path: text for path, text in source.items() if not path.startswith(QUOTED)}
    trees = {path: ast.parse(text) for path, text in source.items() if path.endswith(".py")}
    rest = {str(file.relative_to(ROOT)): file for file in (ROOT / "src").rglob("*.py")}
    inherited = methods(trees | {path: ast.parse(file.read_text()) for path, file in rest.items() if path not in trees})
    for path, text in source.items():
        if path.endswith(".md"):
            yield from prose_findings(path, 1, CODE.sub(blank, text))
        else:
            yield from python_findings(path, text, trees[path], inherited)


def main(arguments: list[str]) -> None:
    shows_all = "--list" in arguments
    found = list(findings([a for a in arguments if a != "--list"] or PATHS))
    if shows_all:
        print("\n".join(map(str, found)))
    else:
        packages = Counter(("/".join(f.path.split("/")[:4]), f.kind) for f in found)
        print("\n".join(f"{count:6} {kind:12} {package}" for (package, kind), count in sorted(packages.items())))
    if found:
        sys.exit(f"{len(found)} findings: docs/glossary.md has the terms to use")


if __name__ == "__main__":
    main(sys.argv[1:])
