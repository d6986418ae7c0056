"""Builds the page as a single file of markup, styles, code and data, without network requests.

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

SCRIPTS = (
    "dom.js", "scopes.js", "equal.js", "contents.js", "layered.js", "arrange.js", "scene.js", "measures.js",
    "colors.js", "canvas.js", "beside.js", "graphview.js", "details.js", "fate.js", "rewrites.js", "panels.js",
    "compare.js", "edit.js", "explorer.js",
)  # fmt: skip


def page(data: Json, is_served: bool = False) -> str:
    """The HTML of a module's page. A served one may send requests to its own server, and has an editor."""
    assets = files("hloom.explorer") / "assets"

    def text(name: str) -> str:
        return (assets / name).read_text("utf-8")

    scripts, style = [text(name) for name in SCRIPTS], text("explorer.css")
    parts = {
        "connect": "connect-src 'self'; " if is_served else "",
        "is_served": "served" if is_served else "",
        "title": escape(str(data["name"])),
        "script_digests": " ".join(map(_digest, scripts)),
        "style_digest": _digest(style),
        "style": style,
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "scripts": "\n".join(
            f'<script id="{name}">{script}</script>' for name, script in zip(SCRIPTS, scripts, strict=True)
        ),
    }
    return re.sub(r"{{(\w+)}}", lambda placeholder: parts[placeholder[1]], text("explorer.html"))


def _digest(content: str) -> str:
    """Digest of a script or style, in the syntax of Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
