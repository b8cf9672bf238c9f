"""
The language of a text, as far as its letters and commonest words say it. Pure.

It decides whether an encoder knows the language of a text, nothing else. A text that is unsure has none, so that names,
figures and single words of Latin letters make no text foreign.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

LANGUAGES: Final[Mapping[str, str]] = {
    "ar": "Arabic", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "es": "Spanish",
    "fa": "Persian", "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi", "hu": "Hungarian",
    "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "nl": "Dutch", "pl": "Polish",
    "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sv": "Swedish", "th": "Thai", "tr": "Turkish",
    "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese", "other": "another language",
}  # fmt: skip
"""Code → name."""

_SCRIPTS: Final[Mapping[str, str]] = {
    "ja": "\u3041-\u30ff\u31f0-\u31ff",
    "ko": "\u1100-\u11ff\u3131-\u318e\uac00-\ud7fb",
    "zh": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "th": "\u0e01-\u0e4e",
    "ar": "\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc",
    "ru": "\u0400-\u052f",
    "el": "\u0370-\u03ff\u1f00-\u1fff",
    "he": "\u0590-\u05ff",
    "hi": "\u0900-\u097f",
}
"""The language for which the letters of a script stand."""

_LETTERS: Final = {code: re.compile(f"[{letters}]") for code, letters in _SCRIPTS.items()}
_OTHER_LETTERS: Final = re.compile(r"[^\W\d_\u0000-\u036f\u1e00-\u1eff\uff00-\uffef]")
_SYLLABLES: Final = frozenset({"ja", "ko", "zh"})
"""Scripts in which a word has few letters, so that each counts for three."""

_FOREIGN: Final = 0.4
"""Share of letters from which on they decide; below, they are a quotation or a name."""

_OWN_LETTERS: Final = {
    "fa": "پچژگ", "uk": "іїєґ", "vi": "ơưạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ", "pl": "łąęśźżćń", "tr": "ığş",
    "cs": "řěů", "hu": "őű", "ro": "țșă", "de": "ß",
}  # fmt: skip
"""Letters that one language alone has, of those told apart here."""

_WORDS: Final = {
    "en": "the of and to in is that for it with as was on are be this by at from or have not which what how why did"
    " does were will would has had their they its than when where who can should there",
    "de": "der die das und ist nicht von zu den mit sich auf für dem ein eine im auch wird werden sind wie warum welche"
    " haben hat bei nach zur zum über wurde kann",
    "fr": "le les des et une dans que qui pour pas sur aux avec ce cette sont pourquoi quels quelle ont"
    " été elle leur mais",
    "es": "el una que por para con como más pero sus está qué cómo cuándo fue han entre sobre según ya",
    "it": "gli che è con sono della dei delle nel come perché anche più ha stato quali quando alla",
    "pt": "uma que não para com dos das em mais por como são foi ao pelo quais porque está também",
    "nl": "het een en dat niet voor met op zijn aan ook wordt door hoe waarom welke werd naar",
    "pl": "jest nie się że jak dlaczego oraz dla od przez został są ich który czy",
    "sv": "och är att det som inte för av ett den varför hur till från vid",
    "da": "og er ikke det som af et den hvorfor hvordan til fra ved blev",
    "fi": "ja ei että oli kun mutta miksi miten ovat myös tai kuin",
    "tr": "ve bir bu için ile olan neden nas\u0131l daha olarak çok değil gibi kadar",
    "cs": "že jsou jak proč nebo ale byl byla podle také které",
    "hu": "az és nem hogy egy miért hogyan volt mint csak",
    "ro": "și este nu care pentru din cu sunt mai prin cum că fost",
    "id": "yang dan untuk dengan ini itu dari pada tidak adalah mengapa bagaimana akan",
}
"""Language → common words of Latin letters, but those that English or many names have as well."""

_LANGUAGES_OF: Final[dict[str, list[str]]] = {}
for _code, _words in _WORDS.items():
    for _word in dict.fromkeys(_words.split()):
        _LANGUAGES_OF.setdefault(_word, []).append(_code)

_LEAST_WORDS: Final = 2
"""Different common words without which a text of Latin letters has no language."""

_LEAST_SHARE: Final = 0.15
"""Share of the words of a text of Latin letters that common words of a language have, or else it has none."""

_LEAST_LETTERS: Final = 2
"""Letters of another script without which a text has none."""

_READ: Final = 1_000
"""Characters of a text that are read."""


def language_of(text: str) -> str | None:
    """Return the code of the language of *text*, one of :data:`LANGUAGES`; None where it is not sure."""
    read = text[:_READ].casefold()
    if read.isascii():
        return _of_latin(read)
    letters = sum(map(str.isalpha, read))
    if not letters:
        return None
    counts = {code: len(found.findall(read)) * (3 if code in _SYLLABLES else 1) for code, found in _LETTERS.items()}
    others = len(_OTHER_LETTERS.findall(read)) - sum(len(found.findall(read)) for found in _LETTERS.values())
    weighed = letters + sum(counts[code] * 2 // 3 for code in _SYLLABLES)
    if sum(counts.values()) + max(0, others) < _FOREIGN * weighed:
        return _of_latin(read)
    code = max(counts, key=lambda one: counts[one])
    if counts[code] <= max(0, others):
        return "other" if others >= _LEAST_LETTERS else None
    if counts[code] < _LEAST_LETTERS * (3 if code in _SYLLABLES else 1):
        return None
    if counts["ja"] and code == "zh":
        return "ja"
    return next((own for own in _ALPHABETS.get(code, ()) if _has(read, own)), code)


_ALPHABETS: Final = {"ar": ("fa",), "ru": ("uk",)}


def _has(read: str, code: str) -> bool:
    return any(letter in read for letter in _OWN_LETTERS[code])


def _of_latin(read: str) -> str | None:
    words = re.findall(r"[^\W\d_]+", read)
    found: Counter[str] = Counter()
    for word in set(words):
        found.update(_LANGUAGES_OF.get(word, ()))
    for code in _OWN_LETTERS.keys() - {"fa", "uk"}:
        # Letters alone may be those of a name; Vietnamese has them in most words.
        if found[code] or code == "vi":
            found[code] += sum(_has(word, code) for word in set(words))
    counted = Counter(code for word in words for code in _LANGUAGES_OF.get(word, ()))
    most = max(found.values(), default=0)
    if most < _LEAST_WORDS or most == found["en"]:
        return "en" if found["en"] >= _LEAST_WORDS else None
    code = next(code for code in _WORDS | {"vi": ""} if found[code] == most)
    return code if max(counted[code], found[code]) >= _LEAST_SHARE * len(words) else None


def named(codes: Iterable[str]) -> str:
    """Return the names of languages, in their order."""
    names = sorted({LANGUAGES[code] for code in codes})
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
