"""Whatever somebody looks for is a valid search: no text is read as the language of the full-text index."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from imem.kg.queries import SEARCHES, named_queries
from imem.services.arguments import parameters


def test_every_query_with_an_expression_makes_it_of_text() -> None:
    """By the headers of the statements."""
    marked = {
        name for name, query in named_queries().items() if any("full-text" in one for one in query.parameters.values())
    }
    assert marked == SEARCHES.keys()


@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200))
@example(text='"')
@example(text="(AND OR NOT")
@example(text="a:b^c~ [1 TO *] && || ! \\ / regex/ {x}")
@example(text="*")
@example(text="company:*")
def test_any_text_is_a_valid_search(text: str) -> None:
    """Words in small letters, the marks that are ours, and nothing that the index would read as syntax."""
    for name in SEARCHES:
        made = parameters(name, {"search": text})["search"]

        assert not set(made) & set('"()[]{}:!&|\\/+-?')
        # What marks there are stand behind a word, as we put them.
        for part in made.split():
            assert re.fullmatch(r"\w+(?:\^4|\*\^2|~[12])?", part), part
            assert part not in {"AND", "OR", "NOT", "TO"}
