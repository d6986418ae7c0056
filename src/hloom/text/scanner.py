"""Scanner of HLO text: white space, names, balanced values; errors with line, column and caret."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

from hloom.errors import ParseError

T = TypeVar("T")
S = TypeVar("S", bound="Scanner")

SPACE = re.compile(r"\s*+")
NAME = re.compile(r"%?([A-Za-z_][\w.\-]*+)")
OPCODE = re.compile(r"[a-z][\w\-]*+")
STRING = re.compile(r""""(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'""", re.DOTALL)
QUOTES = ('"', "'")
INTEGER = re.compile(r"-?\d++")

_PLAIN = re.compile(r"""[^\s,{}()\[\]"']++""")
FLAT_VALUE = re.compile(
    rf"""\{{(?:[^{{}}()\[\]"]++|{STRING.pattern})*+\}}|{STRING.pattern}|{_PLAIN.pattern}(?![{{(\["'])""", re.DOTALL
)
"""Values without brackets inside of others, but in strings: most of them, in one match.

Single quotes in brackets may be those of JSON, where they do not begin strings.
"""
_FLAT_PARENTHESES = re.compile(r'\(([^{}()\[\]"]*+)\)')
_NESTING = re.compile(r'[{}()\[\]"]')
_CLOSING = {"{": "}", "(": ")", "[": "]"}
MAX_NESTING = 200

_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_QUOTED = re.compile(r'[\x00-\x1f"\\\x7f\ud800-\udfff]')
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_BYTE = r"[0-3][0-7]{2}|[0-7]{1,2}|[xX]0*[0-9a-fA-F]{1,2}(?![0-9a-fA-F])"
_CHARACTER = r"(?:u|U0000)(?![dD][89a-fA-F])[0-9a-fA-F]{4}|U00(?:10|0[1-9a-fA-F])[0-9a-fA-F]{4}"
_ESCAPE = re.compile(rf"\\({_BYTE}|{_CHARACTER}|.)", re.DOTALL)
_ESCAPED_BYTES = re.compile("[\udc80-\udcff]++")


_COMMENT = re.compile(rf"{STRING.pattern}|/\*.*?\*/|//[^\n]*+", re.DOTALL)
"""Comments and strings, which may contain comment signs; without groups, so that `re` skips to their first signs."""
_NOT_NEWLINE = re.compile(r"[^\n]")


def without_comments(text: str) -> str:
    """Replaces comments by blanks, which keeps all positions; comment signs in strings are not comments."""
    if "/*" not in text and "//" not in text:
        return text
    return _COMMENT.sub(lambda match: _NOT_NEWLINE.sub(" ", match[0]) if match[0][0] == "/" else match[0], text)


class Scanner:
    """A position in a text without comments; `base` is the offset of the text in `full_text`, which errors refer to.

    Methods that read skip white space first, and raise ParseError, with line, column and caret, if the text differs.
    """

    __slots__ = ("base", "full_text", "pos", "text")

    def __init__(self, text: str, full_text: str | None = None, base: int = 0) -> None:
        self.text = text
        self.pos = 0
        self.full_text = text if full_text is None else full_text
        self.base = base

    def fail(self, message: str, pos: int | None = None) -> NoReturn:
        """Raises ParseError at an offset of the text (default: the current position)."""
        offset = min(self.base + (self.pos if pos is None else pos), len(self.full_text))
        line_start = self.full_text.rfind("\n", 0, offset) + 1
        line_end = self.full_text.find("\n", offset)
        source = self.full_text[line_start : line_end if line_end >= 0 else len(self.full_text)]
        line = self.full_text.count("\n", 0, offset) + 1
        raise ParseError(message, line, offset - line_start + 1, source)

    def skip(self) -> None:
        """Moves past white space."""
        if self.text[self.pos : self.pos + 1].isspace():
            match = SPACE.match(self.text, self.pos)
            assert match
            self.pos = match.end()

    def at_end(self) -> bool:
        """Whether only white space follows."""
        self.skip()
        return self.pos >= len(self.text)

    def peek(self, token: str) -> bool:
        """Whether `token` comes next."""
        self.skip()
        return self.text.startswith(token, self.pos)

    def take(self, token: str) -> bool:
        """Moves past `token` if it comes next; returns whether it did."""
        self.skip()
        if self.text.startswith(token, self.pos):
            self.pos += len(token)
            return True
        return False

    def expect(self, token: str, what: str = "") -> None:
        """Moves past `token`; `what` explains it in the error if something else comes next."""
        if not self.take(token):
            self.fail(f"expected {token!r}{what and ' ' + what}, got {self.preview()}")

    def expect_tokens(self, tokens: str) -> None:
        """Moves past several tokens, which `tokens` separates by blanks."""
        for token in tokens.split():
            self.expect(token)

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Matches a pattern and moves past it; None if it does not match."""
        self.skip()
        match = pattern.match(self.text, self.pos)
        if match:
            self.pos = match.end()
        return match

    def expect_match(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """Matches a pattern and moves past it; `what` names it in the error if it does not match."""
        return self.match(pattern) or self.fail(f"expected {what}, got {self.preview()}")

    def expect_end(self, what: str) -> None:
        """Skips white space up to the end of the text; `what` is the text's kind, for the error if it goes on."""
        if not self.at_end():
            self.fail(f"expected the end of the {what}, got {self.preview()}")

    def name(self, what: str) -> str:
        """Reads a name, without its percent sign; `what` names it in errors."""
        return self.expect_match(NAME, what)[1]

    def integer(self, what: str = "an integer") -> int:
        """Reads an integer of 64 bits; `what` names it in errors."""
        match = self.expect_match(INTEGER, what)
        if len(match[0]) > 20 or not -(2**63) <= int(match[0]) < 2**63:
            self.fail(f"{match[0][:40]} does not fit 64 bits", match.start())
        return int(match[0])

    def preview(self) -> str:
        """The next characters, for error messages."""
        rest = self.text[self.pos : self.pos + 20].split("\n")[0].rstrip()
        return repr(rest) if rest else ("the end of the text" if self.pos >= len(self.text) else "the end of the line")

    def raw_value(self) -> str:
        """Reads the value of an attribute as text: a string, balanced brackets, or words joined with brackets."""
        flat = self.match(FLAT_VALUE)
        if flat:
            return flat[0]
        start = self.pos
        text = self.text
        while self.pos < len(text):
            character = text[self.pos]
            if character in _CLOSING:
                self.pos = self._closing(self.pos)
                if character != "[" and character != "(":
                    break
            elif character in QUOTES:
                match = STRING.match(text, self.pos)
                if not match:
                    self.fail("the string is not closed")
                self.pos = match.end()
                break
            else:
                plain = _PLAIN.match(text, self.pos)
                if not plain:
                    break
                self.pos = plain.end()
        if self.pos == start:
            self.fail(f"expected a value, got {self.preview()}")
        return text[start : self.pos]

    def _closing(self, start: int) -> int:
        """The offset after the bracket that closes the one at `start`; brackets in strings do not count."""
        text, stack, position = self.text, [], start
        while True:
            match = _NESTING.search(text, position)
            if not match:
                self.fail(f"the {text[start]!r} is not closed", start)
            character, position = match[0], match.end()
            if character == '"':
                string = STRING.match(text, match.start())
                if not string:
                    self.fail("the string is not closed", match.start())
                position = string.end()
            elif character in _CLOSING:
                stack.append(_CLOSING[character])
                if len(stack) > 2 * MAX_NESTING:  # attributes may have the deepest tuples in brackets of their own
                    self.fail(f"brackets nest more than {2 * MAX_NESTING} deep", match.start())
            elif stack.pop() != character:
                self.fail(f"unexpected {character!r}", match.start())
            elif not stack:
                return position

    def parenthesised(self) -> str:
        """Reads parentheses and returns the text inside."""
        flat = self.match(_FLAT_PARENTHESES)
        if flat:
            return flat[1]
        self.expect("(")
        start = self.pos - 1
        self.pos = self._closing(start)
        return self.text[start + 1 : self.pos - 1]


def unquote(text: str) -> str:
    """The content of a quoted string with C escapes; octal and hexadecimal escapes are bytes of UTF-8."""
    body = text[1:-1]
    return joined_bytes(_ESCAPE.sub(_unescaped, body)) if "\\" in body else body


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1 and code[0] in "uU":
        return chr(int(code[1:], 16))
    if code[0] in "01234567" or len(code) > 1:
        return escaped_byte(int(code, 8) if code[0] not in "xX" else int(code[1:], 16))
    return _ESCAPES.get(code, code)


def escaped_byte(code: int) -> str:
    """A byte of a string as a character; those of several bytes are put together by `joined_bytes`."""
    return chr(code if code < 128 else 0xDC00 + code)


def joined_bytes(text: str) -> str:
    """Makes characters of escaped bytes of UTF-8.

    Bytes that are not UTF-8 stay the surrogates of `surrogateescape`, which `quote` and protos convert to bytes again.
    """
    return _ESCAPED_BYTES.sub(
        lambda run: str(run[0].encode("utf-8", "surrogateescape"), "utf-8", "surrogateescape"), text
    )


def unquoted(text: str) -> str:
    """The content of a quoted string; any other text itself."""
    return unquote(text) if text.startswith(QUOTES) else text


def quote(text: str) -> str:
    """Quotes a string as XLA's CEscape does: control characters and bytes that are not UTF-8 in octal."""
    return f'"{_QUOTED.sub(_escaped, text)}"'


def _escaped(match: re.Match[str]) -> str:
    return _ESCAPED.get(match[0]) or f"\\{ord(match[0]) & 0xFF:03o}"


def is_printable(text: str) -> bool:
    """Whether a text can be written to a file as it is: without control characters and bytes that are not UTF-8."""
    return not _UNPRINTABLE.search(text)


def braced(values: Iterable[object], separator: str = ",") -> str:
    """Values in braces, `{0,1}`."""
    return "{" + separator.join(map(str, values)) + "}"


def scan_list(
    scanner: S, element: Callable[[S], T], opening: str = "{", closing: str = "}", what: str = "between elements"
) -> list[T]:
    """Reads elements in brackets, separated by commas, of which errors say `what`; raises ParseError for anything
    else.
    """
    scanner.expect(opening)
    elements: list[T] = []
    while not scanner.take(closing):
        if elements:
            scanner.expect(",", what)
        elements.append(element(scanner))
    return elements


def scan_ints(scanner: Scanner) -> tuple[int, ...]:
    """Reads integers in braces; raises ParseError for anything else."""
    return tuple(scan_list(scanner, Scanner.integer))
