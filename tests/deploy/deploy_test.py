#!/usr/bin/env python3
"""The files of deploy/, checked field by field, and nginx really started before two workers.

    tests/deploy/deploy_test.py [--carat build/carat]

What a machine lacks (nginx, openssl, PyYAML, systemd-analyze, a model) is skipped by name.
"""

import argparse
import asyncio
import concurrent.futures
import contextlib
import http.client
import importlib.util
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
sys.path.insert(0, str(ROOT / "bench"))
from load import Spawned, free_port  # noqa: E402
from mock_server import Mock, RunningMock  # noqa: E402


class Skip(Exception):
    """Why a test cannot run here."""


CARAT: Path | None = None
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def size(text: str, binary: bool = False) -> int:
    """carat's sizes; `binary`: systemd's, whose K, M, G are powers of 1024."""
    number, unit = re.fullmatch(r"(\d+)([KMG]?i?)B?", text).groups()
    return int(number) * UNITS[unit + "i" if binary and unit else unit]


def need(program: str) -> str:
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin:/usr/local/sbin")
    if not path:
        raise Skip(f"no {program}")
    return path


def serve_help() -> str:
    """What `carat serve` says of its options."""
    if CARAT is None or not CARAT.exists():
        raise Skip("no build/carat")
    done = subprocess.run([CARAT, "serve", "--help"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Skip("this carat has no command serve")
    return done.stdout


def model(*names: str) -> str:
    serve_help()
    folder = Path(os.environ.get("CARAT_MODELS", Path.home() / ".cache/carat/models"))
    for name in names or ("smollm2-135m-instruct", "gemma3-270m"):
        if (folder / f"{name}.gguf").exists():
            return name
    raise Skip(f"no such model in {folder}")


# --- systemd --------------------------------------------------------------------------------


def unit(name: str) -> dict[str, dict[str, list[str]]]:
    sections: dict[str, dict[str, list[str]]] = {}
    for line in (DEPLOY / "systemd" / name).read_text().splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            section.setdefault(key, []).append(value)
    return sections


def environment(service: dict) -> dict[str, str]:
    return dict(value.split("=", 1) for value in service["Environment"])


def test_unit_fields() -> None:
    service = unit("carat@.service")["Service"]
    assert service["Type"] == ["notify"] and service["NotifyAccess"] == ["main"]
    budget = size(environment(service)["CARAT_MEMORY"])
    limit = size(service["MemoryMax"][0], binary=True)
    assert 1.05 * budget <= limit <= 1.25 * budget, (budget, limit)
    assert service["MemorySwapMax"] == ["0"] and service["Restart"] == ["on-failure"]
    command = service["ExecStart"][0].split()
    assert environment(service)["MODEL"]
    assert command[1:] == ["serve", "${MODEL}", "--config", "/etc/carat/carat.toml", "--port", "%i", "--api-key-file", "%d/api-keys"]
    assert service["LoadCredential"] == ["api-keys:/etc/carat/api-keys"]
    assert service["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert int(service["TimeoutStopSec"][0]) > settings()["drain-seconds"]
    for field in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "ProtectKernelTunables",
                  "ProtectControlGroups", "MemoryDenyWriteExecute", "RestrictNamespaces", "DynamicUser"):
        assert service[field] == ["yes"], field
    assert service["ProtectSystem"] == ["strict"] and service["CapabilityBoundingSet"] == [""]
    assert service["IPAddressDeny"] == ["any"] and service["IPAddressAllow"] == ["localhost"]


def test_unit_is_valid_and_closed() -> None:
    analyze = need("systemd-analyze")
    with tempfile.TemporaryDirectory() as folder:
        text = (DEPLOY / "systemd/carat@.service").read_text().replace("/usr/local/bin/carat", "/bin/true")
        file = Path(folder) / "carat@8081.service"
        file.write_text(text)
        done = subprocess.run([analyze, "verify", "--man=no", file], capture_output=True, text=True)
        complaints = [line for line in done.stderr.splitlines() if "carat" in line]
        assert not complaints, done.stderr
        done = subprocess.run([analyze, "security", "--offline=true", "--threshold=20", file], capture_output=True,
                              text=True)
        if "Unknown" in done.stderr or "unrecognized" in done.stderr:
            raise Skip("systemd-analyze cannot judge a file")
        assert done.returncode == 0, done.stdout[-500:]  # exposure 2.0 of 10 at most


# --- settings -------------------------------------------------------------------------------


def settings() -> dict:
    return tomllib.loads((DEPLOY / "carat.toml").read_text())["serve"]


def test_settings_are_options() -> None:
    options = set(re.findall(r"--([a-z][a-z-]+)", serve_help()))
    assert options, "no options in the help"
    unknown = set(settings()) - options
    assert not unknown, f"carat serve has no {sorted(unknown)}"


def test_settings_start_a_server() -> None:
    service = unit("carat@.service")["Service"]
    name, budget = model(environment(service)["MODEL"]), environment(service)["CARAT_MEMORY"]
    command = f"{CARAT} serve {name} --config {DEPLOY}/carat.toml --memory {budget} --port {{port}}"
    with Spawned(command) as spawned:
        assert ask(spawned.port, "GET", "/health")[0] == 200
        time.sleep(0.3)  # the server sees that its client is gone: stopped while idle, it ends as well
        spawned.process.terminate()
        assert spawned.process.wait(20) == 0


# --- Kubernetes -----------------------------------------------------------------------------


def documents(file: str) -> dict[tuple[str, str], dict]:
    try:
        import yaml
    except ImportError:
        raise Skip("no PyYAML") from None
    with (DEPLOY / "kubernetes" / file).open() as text:
        return {(d["kind"], d["metadata"]["name"]): d for d in yaml.safe_load_all(text)}


def test_kubernetes_deployment() -> None:
    every = documents("carat.yaml")
    assert {kind for kind, _ in every} == {"ConfigMap", "Deployment", "Service", "HorizontalPodAutoscaler",
                                           "PodDisruptionBudget", "Ingress"}
    spec = every["Deployment", "carat"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels == {"app": "carat", "track": "stable"}
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    values = {e["name"]: e["value"] for e in container["env"]}
    resources = container["resources"]
    assert resources["requests"] == resources["limits"]
    budget, limit = size(values["CARAT_MEMORY"]), size(resources["limits"]["memory"])
    assert 1.05 * budget <= limit <= 1.25 * budget, (budget, limit)
    assert float(resources["limits"]["cpu"]).is_integer()
    (port,) = container["ports"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": port["name"]}, probe
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] >= 60
    config = tomllib.loads(every["ConfigMap", "carat"]["data"]["carat.toml"])["serve"]
    assert config["port"] == port["containerPort"] and config["host"] == "0.0.0.0"
    stop = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > stop + config["drain-seconds"]
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                            "capabilities": {"drop": ["ALL"]}}
    mounts = {m["name"]: m for m in container["volumeMounts"]}
    assert set(mounts) == {v["name"] for v in pod["volumes"]}
    assert mounts["models"]["mountPath"] == values["CARAT_MODELS"] and mounts["models"]["readOnly"]
    assert mounts["cache"]["mountPath"] == values["XDG_CACHE_HOME"]
    assert any(arg.startswith(mounts["keys"]["mountPath"] + "/") for arg in container["args"])
    assert spec["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])


def test_kubernetes_service_and_scaling() -> None:
    every = documents("carat.yaml")
    labels = every["Deployment", "carat"]["spec"]["template"]["metadata"]["labels"]
    service = every["Service", "carat"]["spec"]
    assert service["selector"] == labels and service["ports"][0]["targetPort"] == "http"
    assert every["PodDisruptionBudget", "carat"]["spec"]["selector"]["matchLabels"] == labels
    scaler = every["HorizontalPodAutoscaler", "carat"]["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "carat"}
    assert 2 <= scaler["minReplicas"] < scaler["maxReplicas"]
    assert scaler["metrics"][0]["pods"]["metric"]["name"] in metric_names()
    ingress = every["Ingress", "carat"]
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
    assert path["backend"]["service"] == {"name": "carat", "port": {"name": "http"}}
    assert ingress["spec"]["tls"][0]["hosts"] == [ingress["spec"]["rules"][0]["host"]]


def test_the_canary_differs_in_nothing_else() -> None:
    stable, canary = documents("carat.yaml"), documents("canary.yaml")
    assert set(canary) == {(kind, "carat-canary") for kind in ("Deployment", "Service", "Ingress")}
    for kind, _ in canary:
        text = json.dumps(canary[kind, "carat-canary"]).replace("carat-canary", "carat").replace("canary", "stable")
        one, other = json.loads(text), json.loads(json.dumps(stable[kind, "carat"]))
        if kind == "Deployment":
            assert one["spec"].pop("replicas") == 1
            image = one["spec"]["template"]["spec"]["containers"][0].pop("image")
            assert image != other["spec"]["template"]["spec"]["containers"][0].pop("image")
        if kind == "Ingress":
            notes = canary[kind, "carat-canary"]["metadata"]["annotations"]
            assert notes["nginx.ingress.kubernetes.io/canary"] == "true"
            assert 0 < int(notes["nginx.ingress.kubernetes.io/canary-weight"]) < 100
            one["metadata"]["annotations"] = {k: v for k, v in notes.items() if "/canary" not in k}
            one["metadata"]["labels"].pop("track")
        assert one == other, kind


# --- Grafana --------------------------------------------------------------------------------


def metric_names() -> set[str]:
    """Names as src/server/metrics.cpp registers them, with what a histogram adds."""
    source = ROOT / "src/server/metrics.cpp"
    if not source.exists():
        raise Skip("no src/server/metrics.cpp")
    names = set()
    for kind, name in re.findall(r'\b(counters?|gauges?|histograms?)\("(carat_\w+)"', source.read_text()):
        names |= {name + end for end in ("_bucket", "_sum", "_count")} if kind.startswith("histogram") else {name}
    assert len(names) > 10, names
    return names


def board_metrics() -> set[str]:
    return set(re.findall(r"\bcarat_\w+", (DEPLOY / "grafana/carat.json").read_text()))


def test_the_board_asks_for_metrics_that_exist() -> None:
    unknown = board_metrics() - metric_names()
    assert not unknown, f"no such metrics: {sorted(unknown)}"


def test_the_board_is_whole() -> None:
    board = json.loads((DEPLOY / "grafana/carat.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids) >= 15
    cells = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24 and panel["targets"] and panel["title"]
        taken = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & cells, panel["title"]
        cells |= taken
        for target in panel["targets"]:
            assert target["expr"].count("(") == target["expr"].count(")") and "$instance" in target["expr"]


def test_a_live_server_has_the_boards_metrics() -> None:
    with Spawned(f"{CARAT} serve {model()} --memory 500M --port {{port}}") as spawned:
        body = {"prompt": "Once", "max_tokens": 4}
        assert ask(spawned.port, "POST", "/v1/completions", body)[0] == 200
        text = ask(spawned.port, "GET", "/metrics")[1].decode()
    names = set(re.findall(r"^(carat_\w+)", text, re.M))
    assert board_metrics() <= names, sorted(board_metrics() - names)


# --- nginx ----------------------------------------------------------------------------------


def ask(port: int, method: str, path: str, body=None, tls: bool = False, headers=None, timeout: float = 30):
    if tls:
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=trust)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body)
        connection.request(method, path, raw, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


class Nginx:
    """nginx with deploy/nginx/carat.conf: other ports, a certificate made for it, limits scaled by `limits`."""

    def __init__(self, workers: list[int], limits: dict[str, str] | None = None):
        self.nginx, openssl = need("nginx"), need("openssl")
        self.folder = tempfile.TemporaryDirectory()
        at = Path(self.folder.name)
        self.http, self.https = free_port(), free_port()
        subprocess.run([openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-subj", "/CN=carat.example.com", "-keyout", at / "privkey.pem", "-out",
                        at / "fullchain.pem"], check=True, capture_output=True)
        text = (DEPLOY / "nginx/carat.conf").read_text()
        swaps = {"/etc/ssl/carat/": f"{at}/", "listen 80;": f"listen 127.0.0.1:{self.http};",
                 "listen 443 ssl": f"listen 127.0.0.1:{self.https} ssl", "127.0.0.1:8081": f"127.0.0.1:{workers[0]}",
                 "127.0.0.1:8082": f"127.0.0.1:{workers[1]}", **(limits or {})}
        for old, new in swaps.items():
            assert old in text, old
            text = text.replace(old, new)
        (at / "carat.conf").write_text(text)
        user = "user root;\n" if os.geteuid() == 0 else ""
        paths = "\n".join(f"{kind}_temp_path {at}/{kind};" for kind in
                          ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (at / "nginx.conf").write_text(
            f"{user}daemon off;\npid {at}/pid;\nerror_log {at}/error.log info;\nworker_processes 1;\n"
            f"events {{ worker_connections 512; }}\nhttp {{\naccess_log off;\n{paths}\ninclude {at}/carat.conf;\n}}\n")
        self.command = [self.nginx, "-e", str(at / "error.log"), "-c", str(at / "nginx.conf")]

    def __enter__(self):
        done = subprocess.run([*self.command, "-t"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        self.process = subprocess.Popen(self.command)
        end = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                ask(self.http, "GET", "/")
                return self
            assert time.monotonic() < end and self.process.poll() is None, "nginx does not answer"
            time.sleep(0.05)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)
        self.folder.cleanup()

    def ask(self, method: str, path: str, body=None, **more):
        return ask(self.https, method, path, body, tls=True, **more)


PROMPT = {"prompt": "one two three", "max_tokens": 3}


class HeldMock(Mock):
    """Stops after the first token of an answer until it is let go."""
    held = threading.Event()

    async def pace(self, place: int) -> None:
        while place == 1 and not self.held.is_set():
            await asyncio.sleep(0.01)


def test_nginx_passes_requests_on() -> None:
    need("nginx")
    with RunningMock(token_s=0) as one, RunningMock(token_s=0) as two, Nginx([one.port, two.port]) as nginx:
        status, _, headers = ask(nginx.http, "GET", "/v1/models")
        assert status == 308 and headers["Location"].startswith("https://"), headers
        status, page, headers = nginx.ask("GET", "/")
        assert status == 200 and b"<title>carat</title>" in page
        assert "Content-Security-Policy" in headers and "Strict-Transport-Security" in headers
        assert nginx.ask("GET", "/metrics")[0] == 200
        for _ in range(10):
            assert nginx.ask("POST", "/v1/completions", PROMPT)[0] == 200
        assert one.mock.counts.started + two.mock.counts.started == 10
        assert min(one.mock.counts.started, two.mock.counts.started) >= 3
        assert nginx.ask("POST", "/v1/completions", b"x" * 9_000_000)[0] == 413


def test_nginx_keeps_a_conversation_with_its_worker() -> None:
    need("nginx")
    with RunningMock(token_s=0) as one, RunningMock(token_s=0) as two, Nginx([one.port, two.port]) as nginx:
        places = set()
        for session in range(12):
            before = one.mock.counts.started
            for _ in range(3):
                nginx.ask("POST", "/v1/completions", PROMPT, headers={"X-Carat-Session": f"conversation-{session}"})
            to_one = one.mock.counts.started - before
            assert to_one in (0, 3), "a conversation was spread"
            places.add(to_one)
        assert places == {0, 3}, "all conversations went to one worker"


def test_nginx_does_not_hold_back_a_stream() -> None:
    need("nginx")
    HeldMock.held.clear()
    with RunningMock(HeldMock, token_s=0) as one, RunningMock(HeldMock, token_s=0) as two, \
            Nginx([one.port, two.port]) as nginx:
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", nginx.https, timeout=20, context=trust)
        connection.request("POST", "/v1/completions", json.dumps({**PROMPT, "stream": True}))
        answer = connection.getresponse()
        # The worker writes nothing more until this line has come through.
        assert b"word0" in answer.readline()
        HeldMock.held.set()
        rest = answer.read()
        assert b"word2" in rest and rest.rstrip().endswith(b"data: [DONE]")
        connection.close()


def test_nginx_limits_an_address() -> None:
    need("nginx")
    with RunningMock(token_s=0) as one, RunningMock(token_s=0) as two, \
            Nginx([one.port, two.port], {"burst=40": "burst=3"}) as nginx:
        statuses = [nginx.ask("POST", "/v1/completions", PROMPT)[0] for _ in range(12)]
        assert statuses[:4] == [200] * 4 and 429 in statuses, statuses


def test_nginx_goes_past_a_worker_that_is_away_or_full() -> None:
    need("nginx")
    one, two = RunningMock(token_s=0), RunningMock(token_s=0)
    with two, Nginx([one.port, two.port]) as nginx:
        one.mock.most_running = 0
        for _ in range(8):
            assert nginx.ask("POST", "/v1/completions", PROMPT)[0] == 200
        assert one.mock.counts.refused >= 1 and two.mock.counts.started == 8
        one.stop()
        for _ in range(8):
            assert nginx.ask("POST", "/v1/completions", PROMPT)[0] == 200
        assert two.mock.counts.started == 16


def test_two_real_workers_are_restarted_without_loss() -> None:
    name = model()
    need("nginx")
    command = f"{CARAT} serve {name} --memory 450M --ctx 512 --parallel 2 --threads 1 --port {{port}}"
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Spawned(command)) for _ in range(2)]
        nginx = stack.enter_context(Nginx([w.port for w in workers], {"rate=120r/m": "rate=600r/s"}))
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(4))
        body = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
        jobs = [pool.submit(nginx.ask, "POST", "/v1/completions", body, timeout=120) for _ in range(24)]
        jobs[3].result()
        for worker in workers:
            worker.process.terminate()
            assert worker.process.wait(60) == 0
            worker.start()
            time.sleep(2.5)  # nginx asks a worker that was away again after its fail_timeout; the next may go then
        answers = [job.result() for job in jobs]
        assert [status for status, _, _ in answers] == [200] * 24, [a[:2] for a in answers if a[0] != 200]
        texts = {json.loads(text)["choices"][0]["text"] for _, text, _ in answers}
        assert len(texts) == 1, "one prompt at temperature 0 was answered in two ways"


def main() -> int:
    global CARAT
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--carat", type=Path, default=ROOT / "build/carat")
    parser.add_argument("--only", default="", help="tests whose name has this")
    arguments = parser.parse_args()
    CARAT = arguments.carat
    passed, failed, skipped = 0, 0, 0
    for name, test in list(globals().items()):
        if not name.startswith("test_") or arguments.only not in name:
            continue
        try:
            test()
            passed += 1
        except Skip as why:
            skipped += 1
            print(f"skipped {name}: {why}")
        except (Exception, SystemExit):
            failed += 1
            print(f"FAILED {name}")
            traceback.print_exc(file=sys.stdout)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    # Debian's PyYAML belongs to Debian's python3, which may not be the first on PATH.
    if "--again" not in sys.argv and not importlib.util.find_spec("yaml"):
        debian = "/usr/bin/python3"
        if os.path.exists(debian) and subprocess.run([debian, "-c", "import yaml"], capture_output=True).returncode == 0:
            os.execv(debian, [debian, *sys.argv, "--again"])
    if "--again" in sys.argv:
        sys.argv.remove("--again")
    sys.exit(main())
