"""What deploys the gateway is valid, as the tools that will read it say."""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from backends.upstream.options import UpstreamOptions
from deploy.pin_images import digest_of, images, pinned
from gateway.config.config import load_config
from tests.threaded import serving

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
OVERLAYS = ("one-machine", "three-gateways", "dask")
UNITS = ("lanewise.service", "lanewise-engine@.service")
MAX_EXPOSURE = 3.0  # of systemd-analyze, from 0 to 10
PYTHON_BIN = Path(sys.executable).parent


def tool(name: str) -> str:
    """Returns a program of the system; the test is skipped, and says so, where it is not there."""
    found = shutil.which(name, path=os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin")))
    if found is None:
        pytest.skip(f"no {name} on this machine")
    return found


def asked(*command: str | Path, cwd: Path | None = None) -> str:
    """Returns what a program says; it must be content."""
    run = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=False, cwd=cwd
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout + run.stderr


def rendered(overlay: str) -> str:
    return asked(tool("kubectl"), "kustomize", DEPLOY / "kustomize" / overlay)


def test_the_overlays_are_what_kubernetes_takes(tmp_path: Path) -> None:
    paths = [tmp_path / f"{overlay}.yaml" for overlay in OVERLAYS]
    for path in paths:
        path.write_text(rendered(path.stem))
    told = asked(PYTHON_BIN / "kubernetes-validate", "--strict", *paths)
    for path in paths:
        assert f"{path} passed for resource deployment/" in told
    unknown = set(re.findall(r"find schema for kind (\w+)", told))
    assert unknown <= {"ScaledObject"}, "KEDA's own, which has no schema there"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_an_overlay_says_fits_together(overlay: str) -> None:
    made = [each for each in yaml.safe_load_all(rendered(overlay)) if each]
    named = {(each["kind"], each["metadata"]["name"]): each for each in made}
    pods = [
        each["spec"]["template"] for each in made if each["kind"] in ("Deployment", "StatefulSet")
    ]
    labels = [pod["metadata"]["labels"] for pod in pods]
    for each in made:
        if each["kind"] == "Service":  # it finds somebody
            wanted = each["spec"]["selector"].items()
            assert any(wanted <= own.items() for own in labels), each["metadata"]["name"]
        if each["kind"] == "ScaledObject":
            target = each["spec"]["scaleTargetRef"]["name"]
            # A number of replicas would end the pods beyond it with each apply.
            assert "replicas" not in named["Deployment", target]["spec"]
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert ":" in container["image"], "an exact version"
        assert not container["image"].endswith(":latest")


@pytest.mark.parametrize("overlay", ["one-machine", "three-gateways"])
def test_whether_a_gateway_lives_does_not_depend_on_redis(overlay: str) -> None:
    made = [each for each in yaml.safe_load_all(rendered(overlay)) if each]
    (gateway,) = (
        e for e in made if (e["kind"], e["metadata"]["name"]) == ("Deployment", "gateway")
    )
    pod = gateway["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    config = load_config((DEPLOY / "kustomize" / overlay / "lanewise.toml").read_bytes(), {})
    assert pod["terminationGracePeriodSeconds"] > config.server.drain_timeout_s + 15
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert f"0.0.0.0:{ports['admin']}" in container["args"]


def found_by(config: dict[str, Any], discovered: dict[str, str]) -> dict[str, str] | None:
    """Returns the labels that a pod's port gets from Prometheus's job; None: it is dropped.

    Debian's Prometheus is built without Kubernetes, so the rules that the file has are done here.
    """
    labels = discovered | {"job": config["job_name"]}
    for rule in config["relabel_configs"]:
        value = ";".join(labels.get(name, "") for name in rule["source_labels"])
        if rule.get("action", "replace") == "keep":
            if re.fullmatch(rule["regex"], value) is None:
                return None
        else:
            assert set(rule) == {"source_labels", "target_label"}
            labels[rule["target_label"]] = value
    return {name: value for name, value in labels.items() if not name.startswith("__")}


@pytest.mark.parametrize("overlay", ["one-machine", "three-gateways"])
def test_prometheus_finds_each_gateway_once_as_alerts_and_triggers_ask(overlay: str) -> None:
    (job,) = yaml.safe_load((DEPLOY / "prometheus.kubernetes.yml").read_text())["scrape_configs"]
    (places,) = job["kubernetes_sd_configs"]
    made = [each for each in yaml.safe_load_all(rendered(overlay)) if each]
    found = []
    for each in made:
        if each["kind"] not in ("Deployment", "StatefulSet"):
            continue
        assert each["metadata"]["namespace"] in places["namespaces"]["names"]
        pod = each["spec"]["template"]
        assert "prometheus.io/scrape" not in pod["metadata"].get("annotations", {}), "twice"
        found += [
            found_by(job, discovered_pod(each, port["name"], phase))
            for port in pod["spec"]["containers"][0]["ports"]
            for phase in ("Pending", "Running", "Succeeded", "Failed")
        ]
    labels = {"job": "lanewise", "namespace": "lanewise", "instance": "gateway-1"}
    assert [each for each in found if each is not None] == [labels]
    for each in made:
        for trigger in each["spec"].get("triggers", ()) if each["kind"] == "ScaledObject" else ():
            asked_for = re.findall(r'\{(\w+)="(\w+)"\}', trigger["metadata"]["query"])
            assert asked_for == [("namespace", labels["namespace"])]


def discovered_pod(owner: dict[str, Any], port: str, phase: str) -> dict[str, str]:
    """Returns what Prometheus knows of a port of a pod (kubernetes_sd_config, role pod)."""
    found = {
        "namespace": owner["metadata"]["namespace"],
        "pod_name": f"{owner['metadata']['name']}-1",
        "pod_phase": phase,
        "pod_container_port_name": port,
    }
    for name, value in owner["spec"]["template"]["metadata"]["labels"].items():
        found[f"pod_label_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}"] = value
    return {f"__meta_kubernetes_{name}": value for name, value in found.items()}


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_what_systemd_takes_and_can_do_little(unit: str, tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    text = (DEPLOY / "systemd" / unit).read_text()
    assert "Type=notify" in text
    path = tmp_path / unit.replace("@", "@wafer")
    path.write_text(text.replace("/opt/lanewise/bin/lanewise", "/bin/true"))  # not installed there
    asked(analyze, "verify", path)
    told = asked(analyze, "security", "--offline=true", "--no-pager", path)
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", told)
    assert exposure is not None, told
    assert float(exposure[1]) < MAX_EXPOSURE, told


def test_the_proxies_configurations_are_taken(tmp_path: Path) -> None:
    asked(tool("haproxy"), "-c", "-f", DEPLOY / "proxies" / "haproxy.cfg")


def test_nginx_takes_its_configuration(tmp_path: Path) -> None:
    own = f"pid {tmp_path / 'pid'}; error_log stderr;"
    asked(tool("nginx"), "-t", "-c", DEPLOY / "proxies" / "nginx.conf", "-g", own)


def test_envoy_takes_its_configuration() -> None:
    envoy = PYTHON_BIN / "envoy"
    if not envoy.exists():
        pytest.skip("no wheel of Envoy for this machine")
    asked(envoy, "--mode", "validate", "-c", DEPLOY / "proxies" / "envoy.yaml")


@pytest.mark.parametrize(
    ("name", "silence"),
    [
        ("haproxy.cfg", r"timeout server (\d+)s"),
        ("nginx.conf", r"proxy_read_timeout (\d+)s"),
        ("envoy.yaml", r"stream_idle_timeout: (\d+)s"),
    ],
)
def test_a_proxy_waits_as_long_as_an_answer_may_take(name: str, silence: str) -> None:
    """One that is not streamed sends nothing until it is whole."""
    (wait_s,) = re.findall(silence, (DEPLOY / "proxies" / name).read_text())
    options = UpstreamOptions(
        base_url="http://any/v1", upstream_model="any", model="any", group="deep"
    )
    assert int(wait_s) > options.total_timeout_s


def test_the_compose_file_is_by_its_schema() -> None:
    schema = ("--builtin-schema", "vendor.compose-spec")
    asked(PYTHON_BIN / "check-jsonschema", *schema, DEPLOY / "compose.yaml")
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for name in ("gateway", "redis"):
        assert services[name]["read_only"], name
        assert services[name]["cap_drop"] == ["ALL"], name
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert "\nUSER 10001:10001\n" in dockerfile
    assert "--require-hashes" in dockerfile


def test_the_image_is_made_of_what_is_not_ignored() -> None:
    taken = {
        line.removeprefix("!")
        for line in (DEPLOY.parent / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (DEPLOY / "Dockerfile").read_text(), re.M)
    assert {name for line in copied for name in line.split()} == taken
    assert all((DEPLOY.parent / name).exists() for name in taken)


def test_the_sites_of_an_edge_share_what_there_is() -> None:
    edge, home = (
        load_config((DEPLOY / "edge" / f"{site}.toml").read_bytes(), {})
        for site in ("edge", "home")
    )
    assert edge.server.limits_percent + home.server.limits_percent == 100
    assert edge.tenants == home.tenants
    assert [each.options for each in edge.backends] == [each.options for each in home.backends]


def test_secrets_are_made_once_and_are_nobody_elses(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    asked("sh", DEPLOY / "secrets.sh", folder)
    made = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(made) == {"admin-key", "key-peppers", "redis-password", "redis-url"}
    assert re.fullmatch(r"[0-9a-f]{64}", made["admin-key"])
    assert made["redis-url"] == f"redis://:{made['redis-password']}@redis:6379"
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    asked("sh", DEPLOY / "secrets.sh", folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == made
    environ = {
        f"LANEWISE_{name.upper().replace('-', '_')}_FILE": str(folder / name)
        for name in ("admin-key", "key-peppers", "redis-url")
    }
    config = load_config(b"", environ)
    assert config.redis.url == made["redis-url"]
    assert config.auth.peppers == made["key-peppers"]


class Registry(BaseHTTPRequestHandler):
    """Knows one image."""

    def do_GET(self) -> None:
        assert "scope=repository:library/redis:pull" in self.path
        self._answer({}, b'{"token": "one"}')

    def do_HEAD(self) -> None:
        assert self.path == "/v2/library/redis/manifests/7.4.6-alpine"
        assert self.headers["authorization"] == "Bearer one"
        self._answer({"docker-content-digest": "sha256:" + "a" * 64}, b"")

    def _answer(self, headers: dict[str, str], body: bytes) -> None:
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    with serving(HTTPServer(("127.0.0.1", 0), Registry)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def test_images_are_exact_versions_and_can_be_pinned(registry: str) -> None:
    compose = (DEPLOY / "compose.yaml").read_text()
    found = images(compose) | images((DEPLOY / "Dockerfile").read_text())
    assert {name for name, _ in found} >= {"redis", "python", "grafana/grafana", "prom/prometheus"}
    assert all(re.search(r"\d+\.\d+\.\d+", tag) for _, tag in found), found
    digest = digest_of("redis", "7.4.6-alpine", registry, f"{registry}/token")
    with_digest = pinned(compose, {("redis", "7.4.6-alpine"): digest})
    assert f"image: redis:7.4.6-alpine@{digest}\n" in with_digest
    assert images(with_digest) == images(compose)
    assert pinned(with_digest, {("redis", "7.4.6-alpine"): digest}) == with_digest
    assert yaml.safe_load(with_digest)["services"]["grafana"]["image"] == "grafana/grafana:11.1.0"
