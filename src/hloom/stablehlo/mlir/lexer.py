"""Scanner of MLIR text: values, symbols, words, numbers, balanced angle brackets."""

from __future__ import annotations

import re

from hloom.text.scanner import STRING, Scanner, escaped_byte, joined_bytes

VALUE = re.compile(r"%([\w$.\-]++(?:#\d++)?)")
WORD = re.compile(r"[A-Za-z_][\w$.]*+")
ALIAS = re.compile(r"([#!])([A-Za-z_][\w$.\-]*+)")
NUMBER = re.compile(r"-?(?:0x[0-9a-fA-F]++|\d++(?:\.\d*+)?(?:[eE][+-]?\d++)?)")
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)
_SYMBOL = re.compile(r'@(?:([A-Za-z_][\w$.\-]*+)|("(?:[^"\\]|\\.)*+"))')
_SPACE = re.compile(r"(?:\s++|//[^\n]*+)*+")
_ANGLE = re.compile(r'[<>"]')
_DEFINITION = re.compile(r"^[ \t]*+([#!][A-Za-z_][\w$.\-]*+)[ \t]*+=", re.MULTILINE)


class MlirScanner(Scanner):
    """A position in MLIR text; methods that read raise ParseError with line, column and caret."""

    __slots__ = ()

    def skip(self) -> None:
        """Moves past white space and comments."""
        match = _SPACE.match(self.text, self.pos)
        if match:
            self.pos = match.end()

    def word(self, what: str = "a word") -> str:
        """Reads a bare identifier; `what` names it in errors."""
        return self.expect_match(WORD, what)[0]

    def take_word(self, word: str) -> bool:
        """Moves past a bare identifier if it comes next; returns whether it did."""
        self.skip()
        match = WORD.match(self.text, self.pos)
        if not match or match[0] != word:
            return False
        self.pos = match.end()
        return True

    def expect_word(self, word: str, what: str = "") -> None:
        """Moves past a bare identifier; `what` explains it in the error if something else comes next."""
        if not self.take_word(word):
            self.fail(f"expected {word!r}{what and ' ' + what}, got {self.preview()}")

    def string(self, what: str = "a string") -> str:
        """Reads a string literal and returns its content; `what` names it in errors."""
        return unquote_mlir(self.expect_match(STRING, what)[0])

    def symbol(self) -> str:
        """Reads `@name` or `@"name"` and returns the name; a nested reference `@a::@b` gives its last name."""
        match = self.expect_match(_SYMBOL, "a symbol @name")
        while self.text.startswith("::@", self.pos):
            self.pos += 2
            match = self.expect_match(_SYMBOL, "a symbol @name")
        return match[1] or unquote_mlir(match[2])

    def angled(self) -> str:
        """Reads a body in angle brackets and returns its text; brackets in strings and arrows do not count."""
        self.expect("<")
        start, depth = self.pos, 1
        position, text = start, self.text
        while depth:
            match = _ANGLE.search(text, position)
            if not match:
                self.fail("the '<' is not closed", start - 1)
            position = match.end()
            if match[0] == '"':
                string = STRING.match(text, match.start())
                if not string:
                    self.fail("the string is not closed", match.start())
                position = string.end()
            elif match[0] == "<":
                depth += 1
            elif text[match.start() - 1] != "-":
                depth -= 1
        self.pos = position
        return text[start : position - 1]

    def definitions(self) -> dict[str, int]:
        """Maps `#name` and `!name` to the offsets of their values: aliases may be used before their definition."""
        return {match[1]: match.end() for match in _DEFINITION.finditer(self.text)}


def unquote_mlir(text: str) -> str:
    r"""The content of a quoted string; escapes are `\n`, `\t`, `\"`, `\\` and bytes in hexadecimal, `\0A`."""
    body = text[1:-1]
    return joined_bytes(_ESCAPE.sub(_unescaped, body)) if "\\" in body else body


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return escaped_byte(int(code, 16)) if len(code) == 2 else {"n": "\n", "t": "\t"}.get(code, code)
