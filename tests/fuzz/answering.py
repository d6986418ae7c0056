"""A child process of tests: it answers, dies, hangs or raises as it is told."""

from __future__ import annotations

import os
import time

from hloom.system.child import serve


def main(descriptor: int) -> None:
    def handle(content: bytes) -> bytes:
        if content == b"die":
            os.abort()
        if content == b"hang":
            time.sleep(60)
        return content.upper()

    serve(descriptor, handle)
