"""What agents there are: nine that come with the program, more by a file, and none that could never run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from imem.checkpoints.orchestration.definitions import Definitions, Location, agents_in
from imem.checkpoints.pauses.plan import descendants
from imem.journal.errors import BadInput, SettingsError
from imem.journal.settings import Settings

SHIPPED = {
    "screening": [
        ("screener_data_fetch", 5, "P"), ("quantitative_filter", 3, "P"), ("summary_generation", 10, "P"),
        ("priority_ranking", 2, "NM"),
    ],
    "business_research": [
        ("sec_filing_parsing", 20, "P"), ("business_model_analysis", 15, "N"), ("swot_analysis", 15, "N"),
        ("moat_evaluation", 10, "N"), ("kpi_tracking", 5, "P"),
    ],
    "financial_analyst": [
        ("10k_parsing", 15, "P"), ("ratio_calculation", 5, "P"), ("peer_comparison", 10, "R"),
        ("red_flag_detection", 20, "N"),
    ],
    "strategy_analyst": [
        ("historical_roi", 10, "P"), ("ma_review", 25, "N"), ("mgmt_compensation", 15, "N"),
        ("capital_allocation_scoring", 5, "NM"),
    ],
    "valuation": [
        ("dcf_assumptions", 10, "P"), ("cash_flow_projection", 15, "P"), ("wacc_calculation", 5, "P"),
        ("terminal_value", 5, "P"), ("sensitivity_analysis", 15, "N"),
    ],
}  # fmt: skip
LETTERS = {Location.POSTGRES: "P", Location.GRAPH: "N", Location.CACHE: "R", Location.MESSAGE: "M"}
PARENTS = {
    "screening": set(),
    "business_research": {"screening"},
    "financial_analyst": {"screening"},
    "strategy_analyst": {"screening"},
    "news_monitor": {"screening"},
    "valuation": {"business_research", "financial_analyst", "strategy_analyst"},
    "debate_facilitator": {"valuation", "news_monitor"},
    "qc_agent": {"debate_facilitator"},
    "report_writer": {"qc_agent"},
}


def file_with(folder: Path, *agents: Any) -> Path:
    path = folder / "agents.json"
    path.write_text(json.dumps({"agents": agents}), encoding="utf-8")
    return path


def agent(name: str = "macro", **others: Any) -> dict[str, Any]:
    return {"agent_type": name, "subtasks": [{"name": "rates"}], **others}


def test_nine_agents_come_with_the_program() -> None:
    definitions = Definitions.read()

    assert set(definitions.agents) == set(PARENTS)
    for name, subtasks in SHIPPED.items():
        found = definitions.of_type(name).subtasks
        assert [
            (one.name, one.minutes, "".join(LETTERS[store] for store in one.stores)) for one in found
        ] == subtasks, name
    assert all(len(definitions.of_type(name).subtasks) == 1 for name in set(PARENTS) - set(SHIPPED))


def behind(definitions: Definitions, name: str) -> frozenset[str]:
    return descendants({one: agent.after for one, agent in definitions.agents.items()}, {name})


def test_who_waits_for_whom() -> None:
    definitions = Definitions.read()

    assert {name: set(definitions.of_type(name).after) for name in definitions.agents} == PARENTS
    assert behind(definitions, "strategy_analyst") == {
        "valuation", "debate_facilitator", "qc_agent", "report_writer",
    }  # fmt: skip
    assert behind(definitions, "screening") == set(PARENTS) - {"screening"}
    assert behind(definitions, "report_writer") == frozenset()
    order = list(definitions.agents)
    assert all(order.index(parent) < order.index(name) for name, its in PARENTS.items() for parent in its)


def test_a_file_adds_agents_and_replaces_them(tmp_path: Path) -> None:
    path = file_with(
        tmp_path,
        agent("macro", after=["screening"], parallel=2),
        agent("valuation", version="2", after=["macro"]),
    )

    definitions = Definitions.read(Settings.read({"IMEM_AGENTS": str(path)}).agents)

    assert behind(definitions, "macro") == {"valuation", "debate_facilitator", "qc_agent", "report_writer"}
    assert (definitions.of_type("valuation").version, definitions.of_type("valuation").names) == ("2", ("rates",))
    assert definitions.of_type("screening").names[0] == "screener_data_fetch"


@pytest.mark.parametrize(
    ("agents", "said"),
    [
        ([{"agent_type": "macro"}], "agents.0.subtasks"),
        ([agent(subtasks=[])], "agents.0.subtasks"),
        ([agent(subtasks=[{"name": "a:b"}])], "agents.0.subtasks.0.name"),
        ([agent(subtasks=[{"name": "a", "minutes": -1}])], "agents.0.subtasks.0.minutes"),
        ([agent(subtasks=[{"name": "a", "stores": ["tape"]}])], "agents.0.subtasks.0.stores.0"),
        ([agent(subtasks=[{"name": "a", "minuets": 1}])], "agents.0.subtasks.0.minuets"),
        ([agent(subtasks=[{"name": "a"}, {"name": "a"}])], "macro.subtasks: a stands there twice"),
        ([agent(subtasks=[{"name": "a", "stores": ["graph", "graph"]}])], "macro.subtasks.a.stores: graph"),
        ([agent("bad:name")], "agents.0.agent_type"),
        ([agent("macro", after=["nobody"])], "macro.after: no agent is called 'nobody'"),
        ([agent("macro", after=["macro"])], "waits for"),
        ([agent("a", after=["b"]), agent("b", after=["c"]), agent("c", after=["a"])], "none of them could ever start"),
        ([agent("macro", parallel=0)], "agents.0.parallel"),
        ([agent("macro", version="")], "agents.0.version"),
    ],
)
def test_a_wrong_file_is_refused_by_field(tmp_path: Path, agents: list[Any], said: str) -> None:
    with pytest.raises(SettingsError, match="IMEM_AGENTS") as refused:
        Definitions.read(file_with(tmp_path, *agents))

    assert said in str(refused.value)


@pytest.mark.parametrize("text", ["{", '{"agents": [], "agents": []}', "[]", '{"agent": []}', ""])
def test_what_is_no_such_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "agents.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SettingsError, match="IMEM_AGENTS"):
        Definitions.read(path)
    with pytest.raises(SettingsError, match="cannot be read"):
        Definitions.read(tmp_path / "none.json")


def test_an_agent_that_is_not_defined_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="Did you mean valuation") as refused:
        Definitions.read().of_type("valuations")

    assert refused.value.field == "agent_type"
    with pytest.raises(BadInput) as unknown:
        Definitions.read().of_type("screening").subtask("swot_analysis")
    assert unknown.value.field == "subtask"


def test_agents_are_read_from_text_alone() -> None:
    (found,) = agents_in(json.dumps({"agents": [agent(subtasks=[{"name": "a", "reentrant": True}])]}))

    assert found.subtasks[0].reentrant
    assert found.version == "1"
