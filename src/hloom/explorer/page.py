"""The page as one file: markup, style, libraries, code and data; it asks for nothing over the network.

Text of a module stays text: the template is filled once, no character of the data opens a tag, and the browser runs no
script and applies no style but those whose digests the page's policy names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
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
        return (assets / name).read_text("utf-8")

    scripts, style = [text(name) for name in SCRIPTS], text("explorer.css")
    parts = {
        "title": escape(str(data["name"])),
        "script_digests": " ".join(map(_digest, scripts)),
        "style_digest": _digest(style),
        "style": style,
        "licences": "".join(f"<!-- {name}\n{text(name)}\n-->\n" for name in ("cytoscape.LICENSE", "dagre.LICENSE")),
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "worker": text(WORKER),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    return re.sub(r"{{(\w+)}}", lambda placeholder: parts[placeholder[1]], text("explorer.html"))


def _digest(content: str) -> str:
    """A script or style as a Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
