"""The page as one file: markup, style, libraries, code and data; it asks for nothing over the network."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files

from hloom.explorer.graph import Json

SCRIPTS = ("cytoscape.min.js", "graph.js", "panels.js", "explorer.js")
WORKER = "dagre.min.js"
"""What only a worker runs, which the page makes of the text."""


def page(data: Json) -> str:
    """The HTML of a module's page."""
    assets = files("hloom.explorer") / "assets"

    def text(name: str) -> str:
        return (assets / name).read_text()

    # A "</" inside of a script would end it.
    content = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    scripts = f'<script id="{WORKER}" type="text/plain">\n{text(WORKER)}\n</script>\n'
    scripts += "".join(f"<script>\n{text(name)}\n</script>\n" for name in SCRIPTS)
    licences = "".join(f"<!-- {name}\n{text(name)}\n-->\n" for name in ("cytoscape.LICENSE", "dagre.LICENSE"))
    return (
        text("explorer.html")
        .replace("{{title}}", escape(str(data["name"])))
        .replace("{{style}}", text("explorer.css"))
        .replace("{{licences}}", licences)
        .replace("{{data}}", content)
        .replace("{{scripts}}", scripts)
    )
