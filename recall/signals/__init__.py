"""The earlier conclusions of agents about a subject, which they get before they analyse it again."""

from imem.recall.signals.evolution import EvolutionEvent, EvolutionType, RecordedSignal, evolution, newest_changes
from imem.recall.signals.formatting import FormattedMemory, format_memory, memory_prompt
from imem.recall.signals.model import AgentMemory, AgentSignal, ErrorKind, SignalDirection, SubjectKind
from imem.recall.signals.nodes import SignalState, memory_node, merge_by_agent, remembering

__all__ = [
    "AgentMemory", "AgentSignal", "ErrorKind", "EvolutionEvent", "EvolutionType", "FormattedMemory", "RecordedSignal",
    "SignalDirection", "SignalState", "SubjectKind", "evolution", "format_memory", "memory_node", "memory_prompt",
    "merge_by_agent", "newest_changes", "remembering",
]  # fmt: skip
