"""Who is denied reads what it may not do and who may: out of the table itself."""

from __future__ import annotations

import itertools

import pytest

from imem.journal.actors import AUTHORIZATION, Action, Actor, Resource, ResourceType, Scope, allowed, denial
from imem.journal.settings import Role

CASES = [
    (role, resource, action, owner, may_import)
    for role, resource, action in itertools.product(Role, ResourceType, Action)
    for owner in ("me", "other")
    for may_import in (False, True)
    if not allowed(Actor("me", role, may_import), Resource(resource, "x", owner), action)
]


def test_a_denial_names_every_role_that_may_and_no_other() -> None:
    """For each cell of the table that denies: what it may not, and the roles of the cells that allow."""
    assert len(CASES) > 1000
    for role, resource, action, owner, may_import in CASES:
        error = denial(Actor("me", role, may_import), Resource(resource, "x", owner), action)

        assert error.message.startswith(f"me ({role}) may not {action.replace('_', ' ')} {resource.replace('_', ' ')}")
        assert ("of other" in error.message) is (owner == "other")
        may = {one for one in Role if (one, resource, action) in AUTHORIZATION}
        named = {one for one in Role if one in error.mend.replace(",", "").split()}
        if action is Action.IMPORT and AUTHORIZATION.get((role, resource, action)) is Scope.ALL:
            assert "IMEM_MAY_IMPORT" in error.mend
        elif not may:
            assert error.mend == "No role may."
        else:
            assert named == may, error


WORKFLOW, JOURNAL, SYNC = (
    Resource(one, "x") for one in (ResourceType.WORKFLOW, ResourceType.JOURNAL, ResourceType.SYNC)
)
OF_BOB = Resource(ResourceType.JOURNAL, "f", "bob")

READ = {
    (Actor("fay", Role.DEBATE_FACILITATOR), WORKFLOW, Action.PAUSE): (
        "fay (debate_facilitator) may not pause workflow. It takes the role human_admin (IMEM_ROLE)."
    ),
    (Actor("ann", Role.AGENT), OF_BOB, Action.APPEND): (
        "ann (agent) may not append journal of bob. It takes the role knowledge_base_agent or learning_engine or "
        "human_admin, or for one's own the role agent (IMEM_ROLE)."
    ),
    (Actor("me", Role.HUMAN_ADMIN), JOURNAL, Action.IMPORT): (
        "me (human_admin) may not import journal. "
        "It takes the import right beside the role human_admin; see IMEM_MAY_IMPORT."
    ),
    (Actor("me", Role.HUMAN_ADMIN), SYNC, Action.APPROVE): "me (human_admin) may not approve sync. No role may.",
}


@pytest.mark.parametrize("asked", READ, ids=lambda asked: f"{asked[0].role}-{asked[2]}")
def test_what_is_read(asked: tuple[Actor, Resource, Action]) -> None:
    """Plain sentences."""
    assert str(denial(*asked)) == READ[asked]
