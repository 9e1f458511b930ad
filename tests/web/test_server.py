"""The chat page as `carat serve` serves it, with real models."""

import json
import re
import urllib.request

import pytest
from playwright.sync_api import expect
from test_page import answer, ended, say

CHAT, TEXT = "smollm2-135m-instruct", "gemma3-270m"


def ask_for(page, tokens, **more):
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Tokens at most").fill(str(tokens))
    for label, value in more.items():
        page.get_by_label(label).fill(value)
    page.get_by_role("button", name="Done").click()


def get(url, path):
    with urllib.request.urlopen(url + path) as answered:
        return answered.headers, answered.read().decode()


def test_files_are_served_closed(real_server):
    url = real_server(CHAT)
    headers, page = get(url, "/")
    assert headers["Content-Type"].startswith("text/html") and "utf-8" in headers["Content-Type"]
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    for path in re.findall(r'(?:src|href)="([a-z]+\.(?:js|css))"', page) + ["parts.js", "markdown.js", "api.js"]:
        kind = get(url, "/" + path)[0]["Content-Type"]
        assert kind.startswith("text/css" if path.endswith("css") else "text/javascript"), (path, kind)


def test_a_chat_streams_and_is_kept(real_server, open_page):
    page = open_page(real_server(CHAT))
    expect(page.locator("#model")).to_contain_text("smollm2", ignore_case=True)
    expect(page.locator("#mode")).to_be_hidden()
    ask_for(page, 160, Temperature="0")
    lengths = page.evaluate_handle("""() => {
      const seen = [];
      new MutationObserver(() => seen.push(document.querySelector("#log > .answer .body")?.textContent.length ?? 0))
        .observe(document.querySelector("#log"), { childList: true, subtree: true, characterData: true });
      return seen;
    }""")
    say(page, "Write a short story about a lighthouse keeper and a storm.")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden(timeout=60000)
    seen = sorted(set(lengths.json_value()))
    assert len(seen) >= 5, seen  # it grew on the page, piece by piece
    expect(answer(page).locator(".facts")).to_contain_text(re.compile(r"\d+ tokens · .*tokens/s · first after"))
    text = answer(page).locator(".body").inner_text()
    page.reload()
    expect(page.locator("#title")).to_contain_text("Write a short story")
    assert answer(page).locator(".body").inner_text() == text
    # The second turn finds what the first left.
    ask_for(page, 16, Temperature="0")
    say(page, "And then?")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden(timeout=60000)
    expect(page.locator("#log > li")).to_have_count(4)


def test_stop_ends_the_answer_on_the_server(real_server, open_page):
    url = real_server(CHAT)
    page = open_page(url)
    ask_for(page, 1000, Temperature="0.9", Seed="3")
    say(page, "Count from one to five hundred, in words, one a line.")
    expect(answer(page).locator(".body")).to_contain_text(re.compile(r"\w+"))
    page.keyboard.press("Escape")
    ended(page)
    expect(answer(page).locator(".facts")).to_contain_text("stopped")
    page.wait_for_function("""async () => {
      const text = await (await fetch("metrics")).text();
      return /^carat_requests_running 0$/m.test(text);
    }""")
    assert 'carat_requests_total{outcome="cancelled"} ' in get(url, "/metrics")[1]


def test_the_memory_bar_tells_the_plan(real_server, open_page):
    url = real_server(CHAT)
    plan = json.loads(get(url, "/plan")[1])
    page = open_page(url)
    page.locator("#memory summary").click()
    mega = lambda b: f"{b / 1e6:.0f} MB" if b >= 1e8 else f"{b / 1e6:.1f} MB" if b >= 1e6 else f"{b / 1e3:.1f} kB"
    expect(page.locator("#memory-text")).to_have_text(f"{mega(plan['total'])} of {mega(plan['budget'])} budget")
    expect(page.locator("#legend .weights dd")).to_have_text(mega(plan["categories"]["weights"]))
    expect(page.locator("#legend .global dd")).to_contain_text("in use")


def test_text_mode_of_a_pretrained_model(real_server, open_page):
    url = real_server(TEXT)
    page = open_page(url)
    expect(page.get_by_text("text mode", exact=True)).to_be_visible()
    ask_for(page, 24, Temperature="0")
    say(page, "The capital of France is")
    ended(page)
    # What the interface itself answers, a beginning of it at least shown.
    body = {"prompt": "The capital of France is", "max_tokens": 24, "temperature": 0}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode())
    text = json.loads(urllib.request.urlopen(request).read())["choices"][0]["text"]
    expect(answer(page).locator(".body")).to_contain_text(text.strip().split("\n")[0])


@pytest.mark.parametrize("length", [60000])
def test_a_prompt_past_the_context_is_explained(real_server, open_page, length):
    page = open_page(real_server(CHAT), expected=[400])
    say(page, "word " * length)
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"\d+ tokens"), timeout=20000)
