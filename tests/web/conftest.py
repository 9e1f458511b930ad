"""A real Chromium, the stand-in server, and `carat serve` where it was built."""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from mock_server import RunningMock  # noqa: E402

SHOTS = Path(os.environ.get("CARAT_SHOTS", ROOT / "build/web"))
CARAT = Path(os.environ.get("CARAT", ROOT / "build/carat"))
MODELS = Path(os.environ.get("CARAT_MODELS", Path.home() / ".cache/carat/models"))


@pytest.fixture
def mock_server():
    """mock_server(token_s=…) starts one; all end with the test."""
    started = []

    def start(**settings):
        started.append(RunningMock(**settings))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def real_server():
    """real_server(model) is the address of a `carat serve` of it; skips when there is none."""
    processes = {}

    def start(model: str) -> str:
        if model in processes:
            return processes[model][1]
        if not (MODELS / f"{model}.gguf").exists():
            pytest.skip(f"{model} is not in {MODELS}")
        if not CARAT.exists() or subprocess.run([CARAT, "serve", "--help"], capture_output=True).returncode != 0:
            pytest.skip(f"{CARAT} has no command serve")
        process = subprocess.Popen([CARAT, "serve", model, "--memory", "600M", "--port", "0"],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        url = None
        for line in process.stdout:
            print(line, end="")
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                url = found[0]
                break
        assert url, "carat serve ended without an address"
        threading.Thread(target=process.stdout.read, daemon=True).start()
        processes[model] = (process, url)
        for _ in range(1200):  # 503 while the model loads
            try:
                urllib.request.urlopen(url + "/health").close()
                return url
            except urllib.error.HTTPError:
                time.sleep(0.1)
        raise AssertionError("the model was not loaded within two minutes")

    yield start
    for process, _ in processes.values():
        process.terminate()
        assert process.wait(60) == 0


@pytest.fixture(scope="session")
def chromium():
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not path:
        pytest.skip("there is no chromium: tools/install_deps.sh web")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium):
    """open_page(url, …) is a page in a fresh profile. No test may leave an error in its console, a dialog open or ask
    another host; statuses in `expected` (401) may be logged."""
    contexts = []

    def start(url, expected=(), **settings):
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **settings})
        page = context.new_page()
        page.faults = []

        def on_console(message):
            known = any(f"status of {status}" in message.text for status in expected)
            if message.type in ("error", "warning") and not known:
                page.faults.append(message.text)

        def on_dialog(dialog):
            page.faults.append("dialog: " + dialog.message)
            dialog.dismiss()

        def on_request(request):
            if not request.url.startswith((url, "data:", "blob:")):
                page.faults.append("asked " + request.url)

        page.on("console", on_console)
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("dialog", on_dialog)
        page.on("request", on_request)
        page.goto(url)
        contexts.append((context, page))
        return page

    yield start
    for context, page in contexts:
        context.close()
        assert page.faults == []
