"""The page for operators: its table of metrics, and the settings and names of its examples."""

from __future__ import annotations

import re
import tomllib

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.outside import ROOT
from thinklsp.core.server_context import ModelLabels, TurnLabels
from thinklsp.core.usage import Usage
from thinklsp.settings.user_file import UserFile
from thinklsp.telemetry.metrics import MetricsObserver

EXAMPLES = ROOT / "docs" / "teams"
PAGE = (ROOT / "docs" / "teams.md").read_text("utf-8")
COMPOSE = yaml.safe_load((EXAMPLES / "compose.yaml").read_text("utf-8"))
KUBERNETES = {each["kind"]: each for each in yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text("utf-8"))}
CONFIG = (EXAMPLES / "config.toml").read_text("utf-8")
POD = KUBERNETES["Deployment"]["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]


def test_the_table_has_every_metric_with_its_labels() -> None:
    metrics = MetricsObserver()
    metrics.count_rejected_login("token")
    metrics.report_store_call("get", 0.1, "ok")
    turn = metrics.begin_turn(TurnLabels("t", "s", "chat"))
    call = turn.begin_call(ModelLabels("anthropic", "other"))
    call.count_retry()
    call.end("ok", Usage(1, 2, 3, 4, 5), "end_turn")
    turn.begin_tool("read_file").end("ok")
    turn.end("end_turn", Usage())
    rows = re.findall(r"^\| `(thinklsp_\w+)` \|([^|]*)\|", PAGE, re.MULTILINE)
    documented = {name: {*re.findall(r"`(\w+)`", labels)} for name, labels in rows}
    found = {}
    for family in text_string_to_metric_families(metrics.format_text().decode()):
        if family.name.startswith("thinklsp_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    assert documented == found


def test_the_settings_of_the_examples_are_valid() -> None:
    for text in (CONFIG, KUBERNETES["ConfigMap"]["data"]["config.toml"]):
        settings = UserFile.model_validate(tomllib.loads(text))
        # The time until the process is killed is longer than that of draining.
        given = COMPOSE["services"]["server"]["stop_grace_period"]
        for grace in (POD["terminationGracePeriodSeconds"], int(given.removesuffix("s"))):
            assert grace >= settings.serve.drain_seconds + 15
    [shown] = re.findall(r"^```toml\n(# [^`]*?^max_clients.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert UserFile.model_validate(tomllib.loads(shown)).serve == UserFile().serve


def test_names_of_the_examples_lead_somewhere() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"database", "migration", "server"}
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        named = [mount.partition(":")[0] for mount in service.get("volumes", [])]
        assert {name for name in named if name[0] not in "./"} <= set(COMPOSE["volumes"])
        for name in named:
            assert not name.startswith("./") or (EXAMPLES / name).is_file()
    assert set(services["server"]["secrets"]) == set(COMPOSE["secrets"])
    assert (EXAMPLES / services["server"]["build"]["context"] / services["server"]["build"]["dockerfile"]).is_file()
    volumes = {volume["name"] for volume in POD["volumes"]}
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == volumes
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    assert {port["targetPort"] for port in KUBERNETES["Service"]["spec"]["ports"]} <= set(ports)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert CONTAINER[probe]["httpGet"]["port"] in ports
    labels = KUBERNETES["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        KUBERNETES["Deployment"]["spec"]["selector"]["matchLabels"],
        KUBERNETES["Service"]["spec"]["selector"],
        KUBERNETES["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        KUBERNETES["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
