"""Pages of source files, to which the site links."""

from __future__ import annotations

import functools
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from handbook.specification import ROOT

FOLDERS = ("src/hloom", "tests", "tools", "examples", "benchmarks")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
:root {{ color-scheme: light; }}
body {{ margin: 1.5rem auto; max-width: 70rem; padding: 0 1rem; font-family: sans-serif; }}
pre {{ font-size: 0.85rem; line-height: 1.45; overflow-x: auto; background: none; }}
.highlight a {{ text-decoration: none; }}
{light}
</style><style id="dark" media="(prefers-color-scheme: dark)">
:root {{ color-scheme: dark; }}
body {{ background: #131416; color: #cfd0d0; }} {dark}
</style><script>
const theme = localStorage.getItem("theme"); // chosen on another page of the site; "auto" follows the system
if (theme === "dark" || theme === "light") document.getElementById("dark").media = theme === "dark" ? "all" : "not all";
</script></head><body><p><a href="{home}index.html">hloom</a> / {title}</p>
{code}</body></html>
"""


@functools.cache
def files() -> dict[str, Path]:
    """Returns the Python files of the project by their paths, those of the package also without `src/hloom`."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            found[name] = path
            if name.startswith("src/hloom/"):
                found.setdefault(name.removeprefix("src/hloom/"), path)
    return found


def path_of(text: str) -> Path | None:
    """Returns the file of a path on a page; None if there is none."""
    return files().get(text) if "/" in text or text.endswith(".py") else None


def address(path: Path) -> str:
    """Returns the address of the page of a file, from the root of the site."""
    return f"source/{path.relative_to(ROOT).as_posix()}.html"


def write(site: Path) -> None:
    """Writes a page for each file to which pages of the site link."""
    text = "".join(page.read_text() for page in site.rglob("*.html") if "source" not in page.relative_to(site).parts)
    light, dark = (HtmlFormatter(style=style).get_style_defs(".highlight") for style in ("default", "github-dark"))
    formatter = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True)
    for path in dict.fromkeys(files().values()):
        if address(path) in text:
            target = site / address(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            title, home = path.relative_to(ROOT).as_posix(), "../" * address(path).count("/")
            code = highlight(path.read_text(), PythonLexer(), formatter)
            target.write_text(_PAGE.format(title=title, home=home, light=light, dark=dark, code=code))
