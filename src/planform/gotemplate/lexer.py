"""Template text to tokens.

The lexer never fails: what it cannot read becomes an `error` token, the last one, so that the parser reports whatever
is wrong first in the order of the text.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, NamedTuple

SPACES: Final = " \t\r\n"
KEYWORDS: Final = frozenset(
    ("block", "break", "continue", "define", "else", "end", "if", "range", "nil", "template", "with")
)
_WORD = re.compile(r"\w+")
_SPACE = re.compile(r"[ \t\r\n]+")
_NUMBER = re.compile(
    r"[+-]?(?:"
    r"0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?"
    r"|0[oO][0-7_]*(?:\.[0-7_]*)?"
    r"|0[bB][01_]*(?:\.[01_]*)?"
    r"|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?"
    r")i?"
)
_QUOTED: Final = {
    '"': (re.compile(r'"(?:[^"\\\n]|\\[^\n])*"'), "string", "unterminated quoted string"),
    "`": (re.compile(r"`[^`]*`"), "string", "unterminated raw quoted string"),
    "'": (re.compile(r"'(?:[^'\\\n]|\\[^\n])*'"), "char", "unterminated character constant"),
}
_SINGLE: Final = {"=": "assign", "|": "pipe", "(": "(", ")": ")"}


class Token(NamedTuple):
    """A kind, where it starts in the text, and its own text (for `error`, the message)."""

    kind: str
    pos: int
    text: str


def tokenize(text: str, left: str, right: str) -> list[Token]:
    """Split a whole template; the last token is `eof` or `error`."""
    return _Lexer(text, left, right).run()


def is_word_character(char: str) -> bool:
    if char.isascii():
        return char.isalnum() or char == "_"
    category = unicodedata.category(char)
    return category[0] == "L" or category == "Nd"


def describe_character(char: str) -> str:
    """`U+0041 'A'`, as Go's %#U; the end of the text is -1 there."""
    if not char:
        return "U+FFFFFFFFFFFFFFFF"
    printable = char == " " or unicodedata.category(char)[0] in "LMNPS"
    return f"U+{ord(char):04X} '{char}'" if printable else f"U+{ord(char):04X}"


class _Lexer:
    def __init__(self, text: str, left: str, right: str) -> None:
        self.text = text
        self.left = left
        self.right = right
        self.tokens: list[Token] = []
        self.pos = 0

    def run(self) -> list[Token]:
        text, left = self.text, self.left
        while True:
            found = text.find(left, self.pos)
            if found < 0:
                if self.pos < len(text):
                    self.emit("text", self.pos, text[self.pos :])
                return self.finish("eof", len(text), "EOF")
            after = found + len(left)
            trims = text[after : after + 1] == "-" and text[after + 1 : after + 2] in tuple(SPACES)
            plain = text[self.pos : found]
            if trims:
                plain = plain.rstrip(SPACES)
            if plain:
                self.emit("text", self.pos, plain)
            inside = after + 2 if trims else after
            if text.startswith("/*", inside):
                if not self.comment(inside):
                    return self.tokens
                continue
            self.emit("left", found, left)
            self.pos = inside
            if not self.action():
                return self.tokens

    def emit(self, kind: str, pos: int, text: str) -> None:
        self.tokens.append(Token(kind, pos, text))

    def finish(self, kind: str, pos: int, text: str) -> list[Token]:
        self.emit(kind, pos, text)
        return self.tokens

    def fail(self, pos: int, message: str) -> bool:
        self.emit("error", pos, message)
        return False

    def right_delimiter(self, pos: int) -> int | None:
        """Where the text after a right delimiter at `pos` begins, trimmed if it says so; None if there is none."""
        text, right = self.text, self.right
        if text[pos : pos + 1] in tuple(SPACES) and text[pos + 1 : pos + 2] == "-" and text.startswith(right, pos + 2):
            after = pos + 2 + len(right)
            trimmed = _SPACE.match(text, after)
            return trimmed.end() if trimmed else after
        return pos + len(right) if text.startswith(right, pos) else None

    def comment(self, start: int) -> bool:
        end = self.text.find("*/", start + 2)
        if end < 0:
            return self.fail(start, "unclosed comment")
        after = self.right_delimiter(end + 2)
        if after is None:
            return self.fail(start, "comment ends before closing delimiter")
        self.pos = after
        return True

    def action(self) -> bool:
        """Tokens of one action; False after an error."""
        text, depth = self.text, 0
        while True:
            pos = self.pos
            after = self.right_delimiter(pos)
            if after is not None:
                if depth:
                    return self.fail(pos, "unclosed left paren")
                self.emit("right", pos, self.right)
                self.pos = after
                return True
            char = text[pos : pos + 1]
            if not char:
                return self.fail(pos, "unclosed action")
            if char in SPACES:
                self.space(pos)
                continue
            if char == "(":
                depth += 1
            elif char == ")":
                depth -= 1
                if depth < 0:
                    return self.fail(pos, "unexpected right paren")
            if not self.item(pos, char):
                return False

    def space(self, pos: int) -> None:
        """A run of white space, less its last character if that belongs to ` -}}`."""
        end = _SPACE.match(self.text, pos).end()  # type: ignore[union-attr]  # the caller saw a space
        if self.text[end : end + 1] == "-" and self.text.startswith(self.right, end + 1):
            end -= 1
        if end > pos:
            self.emit("space", pos, self.text[pos:end])
        self.pos = end

    def item(self, pos: int, char: str) -> bool:
        text = self.text
        if char in _QUOTED:
            pattern, kind, message = _QUOTED[char]
            match = pattern.match(text, pos)
            return self.take(kind, pos, match.end()) if match else self.fail(pos, message)
        if char == "$" or (char == "." and not text[pos + 1 : pos + 2].isdigit()):
            return self.name(pos, char)
        if char in "+-." or "0" <= char <= "9":
            return self.number(pos)
        if is_word_character(char):
            return self.word(pos)
        if char in _SINGLE:
            return self.take(_SINGLE[char], pos, pos + 1)
        if char == ":":
            return (
                self.take("declare", pos, pos + 2) if text[pos + 1 : pos + 2] == "=" else self.fail(pos, "expected :=")
            )
        if "!" <= char <= "~":
            return self.take("char-itself", pos, pos + 1)
        return self.fail(pos, f"unrecognized character in action: {describe_character(char)}")

    def take(self, kind: str, pos: int, end: int) -> bool:
        self.emit(kind, pos, self.text[pos:end])
        self.pos = end
        return True

    def word_end(self, pos: int) -> int:
        match = _WORD.match(self.text, pos)
        if match is None:
            return pos
        word = match[0]
        if word.isascii():
            return match.end()
        return pos + next((i for i, char in enumerate(word) if not is_word_character(char)), len(word))

    def ends_word(self, pos: int) -> bool:
        char = self.text[pos : pos + 1]
        return not char or char in " \t\r\n.,|:)(" or self.text.startswith(self.right, pos)

    def name(self, pos: int, char: str) -> bool:
        """`.Field` or `$variable`, or one of them bare."""
        if self.ends_word(pos + 1):
            return self.take("variable" if char == "$" else "dot", pos, pos + 1)
        end = self.word_end(pos + 1)
        if not self.ends_word(end):
            return self.fail(pos, f"bad character {describe_character(self.text[end : end + 1])}")
        return self.take("variable" if char == "$" else "field", pos, end)

    def word(self, pos: int) -> bool:
        end = self.word_end(pos)
        word = self.text[pos:end]
        if not self.ends_word(end):
            return self.fail(pos, f"bad character {describe_character(self.text[end : end + 1])}")
        if word in KEYWORDS:
            return self.take(word, pos, end)
        return self.take("bool" if word in ("true", "false") else "identifier", pos, end)

    def number(self, pos: int) -> bool:
        text = self.text
        end = _NUMBER.match(text, pos).end()  # type: ignore[union-attr]  # it matches the empty string
        kind, next_char = "number", text[end : end + 1]
        if next_char in ("+", "-"):
            kind, start = "complex", end
            end = _NUMBER.match(text, start).end()  # type: ignore[union-attr]
            next_char = text[end : end + 1]
            if text[end - 1] != "i" and not (next_char and is_word_character(next_char)):
                return self.fail(pos, f'bad number syntax: "{text[pos:end]}"')
        if next_char and is_word_character(next_char):
            return self.fail(pos, f'bad number syntax: "{text[pos : end + 1]}"')
        return self.take(kind, pos, end)
