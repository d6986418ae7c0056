"""Builds the page as a single file of markup, styles, libraries, code and data, without network requests.

Text of a module cannot inject code: the template is filled in a single pass, `<` is escaped in the data, and the
content security policy allows only the scripts and styles whose digests it lists.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from importlib.resources import files

from hloom.explorer.graph import Json

SCRIPTS = ("cytoscape.min.js", "scopes.js", "graph.js", "panels.js", "explorer.js")
WORKER = "dagre.min.js"
"""Script that runs in a worker, which the page creates from its text."""


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
    """Digest of a script or style, in the syntax of Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
