"""The subject's own record: the head of a briefing."""

from __future__ import annotations

from typing import Final

from imem.kg.kinds.catalog import subject_ref
from imem.recall.answers import BriefingSection, DatedRecord
from imem.recall.retrievers import RetrievalRequest, record
from imem.recall.sections.spec import SectionSpec


class SubjectSection(BriefingSection):
    """The subject's own record; shown as the briefing's head, not as a section."""

    record: DatedRecord | None = None


async def load(request: RetrievalRequest) -> SubjectSection:
    """Return the subject's own record; none if only other records mention it."""
    ref = subject_ref(request.subject_id)
    found = (await request.dated([ref])).records.get(ref)
    return SubjectSection(record=record(found) if found is not None else None, total=int(found is not None))


SECTION: Final = SectionSpec(name="subject", model=SubjectSection, load=load, own_record=True)
