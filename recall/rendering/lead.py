"""
The lead of a report: its first sentences with content.

Reports of language models begin with a heading, a table or a rule, and speeches with words to the audience ("Look, let
me be direct with you"). A quotation of two lines has no room for these. So structure is left out, and so are first
sentences without a figure that open a speech or address the audience. A sentence about what the speaker thinks, wants
or expects is content. Nothing is reworded, and what was skipped is marked.
"""

from __future__ import annotations

import re
from typing import Final

LOOKED_AT: Final = 8000
"""Characters of a text in which the lead is searched."""

MOST_SKIPPED: Final = 8
"""Most sentences skipped as an address to the audience."""

_STRUCTURE = re.compile(r"\s*(?:\||#|```|~~~|<[a-z/!]|(?:[-*_=]\s*){3,}$)")
"""A line of a table, a heading, a fence, a tag, or a rule."""

_MARKER = re.compile(r"^\s*(?:>\s*|[-*+•]\s+|\d+[.)]\s+)+")
_EMPHASIS = re.compile(r"\*{1,3}|_{2,3}|`+")
_END = re.compile(r"(?<=[.!?\u2026])[\"'\u201d\u2019)\]]*\s+|(?<=[\u3002\uff01\uff1f])\s*")
"""The end of a sentence, in Latin script and in Chinese and Japanese."""

_LABEL = re.compile(r"[A-Z][\w /-]{0,30}: ")
"""A prefix before a verdict's reasons, such as "Overweight: "."""

_INTERJECTION = r"(?:[Aa]ll ?right|[Ll]ook|[Oo]kay|OK|[Ww]ell|[Ll]isten|[Nn]ow|[Ss]o|[Aa]nd|[Bb]ut|[Ff]irst)"

_OPENING = re.compile(
    rf"""\W*(?:{_INTERJECTION}\b[\s,.:!…\u2013\u2014-]*)*
    (?: $
    | [Ll]et\ (?:me|us)\b
    | [Ll]et['\u2019]s\ (?:be|begin|start|talk|look|get|go|cut|address
        |step|take|do|have|walk|end|dig|turn|set|put|not)\b
    | [Tt]hank\ you\b | [Tt]hanks\b(?!\ to\b) | (?:Hello|Hi)(?=[\s,.!]) | [Gg]ood\ (?:morning|afternoon|evening)\b
    | [Ll]adies\ and\ gentlemen\b | (?:[Ff]olks|[Ee]veryone|[Gg]entlemen|[Tt]eam|[Cc]olleagues),
    | [Yy]ou(?:['\u2019](?:re|ve|ll|d))?\b | [Yy]our\b | [Bb]oth\ of\ you\b
    | [Mm]y\ (?:\w+\ ){{0,2}}(?:colleague|opponent|counterpart|friend)s?\b
    | [Tt]o\ (?:the|my|both)\ (?:[\w]+\ ){{0,4}}(?:analyst|colleague|opponent|side)s?\b
    | [A-Z][\w\ ]{{0,40}},\ (?:let\ me|let['\u2019]s|your?\b|thank\ you|(?:and\ )?I\ want\ to\ be\b)
    | I\ (?:appreciate|respect|hear)\b | I['\u2019]ve\ (?:heard|listened|read)\b | I\ have\ (?:heard|listened|read)\b
    | I(?:['\u2019](?:ll|m\ going\ to|d\ like\ to)|\ will|\ want\ to|\ have\ to|\ need\ to|\ must|\ would\ like\ to)
      \ (?:give|grant|hand|thank|credit|acknowledge|commend|address|respond|engage|say\ this|start\ by|push\ back
        |start\ with\ (?:what|where|something)
        |be\ (?:\w+\ )?(?:clear|direct|honest|precise|blunt|fair|frank|candid|brief|specific))\b
    )""",
    re.VERBOSE,
)
"""
Openings of a speech and addresses to the audience. Case counts: "US" is a country, "Phase I" is not the speaker.
"""

_FIGURE = re.compile(r"\d")


def without_structure(text: str) -> str:
    """Return the sentences of *text* on one line, without tables, headings, rules and markers; of a table its cells."""
    text = text[:LOOKED_AT]
    lines = [line for line in text.splitlines() if line.strip() and not _STRUCTURE.match(line)]
    kept = [_EMPHASIS.sub("", _MARKER.sub("", line)).strip() for line in lines]
    found = " ".join(line for line in kept if line)
    return found or "; ".join(_rows(text)) or " ".join(text.split())


def _rows(text: str) -> list[str]:
    """Return the rows of a table after its head, each with its cells."""
    cells = [[_EMPHASIS.sub("", cell).strip() for cell in line.strip().strip("|").split("|")]
             for line in text.splitlines() if line.lstrip().startswith("|")]  # fmt: skip
    rules = [number for number, row in enumerate(cells) if all(cell and not cell.strip(":- ") for cell in row)]
    body = cells[rules[0] + 1 :] if rules else cells
    return [", ".join(cell for cell in row if cell) for row in body if any(cell.strip(":- ") for cell in row)]


def telling(text: str) -> str:
    """Return *text* without structure, from its first sentence with content on; whole if there is none."""
    plain = without_structure(text)
    label = _LABEL.match(plain)
    start = label.end() if label else 0
    rest = plain[start:]
    at = 0
    for number, end in enumerate(_END.finditer(rest)):
        sentence = rest[at : end.start()]
        if number == MOST_SKIPPED or not _idle(sentence):
            break
        at = end.end()
    if at and not _idle(rest[at:]):
        return f"{plain[:start]}… {rest[at:]}"
    return plain


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text on one line."""
    return [sentence for sentence in _END.split(text) if sentence]


def _idle(sentence: str) -> bool:
    """Return whether a sentence without a figure opens a speech or addresses the audience."""
    return not _FIGURE.search(sentence) and _OPENING.match(sentence) is not None


def lead(text: str, limit: int) -> str:
    """Return the first sentences of *text* with content, at most *limit* characters, cut at a sentence if possible."""
    found = telling(text)
    if len(found) <= limit:
        return found
    kept = found[: limit - 1]
    ends = [end.start() for end in _END.finditer(kept)]
    if ends and ends[-1] >= limit * 0.6:
        return f"{kept[: ends[-1]]} …"
    space = kept.rfind(" ")
    return f"{kept[:space] if space > limit * 0.6 else kept}…"
