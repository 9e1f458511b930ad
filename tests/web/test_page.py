"""The chat page against the stand-in server: what a person does, in a real browser."""

import pytest
from conftest import SHOTS
from playwright.sync_api import expect

RICH = """# Rainbows

Light **bends** in a drop, *reflects*, and bends again; see [the article](https://example.com/rainbow "more") or
https://example.com/a_b_c.

1. First refraction
2. Reflection
   - inside the drop
   - at about `42°`
3. Second refraction

| colour | angle |
|:-------|------:|
| red    | 42.4° |
| violet | 40.6° |

```python
def angle(n):
    return 4 * asin(1 / n)   # <b>not bold</b>
```

> Quoted, with ~~an error~~ a fix.

- [x] seen
- [ ] photographed
"""

HOSTILE = """<img src=x onerror="window.owned=1"><script>window.owned=2</script>
<iframe src="https://example.com/"></iframe>

[click](javascript:window.owned=3) [data](data:text/html,<script>window.owned=4</script>)
[file](file:///etc/passwd) [relative](/v1/models) [odd](JaVaScRiPt:alert(1)) [tab](java\tscript:alert(1))
[quote](https://example.com/"onmouseover="window.owned=5) <javascript:alert(1)> <https://example.com/ok>
![pixel](https://example.com/pixel.png)

```html" onload="window.owned=6
<svg onload=alert(1)>
```

| <img src=x onerror=alert(1)> | b |
|---|---|
| [x](vbscript:1) | </td><script>window.owned=7</script> |
"""


def say(page, text):
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def answer(page):
    return page.locator("#log > .answer").last


def ended(page):
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    expect(answer(page).locator(".foot")).to_be_visible()


def test_an_answer_streams(mock_server, open_page):
    server = mock_server(token_s=0.03)
    page = open_page(server.url)
    say(page, "Tell me a story")
    expect(answer(page)).to_contain_text("word3")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    assert "word63" not in answer(page).inner_text()
    expect(page.locator("#log")).to_have_attribute("aria-busy", "true")
    expect(answer(page)).to_contain_text("word63")
    ended(page)
    expect(page.locator("#log")).to_have_attribute("aria-busy", "false")
    expect(answer(page).locator(".facts")).to_contain_text("tokens/s")
    expect(page.locator("#title")).to_have_text("Tell me a story")
    assert server.mock.seen[-1]["messages"] == [{"role": "user", "content": "Tell me a story"}]
    assert server.mock.seen[-1]["stream_options"] == {"include_usage": True}
    say(page, "Go on")
    ended(page)
    assert [m["role"] for m in server.mock.seen[-1]["messages"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("how", ["button", "escape"])
def test_stop_keeps_what_came(mock_server, open_page, how):
    server = mock_server(token_s=0.05)
    page = open_page(server.url)
    say(page, "Count")
    expect(answer(page)).to_contain_text("word2")
    if how == "button":
        page.get_by_role("button", name="Stop").click()
    else:
        page.keyboard.press("Escape")
    ended(page)
    expect(answer(page)).to_contain_text("word2")
    expect(answer(page).locator(".facts")).to_contain_text("stopped")
    page.wait_for_timeout(300)
    assert server.mock.counts.vanished == 1 and server.mock.counts.running == 0
    # And the next one works.
    server.mock.token_s = 0
    say(page, "Again")
    ended(page)
    expect(answer(page)).to_contain_text("word63")


def test_reload_keeps_conversations(mock_server, open_page):
    server = mock_server(token_s=0)
    page = open_page(server.url)
    say(page, "First talk")
    ended(page)
    page.get_by_role("button", name="New conversation").click()
    expect(page.locator("#empty")).to_be_visible()
    say(page, "Second talk")
    ended(page)
    page.reload()
    expect(page.locator("#title")).to_have_text("Second talk")
    expect(page.locator(".entry")).to_have_text(["Second talk", "First talk"])
    page.locator(".entry", has_text="First talk").click()
    expect(page.locator("#log > .user")).to_have_text("YouFirst talk")
    expect(answer(page)).to_contain_text("word63")


def test_reload_during_an_answer_keeps_what_came(mock_server, open_page):
    server = mock_server(token_s=0.05)
    page = open_page(server.url)
    say(page, "Slowly")
    expect(answer(page)).to_contain_text("word4")
    page.reload()
    expect(answer(page)).to_contain_text("word4")
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_rename_export_delete(mock_server, open_page):
    server = mock_server(token_s=0)
    page = open_page(server.url)
    say(page, "A plain title")
    ended(page)
    page.locator("#list li").hover()
    page.get_by_role("button", name="Rename").click()
    page.locator("#ask-input").fill("Better: a/b")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("Better: a/b")
    page.locator("#list li").hover()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    assert download.value.suggested_filename == "Better ab.md"
    text = download.value.path().read_text()
    assert text.startswith("# Better: a/b\n\n**You**\n\nA plain title\n\n**carat**\n\nword0 word1")
    page.locator("#list li").hover()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".entry")).to_have_count(1)
    page.locator("#list li").hover()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".entry")).to_have_count(0)
    page.reload()
    expect(page.locator("#empty")).to_be_visible()


def test_deleting_what_is_being_answered(mock_server, open_page):
    server = mock_server(token_s=0.05)
    page = open_page(server.url)
    say(page, "Gone soon")
    expect(answer(page)).to_contain_text("word2")
    page.locator("#list li").hover()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("#empty")).to_be_visible()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    page.wait_for_timeout(1200)  # past the next save of an answer
    page.reload()
    expect(page.locator(".entry")).to_have_count(0)


def test_another_conversation_can_be_read_meanwhile(mock_server, open_page):
    server = mock_server(token_s=0)
    page = open_page(server.url)
    say(page, "Old")
    ended(page)
    server.mock.token_s = 0.03
    page.get_by_role("button", name="New conversation").click()
    say(page, "Long")
    expect(answer(page)).to_contain_text("word2")
    page.locator(".entry", has_text="Old").click()
    expect(page.locator("#log > .user")).to_have_text("YouOld")
    assert "word63" in answer(page).inner_text()
    page.locator(".entry", has_text="Long").click()
    expect(answer(page)).to_contain_text("word63")
    ended(page)
    page.locator(".entry", has_text="Old").click()
    expect(page.locator("#log > li")).to_have_count(2)


def test_markdown(mock_server, open_page):
    server = mock_server(token_s=0.002, answers={"rainbow": RICH})
    page = open_page(server.url)
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Tokens at most").fill("900")
    page.get_by_role("button", name="Done").click()
    say(page, "How does a rainbow form?")
    ended(page)
    body = answer(page).locator(".body")
    expect(body.locator("h3")).to_have_text("Rainbows")
    expect(body.locator("strong")).to_have_text("bends")
    expect(body.locator("em")).to_have_text("reflects")
    expect(body.locator("del")).to_have_text("an error")
    expect(body.locator("ol > li")).to_have_count(3)
    expect(body.locator("ol > li > ul > li")).to_have_text(["inside the drop", "at about 42°"])
    expect(body.locator("tbody td")).to_have_text(["red", "42.4°", "violet", "40.6°"])
    expect(body.locator("td.right").first).to_have_text("42.4°")
    expect(body.locator("figure.code code")).to_have_text(
        "def angle(n):\n    return 4 * asin(1 / n)   # <b>not bold</b>")
    expect(body.locator("figcaption span")).to_have_text("python")
    expect(body.locator("blockquote")).to_contain_text("Quoted, with")
    expect(body.locator("li.task")).to_have_text(["☑seen", "☐photographed"])
    links = [(a.get_attribute("href"), a.get_attribute("rel"), a.inner_text()) for a in body.locator("a").all()]
    assert [(href, text) for href, _, text in links] == [
        ("https://example.com/rainbow", "the article"), ("https://example.com/a_b_c", "https://example.com/a_b_c")]
    assert all("noopener" in rel for _, rel, _ in links)


def test_hostile_text_is_text(mock_server, open_page):
    server = mock_server(token_s=0.001, answers={"attack": HOSTILE})
    page = open_page(server.url)
    say(page, "attack <b>me</b>")
    ended(page)
    page.reload()
    body = answer(page).locator(".body")
    expect(body).to_contain_text('<img src=x onerror="window.owned=1">')
    allowed = "P A SPAN CODE PRE FIGURE FIGCAPTION BUTTON SVG USE DIV TABLE THEAD TBODY TR TH TD BR".split()
    tags = body.evaluate("body => [...body.querySelectorAll('*')].map(e => e.tagName.toUpperCase())")
    assert set(tags) <= set(allowed), set(tags) - set(allowed)
    attributes = body.evaluate("b => [...b.querySelectorAll('*')].flatMap(e => e.getAttributeNames())")
    assert not [name for name in attributes if name.startswith("on")]
    hrefs = body.evaluate("b => [...b.querySelectorAll('a')].map(a => a.href)")
    assert hrefs == ["https://example.com/", "https://example.com/%22onmouseover=%22window.owned=5",
                     "https://example.com/ok", "https://example.com/pixel.png"]
    page.get_by_text("click", exact=True).click()
    assert page.evaluate("window.owned") is None
    expect(page.locator("#log > .user .body")).to_have_text("attack <b>me</b>")
    # A conversation that something else wrote into the browser is checked, too.
    page.evaluate("""() => {
      localStorage.setItem("carat.chat.bad", "{");
      localStorage.setItem("carat.chat.odd", JSON.stringify({id: "odd", title: "<img src=x onerror=alert(1)>",
        messages: [{role: "<b>", content: 3}, null, {role: "assistant", content: "kept"}]}));
    }""")
    page.reload()
    expect(page.locator(".entry")).to_have_count(2)
    page.locator(".entry", has_text="<img").click()
    expect(page.locator("#log > li")).to_have_count(1)


def test_patterns_that_take_bad_parsers_minutes(mock_server, open_page):
    many = 20000
    texts = ["[" * many, "*a " * many, "`" * many + "x", "~" * many + "`", "- " * many, "> " * many, "|" * many + "\n|-",
             "**a*" * (many // 4), "[a](" * (many // 4), "#" * many, "-" * many + "x", "1. " * (many // 3),
             "_" * many, "![" * many, "<http://" * (many // 8), "http://(" * (many // 8), "\n".join(["- a"] * 5000)]
    page = open_page(mock_server().url)
    shown = page.evaluate("""async (texts) => {
      const { renderMarkdown } = await import("./markdown.js");
      return texts.map((text) => {
        const parent = document.createElement("div");
        renderMarkdown(parent, text);
        return parent.textContent.length;
      });
    }""", texts)
    assert all(length > 0 for length in shown[:1]) and len(shown) == len(texts)


def test_settings_reach_the_server(mock_server, open_page):
    server = mock_server(token_s=0)
    page = open_page(server.url)
    page.get_by_role("button", name="Settings").click()
    for label, value in {"System text": "Be brief.", "Temperature": "0.3", "Top p": "0.9", "Top k": "40",
                         "Tokens at most": "7", "Seed": "5"}.items():
        page.get_by_label(label).fill(value)
    page.get_by_role("button", name="Done").click()
    say(page, "Hello")
    ended(page)
    expect(answer(page).locator(".facts")).to_contain_text("stopped at the most tokens")
    asked = server.mock.seen[-1]
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}
    assert {k: asked[k] for k in ("temperature", "top_p", "top_k", "max_tokens", "seed")} == {
        "temperature": 0.3, "top_p": 0.9, "top_k": 40, "max_tokens": 7, "seed": 5}
    page.reload()
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_label("Top k")).to_have_value("40")
    expect(page.get_by_label("System text")).to_have_value("Be brief.")
    page.get_by_role("button", name="Defaults").click()
    page.get_by_role("button", name="Done").click()
    say(page, "Hello again")
    ended(page)
    assert "temperature" not in server.mock.seen[-1] and server.mock.seen[-1]["max_tokens"] == 512


def test_the_key_stays_in_the_tab(mock_server, open_page):
    server = mock_server(token_s=0, key="s3cret")
    page = open_page(server.url, expected=[401])
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.get_by_label("API key")).to_be_focused()
    page.keyboard.type("s3cret")
    page.keyboard.press("Enter")
    expect(page.locator("#model")).to_have_text("mock-135m")
    say(page, "Hello")
    ended(page)
    expect(answer(page)).to_contain_text("word9")
    assert "s3cret" not in page.evaluate("JSON.stringify(localStorage)")
    page.reload()
    expect(page.locator("#model")).to_have_text("mock-135m")


def test_refusals_are_said_and_can_be_tried_again(mock_server, open_page):
    server = mock_server(token_s=0, most_running=0)
    page = open_page(server.url, expected=[503])
    say(page, "Hello")
    expect(page.get_by_role("alert")).to_contain_text("The queue is full. Try again in 1 s.")
    expect(answer(page).locator("strong")).to_contain_text("queue is full")
    server.mock.most_running = 9
    page.get_by_role("button", name="Answer again").click()
    expect(answer(page)).to_contain_text("word63")
    ended(page)
    expect(page.get_by_role("alert")).to_be_hidden()
    # After a refusal another message may follow: the template sees one turn of the user.
    server.mock.most_running = 0
    say(page, "One")
    expect(page.get_by_role("alert")).to_be_visible()
    server.mock.most_running = 9
    say(page, "Two")
    ended(page)
    assert [m["role"] for m in server.mock.seen[-1]["messages"]] == ["user", "assistant", "user"]
    assert server.mock.seen[-1]["messages"][-1]["content"] == "One\n\nTwo"


def test_a_server_that_goes_away(mock_server, open_page):
    server = mock_server(token_s=0)
    page = open_page(server.url)
    expect(page.locator("#model")).to_be_visible()
    page.route("**/v1/chat/completions", lambda route: route.fulfill(
        status=200, content_type="text/event-stream",
        body='data: {"choices":[{"delta":{"content":"Half an "}}]}\n\n'))
    say(page, "Hello")
    expect(page.get_by_role("alert")).to_contain_text("ended before the answer did")
    expect(answer(page)).to_contain_text("Half an")
    page.unroute("**/v1/chat/completions")


@pytest.mark.parametrize("told", [True, False])
def test_text_mode(mock_server, open_page, told):
    server = mock_server(token_s=0, template=False)
    if not told:  # a server that does not say it beforehand
        server.mock.template = True
    page = open_page(server.url, expected=[400])
    expect(page.locator("#model")).to_be_visible()
    server.mock.template = False
    if told:
        expect(page.get_by_text("text mode", exact=True)).to_be_visible()
        expect(page.locator("#about")).to_contain_text("continues what you write")
    say(page, "Once upon a time")
    ended(page)
    expect(page.get_by_text("text mode", exact=True)).to_be_visible()
    assert server.mock.seen[-1]["prompt"] == "Once upon a time"
    say(page, "\nThe end.")
    ended(page)
    asked = server.mock.seen[-1]["prompt"]
    assert asked.startswith("Once upon a timeword0 ") and asked.endswith("\nThe end."), asked


def test_a_model_that_is_being_loaded(mock_server, open_page):
    server = mock_server(token_s=0, loading=True, template=False)
    page = open_page(server.url)
    expect(page.locator("#about")).to_have_text("mock-135m is being loaded.")
    expect(page.locator("#memory")).to_be_hidden()
    server.mock.loading = False
    expect(page.locator("#mode")).to_be_visible()
    expect(page.locator("#memory")).to_be_visible()


def test_memory_bar(mock_server, open_page):
    server = mock_server(token_s=0.03)
    page = open_page(server.url)
    expect(page.locator("#memory-text")).to_have_text("343 MB of 420 MB budget")
    expect(page.locator("#speed")).to_have_text("idle")
    page.locator("#memory summary").click()
    expect(page.locator("#legend .weights dd")).to_have_text("92.6 MB")
    expect(page.locator("#legend .free dd")).to_have_text("77.1 MB")
    expect(page.locator("#bar .local")).to_be_hidden()
    widths = page.evaluate("""() => Object.fromEntries([...document.querySelectorAll('#bar > span')].map(
        s => [s.classList[0], s.getBoundingClientRect().width]))""")
    assert abs(widths["weights"] / widths["free"] - 92.6 / 77.1) < 0.05, widths
    say(page, "Fill the pages")
    expect(page.locator("#legend .global dd")).to_contain_text("3% in use")
    expect(page.locator("#speed")).to_contain_text("tokens/s")
    ended(page)


def test_keyboard(mock_server, open_page):
    server = mock_server(token_s=0)
    page = open_page(server.url)
    field = page.get_by_label("Message", exact=True)
    expect(field).to_be_focused()
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    expect(field).to_have_value("one\ntwo")
    assert server.mock.seen == []
    page.keyboard.press("Enter")
    ended(page)
    assert server.mock.seen[-1]["messages"][0]["content"] == "one\ntwo"
    expect(field).to_have_value("")
    page.keyboard.press("Enter")  # nothing to send
    assert len(server.mock.seen) == 1
    seen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("""() => {
          const e = document.activeElement;
          return [e.id || e.className || e.tagName, e.getAttribute("aria-label") || e.labels?.[0]?.textContent ||
            e.textContent.trim(), getComputedStyle(e).outlineStyle];
        }"""))
    names = {name for name, _, _ in seen}
    assert {"new", "entry", "theme", "settings-open", "send", "input"} <= names, names
    assert all(label for name, label, _ in seen if name != "BODY"), seen
    # The field's frame shows its focus, the scrolled part is focused by a click alone.
    assert all(outline != "none" for name, _, outline in seen if name not in ("BODY", "input", "scroll")), seen


def test_every_control_has_a_name(mock_server, open_page):
    page = open_page(mock_server().url)
    unnamed = page.evaluate("""() => [...document.querySelectorAll("button, input, textarea, select")].filter(
        e => !(e.getAttribute("aria-label") || e.labels?.length || e.textContent.trim() || e.id === "ask-yes")
      ).map(e => e.outerHTML)""")
    assert unnamed == []


def test_light_dark_and_the_switch(mock_server, open_page):
    server = mock_server()
    color = "getComputedStyle(document.body).backgroundColor"
    light = open_page(server.url, color_scheme="light").evaluate(color)
    page = open_page(server.url, color_scheme="dark")
    dark = page.evaluate(color)
    assert light != dark
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate(color) == light
    page.reload()
    assert page.evaluate(color) == light
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate(color) == dark


PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}


def test_phone(mock_server, open_page):
    server = mock_server(token_s=0, answers={"rainbow": RICH})
    page = open_page(server.url, **PHONE)
    side = page.get_by_role("navigation", name="Conversations")
    expect(side).to_be_hidden()
    page.get_by_label("Message", exact=True).fill("rainbow")
    page.get_by_role("button", name="Send").tap()
    ended(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    box = page.locator("#composer").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["y"] + box["height"] <= 844
    page.get_by_role("button", name="Conversations").tap()
    expect(side).to_be_visible()
    expect(page.locator(".entry")).to_have_text(["rainbow"])
    page.keyboard.press("Escape")
    expect(side).to_be_hidden()


@pytest.mark.parametrize("name, settings", [
    ("light", {"color_scheme": "light"}), ("dark", {"color_scheme": "dark"}),
    ("phone", {**PHONE, "color_scheme": "light"}), ("phone-dark", {**PHONE, "color_scheme": "dark"})])
def test_screenshots(mock_server, open_page, name, settings):
    SHOTS.mkdir(parents=True, exist_ok=True)
    server = mock_server(token_s=0.004, answers={"rainbow": RICH})
    page = open_page(server.url, **settings)
    expect(page.locator("#memory")).to_be_visible()
    page.wait_for_timeout(700)  # the bar's transition
    page.screenshot(path=SHOTS / f"{name}-empty.png")
    say(page, "How does a rainbow form?\nShow me the angles, too.")
    ended(page)
    page.get_by_label("Message", exact=True).fill("And a double rainbow?")
    if "phone" not in name:
        page.locator("#memory summary").click()
    page.wait_for_timeout(700)
    page.screenshot(path=SHOTS / f"{name}-chat.png")
    page.get_by_role("button", name="Settings").click()
    page.screenshot(path=SHOTS / f"{name}-settings.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(mock_server, open_page, scheme):
    """WCAG 2 AA: 4.5 to 1 for text of this size."""
    server = mock_server(token_s=0, answers={"rainbow": RICH})
    page = open_page(server.url, color_scheme=scheme)
    say(page, "rainbow")
    ended(page)
    page.locator("#memory summary").click()
    ratios = page.evaluate("""() => {
      const light = (c) => {
        const [r, g, b] = c.match(/[\\d.]+/g).map((v) => v / 255).map(
          (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const behind = (e) => {
        const color = getComputedStyle(e).backgroundColor;
        return color !== "rgba(0, 0, 0, 0)" || !e.parentElement ? color : behind(e.parentElement);
      };
      const places = ["#title", "#model", "#memory-text", "#speed", "#legend dt", "#legend dd", ".entry", ".hint",
        "#side .wide", ".user .body", ".answer p", ".answer a", ".answer code", ".answer blockquote", ".facts",
        "figcaption span", "th", "td", "#keys"];
      return places.map((place) => {
        const e = document.querySelector(place);
        const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
        return [place, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
      });
    }""")
    assert all(ratio >= 4.5 for _, ratio in ratios), [r for r in ratios if r[1] < 4.5]
