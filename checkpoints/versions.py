"""
Migrations of checkpoints that an earlier version of an agent's program saved.

A step turns a checkpoint of one version into one of the next: its lists of subtasks, its configuration, its working
memory. A checkpoint without a chain of steps to the present version, or of a newer one, is not resumed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from imem.cache.working.document import contents_of, digest
from imem.checkpoints.model import Checkpoint
from imem.checkpoints.orchestration.definitions import AgentDefinition, Definitions
from imem.journal.arguments import checks_arguments
from imem.journal.errors import BadInput, NotResumable

CheckpointMigration = Callable[[Checkpoint], Checkpoint]
"""Makes the lists, the configuration and the memory of the next version; must not change anything else."""

_CHANGEABLE: Final = (
    "completed_subtasks", "pending_subtasks", "working_memory", "interim_results", "agent_config",
)  # fmt: skip


@checks_arguments
class CheckpointMigrations:
    """The registered steps, by agent and version; each version has one successor at most."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, str], tuple[str, CheckpointMigration]] = {}

    def register(self, agent_type: str, from_version: str, to_version: str, step: CheckpointMigration) -> None:
        """
        Add the step from one version to the next.

        Raises:
            BadInput: an argument is of the wrong type, the version has a step already, or the steps would form a cycle;
                names the argument.
        """
        if (agent_type, from_version) in self._steps:
            raise BadInput("from_version", f"{agent_type} {from_version} has a step already.")
        if from_version == to_version or from_version in self._reachable_versions(agent_type, to_version):
            raise BadInput("to_version", f"{agent_type} {from_version} → {to_version} would go round in a circle.")
        self._steps[agent_type, from_version] = (to_version, step)

    def step(
        self, agent_type: str, from_version: str, to_version: str
    ) -> Callable[[CheckpointMigration], CheckpointMigration]:
        """Register the decorated function as a step; see :meth:`register`."""

        def register(step: CheckpointMigration) -> CheckpointMigration:
            self.register(agent_type, from_version, to_version, step)
            return step

        return register

    def migrate(self, checkpoint: Checkpoint, to_version: str) -> Checkpoint:
        """
        Return *checkpoint* migrated to *to_version*; the stored row is not changed.

        Raises:
            NotResumable: a step is missing, or the checkpoint is of a newer version; nothing was changed.
        """
        migrated = checkpoint
        while migrated.agent_version != to_version:
            found = self._steps.get((migrated.agent_type, migrated.agent_version))
            if found is None:
                raise self._no_migration_error(checkpoint, migrated.agent_version, to_version)
            version, step = found
            migrated = _after(migrated, step(migrated), version)
        return migrated

    def _reachable_versions(self, agent_type: str, version: str) -> list[str]:
        """Return the versions that steps lead to from *version*, in order."""
        reached: list[str] = []
        while (found := self._steps.get((agent_type, version))) is not None:
            version = found[0]
            reached.append(version)
        return reached

    def _no_migration_error(self, checkpoint: Checkpoint, stuck_at: str, to_version: str) -> NotResumable:
        whose = f"The checkpoint {checkpoint.id} of {checkpoint.agent_type}"
        if checkpoint.agent_version in self._reachable_versions(checkpoint.agent_type, to_version):
            return NotResumable(
                f"{whose} is of version {checkpoint.agent_version}, newer than this program's {to_version}.",
                mend="Run the newer program.",
            )
        return NotResumable(
            f"{whose} is of version {checkpoint.agent_version}; no step leads from {stuck_at} to {to_version}.",
            mend="Register the step that is missing, or begin the agent again.",
        )


MIGRATIONS: Final = CheckpointMigrations()
"""The steps of this process: programs register theirs on import."""


def resumable(
    checkpoint: Checkpoint, definitions: Definitions, migrations: CheckpointMigrations = MIGRATIONS
) -> Checkpoint:
    """
    Return *checkpoint* migrated to the present version of its agent's program.

    A migrated one is the ``base`` of the next save.

    Raises:
        NotResumable: its version cannot be migrated, or its subtasks are not the agent's; nothing was changed.
    """
    definition = definitions.of_type(checkpoint.agent_type)
    migrated = migrations.migrate(checkpoint, definition.version)
    _refuse_other_subtasks(migrated, definition)
    return migrated


def _refuse_other_subtasks(checkpoint: Checkpoint, definition: AgentDefinition) -> None:
    """Refuse lists that are not the definition, each subtask once, with the pending ones in its order."""
    known = sorted([*checkpoint.completed_subtasks, *checkpoint.pending_subtasks])
    completed = set(checkpoint.completed_subtasks)
    in_order = tuple(name for name in definition.names if name not in completed)
    if known != sorted(definition.names) or checkpoint.pending_subtasks != in_order:
        raise NotResumable(
            f"The subtasks of {checkpoint.id} are not those of {definition.agent_type} {definition.version}.",
            mend="Give the definition another version, and register the step that leads to it.",
        )


def _after(before: Checkpoint, made: Checkpoint, version: str) -> Checkpoint:
    """Return *before* with the changes that a step may make, and with a matching digest."""
    changes = {name: getattr(made, name) for name in _CHANGEABLE}
    if made.working_memory is not before.working_memory and before.working_memory_hash is not None:
        changes["working_memory_hash"] = digest(contents_of(made.working_memory))
    return replace(before, **changes, agent_version=version)
