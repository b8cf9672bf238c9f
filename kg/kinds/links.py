"""
The kinds of relationships: a closed list.

A link's identity is (type, from, to), joined by the properties named in ``identity`` where one pair may be linked
often. Links that a record's own event writes (``implied_by``) cannot be written apart from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from imem.kg.kinds.base import StrictModel, Tag, TagName
from imem.kg.kinds.enums import StorageTier
from imem.kg.kinds.fields import Integer, Key, LongText, Moment, Number, PastMoment, Prob, ShortText


class LinkProps(StrictModel):
    """Properties of a link; this one has none."""


class SimilarityProps(LinkProps):
    """The similarity of two companies."""

    similarity: Prob | None = None


class RoleProps(LinkProps):
    """The role in which an agent performed an analysis."""

    role: ShortText | None = None


class SettlementProps(LinkProps):
    """The scores of a finding against an outcome."""

    correct: Prob | None = None
    brier: Number | None = None
    log_score: Number | None = None


class CitationProps(LinkProps):
    """The time and rank of a citation; the first citation has rank 1."""

    at: PastMoment
    rank: Integer | None = None


class StrengthProps(LinkProps):
    """The strength of a pattern in an analysis."""

    strength: Number | None = None


class PatternSimilarityProps(LinkProps):
    """The similarity of two patterns."""

    score: Prob | None = None


class RankedSimilarityProps(LinkProps):
    """The similarity of two nodes, the model that computed it, and the rank among the nearest."""

    score: Prob | None = None
    rank: Integer | None = None
    model_version: ShortText | None = None
    built_at: Moment | None = None


class GateDecisionProps(LinkProps):
    """A person's decision at a gate."""

    at: PastMoment
    rationale: LongText | None = None
    task_id: Key | None = None


class TierProps(LinkProps):
    """The tier of an archive."""

    tier: Integer


class TierMigrationProps(LinkProps):
    """A move of a file between tiers."""

    from_tier: StorageTier
    to_tier: StorageTier
    date: PastMoment


class TrackRecordProps(LinkProps):
    """The headline numbers of a track record."""

    overall_score: Prob | None = None
    sample_size: Integer | None = None
    recent_accuracy: Prob | None = None
    posterior_mean: Prob | None = None
    posterior_lower: Prob | None = None
    posterior_upper: Prob | None = None


class SideProps(LinkProps):
    """The side of a debate that a pattern supports."""

    side: Key | None = None


class OverrideProps(LinkProps):
    """A person's override of a resolution."""

    at: PastMoment
    rationale: LongText


class DatedProps(LinkProps):
    """The time of the event."""

    at: PastMoment


class TaskProps(LinkProps):
    """The task of the event."""

    task_id: Key | None = None


LinkOwner = Literal["from", "to", "recorder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkKind:
    """
    One type of relationship between given kinds of nodes.

    Attributes:
        name: the relationship's type in the graph.
        froms: labels that it may start from; ``Subject`` means any subject.
        tos: labels that it may end at; empty when it ends at the label that it starts from.
        tags: what a write invalidates: by a name, the tags of that name that its ends' kinds declare; by a tag, one of
            its start. May be empty.
        owner: the end whose owner owns it; ``recorder`` for a fact about the world, None where no agent may append it.
        props: model of its properties.
        implied_by: the kind whose event writes it, if any.
        via: fields of that kind that name the other end; a list names several.
        identity: properties that join (type, from, to).
        undirected: stored once, from the smaller key, and matched both ways.
        replaced: one target at a time; the history is in the journal.
        governed: the only subsystem that writes it, if any.
        derived: computed here, outside history and hash.
        loop: whether a node may be linked with itself.
    """

    name: str
    froms: tuple[str, ...]
    tos: tuple[str, ...]
    tags: tuple[TagName | Tag, ...]
    owner: LinkOwner | None = None
    props: type[LinkProps] = LinkProps
    implied_by: str | None = None
    via: tuple[str, ...] = ()
    identity: tuple[str, ...] = ()
    undirected: bool = False
    replaced: bool = False
    governed: str | None = None
    derived: bool = False
    loop: bool = False

    def joins(self, start: str, end: str) -> bool:
        """Return whether it may lead from a node labelled *start* to one labelled *end*."""
        return start in self.froms and (end in self.tos if self.tos else end == start)


def _link(
    name: str,
    start: str | Sequence[str],
    end: str | Sequence[str],
    props: type[LinkProps] = LinkProps,
    *,
    tags: tuple[TagName | Tag, ...],
    owner: LinkOwner | None = None,
    by: str | None = None,
    via: str | tuple[str, ...] = (),
    identity: str | None = None,
    undirected: bool = False,
    replaced: bool = False,
    governed: str | None = None,
    derived: bool = False,
    loop: bool = False,
) -> LinkKind:
    return LinkKind(
        name=name,
        froms=(start,) if isinstance(start, str) else tuple(start),
        tos=() if end == _SAME else (end,) if isinstance(end, str) else tuple(end),
        tags=tags,
        owner=owner,
        props=props,
        implied_by=by,
        via=(via,) if isinstance(via, str) else via,
        identity=(identity,) if identity else (),
        undirected=undirected,
        replaced=replaced,
        governed=governed,
        derived=derived,
        loop=loop,
    )


_SAME: Final = "same"

LINK_KINDS: Final[tuple[LinkKind, ...]] = (
    # Subjects and work
    _link("HAS_ANALYSIS", "Subject", "Analysis", by="Analysis", via="subject_id", tags=("subject",)),
    _link("HAS_ANALYSIS", "PostMortem", "FailureAnalysis", by="FailureAnalysis", via="postmortem_id", tags=()),
    _link("PEER_OF", "Company", "Company", SimilarityProps, undirected=True, owner="recorder", tags=("subject",)),
    _link("PERFORMED", "Agent", "Analysis", RoleProps, owner="from", tags=("subject",)),
    _link("STATED", "Agent", "Finding", by="Finding", via="agent", tags=("subject",)),
    _link("HAS_FINDING", "Analysis", "Finding", by="Finding", via="analysis_id", tags=("subject",)),
    _link("SETTLED_BY", "Finding", "Outcome", SettlementProps, derived=True, tags=("subject", Tag("agent", "agent"))),
    _link(
        "CITES",
        ("Finding", "Decision", "Debate"),
        ("Finding", "Pattern", "Debate", "Lesson", "Analysis"),
        CitationProps,
        identity="at",
        owner="from",
        tags=("subject", "lessons"),
    ),
    _link("IDENTIFIED_PATTERN", "Analysis", "Pattern", StrengthProps, owner="from", tags=("subject",)),
    _link("LED_TO", "Analysis", "Decision", by="Decision", via="analysis_id", tags=("subject",)),
    _link("MADE", "Agent", "Decision", by="Decision", via="agents_involved", tags=("subject",)),
    _link("HAS_OUTCOME", "Decision", "Outcome", by="Outcome", via="decision_id", tags=("subject",)),
    _link("OUTCOME_OF", "Outcome", "Subject", by="Outcome", via="subject_id", tags=("subject",)),
    _link("SIMILAR_TO", "Pattern", "Pattern", PatternSimilarityProps, undirected=True, tags=()),
    _link("SIMILAR_TO", "Debate", "Debate", RankedSimilarityProps, derived=True, tags=()),
    _link("SIMILAR_TO", "Analysis", "Analysis", RankedSimilarityProps, derived=True, tags=("subject",)),
    # Patterns
    _link("HAS_VALIDATION", "Pattern", "PatternValidation", by="PatternValidation", via="pattern_id", tags=()),
    _link("TESTED_IN", "Pattern", "ShadowAnalysis", by="ShadowAnalysis", via="pattern_id", tags=()),
    _link("BLOCKED_BY", "PatternValidation", "PatternValidation", tags=()),
    _link("APPROVED_AT_GATE6", "Pattern", "Human", GateDecisionProps, governed="gates", identity="at", tags=()),
    _link("REJECTED_AT_GATE6", "Pattern", "Human", GateDecisionProps, governed="gates", identity="at", tags=()),
    _link("SUPPORTED_BY_FILE", "Pattern", "DataFile", tags=()),
    _link("HAS_ARCHIVE", "Pattern", "ArchiveDirectory", TierProps, by="ArchiveDirectory", via="pattern_id", tags=()),
    _link("CONTAINS_FILE", "ArchiveDirectory", "DataFile", tags=()),
    # A file that moves between tiers is linked with itself.
    _link("MIGRATED_TO_TIER", "DataFile", "DataFile", TierMigrationProps, identity="date", loop=True, tags=()),
    # Trust and dispute
    _link(
        "HAS_CONTRADICTION",
        "Analysis",
        "DataContradiction",
        by="DataContradiction",
        via="analysis_id",
        tags=("subject",),
    ),
    _link(
        "RESOLVED_BY_SOURCE",
        "DataContradiction",
        "SourceCredibility",
        governed="credibility",
        replaced=True,
        tags=("subject",),
    ),
    _link("USES_VALUE", "Analysis", "DataPoint", owner="from", tags=("subject",)),
    _link("PROVIDED_DATA_FOR", "SourceCredibility", "Analysis", owner="to", tags=("subject",)),
    _link(
        "HAS_CREDIBILITY_IN",
        "Agent",
        "Domain",
        TrackRecordProps,
        by="AgentCredibility",
        via=("agent_id", "domain"),
        derived=True,
        tags=(),
    ),
    _link("HAS_CREDIBILITY", "Agent", "AgentCredibility", by="AgentCredibility", via="agent_id", tags=()),
    _link("IN_DOMAIN", "AgentCredibility", "Domain", by="AgentCredibility", via="domain", tags=()),
    _link("OVERRIDES", "HumanOverride", "Finding", by="HumanOverride", via="finding_id", tags=()),
    _link("OVERRIDES", "HumanOverride", "Analysis", by="HumanOverride", via="analysis_id", tags=()),
    _link("OVERRIDES", "HumanOverride", "Decision", by="HumanOverride", via="decision_id", tags=()),
    _link("ABOUT", "Debate", "Subject", by="Debate", via="subject_id", tags=("subject",)),
    _link("CHALLENGED_BY", "Debate", "Agent", by="Debate", via="challenger_agent", tags=("subject",)),
    _link("CHALLENGES", "Debate", "Agent", by="Debate", via="challenged_agent", tags=("subject",)),
    _link("DISPUTES", "Debate", "Finding", by="Debate", via="disputed_finding", tags=("subject",)),
    _link("RESOLVED_BY", "Debate", ("Agent", "Human"), replaced=True, tags=("subject",)),
    _link("WINNING_POSITION", "Debate", "Agent", replaced=True, tags=("subject",)),
    _link("HAS_RESOLUTION", "Debate", "DebateResolution", by="DebateResolution", via="debate_id", tags=("subject",)),
    _link("HAS_TURN", "Debate", "DebateTurn", by="DebateTurn", via="debate_id", tags=("subject",)),
    _link("IMPACTED_ANALYSIS", "DebateResolution", "Analysis", tags=("subject",)),
    _link("SUPPORTS_POSITION", "Pattern", "Debate", SideProps, tags=("subject",)),
    _link("OVERRODE", "Human", "DebateResolution", OverrideProps, governed="gates", identity="at", tags=()),
    _link("SUPERSEDES", ("Debate", "Decision", "Pattern", "Lesson"), _SAME, owner="from", tags=("subject", "lessons")),
    # Learning
    _link("HAS_POSTMORTEM", "Decision", "PostMortem", by="PostMortem", via="decision_id", tags=("subject",)),
    _link("HAS_INSIGHT", "PostMortem", "HumanInsight", by="HumanInsight", via="postmortem_id", tags=()),
    _link("GENERATED_LESSON", "PostMortem", "Lesson", by="Lesson", via="postmortem_id", tags=("lessons",)),
    _link(
        "HAS_SUCCESS_VALIDATION",
        "Decision",
        "SuccessValidation",
        by="SuccessValidation",
        via="decision_id",
        tags=("subject",),
    ),
    _link("AFFECTS_AGENT", "Lesson", "Agent", tags=("lessons",)),
    _link("AFFECTS_PATTERN", "Lesson", "Pattern", tags=("lessons",)),
    _link("ADDED_TO_CHECKLIST", "Lesson", "Agent", DatedProps, tags=("lessons",)),
    _link("RECEIVED_LESSON", "Agent", "Lesson", DatedProps, owner="from", tags=("lessons",)),
    _link("REVISED_BY", "Pattern", "Lesson", TaskProps, tags=("lessons",)),
)
"""Every type between every pair of kinds that it may join."""
