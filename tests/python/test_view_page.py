# SPDX-License-Identifier: Apache-2.0
"""The pages of `ebb view` in a real browser: right numbers, no errors, keyboard alone, both themes, a phone, paper."""

import json
import os
import re
import shutil
import subprocess

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: ./dev test all installs it")
CHROMIUM = os.environ.get("EBB_CHROMIUM") or shutil.which("chromium")
EBB = os.environ.get("EBB_BINARY")
pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed: ./dev test all installs Debian's"),
    pytest.mark.skipif(not EBB, reason="EBB_BINARY does not name the program"),
]

REPORT = {
    "strategy": "revolve",
    "steps": 5,
    "exact": False,
    "seconds": {"predicted": 1.5, "measured": 3},
    "forwards": {"predicted": 9, "measured": 9},
    "peak": {"fast": {"predicted": 2048, "measured": 1024}},
    "moved": {},
    "budget": 4096,
    "remarks": ["<b>slow</b>"],
}
TRACE = {
    "traceEvents": [
        {"name": "thread_name", "ph": "M", "tid": 2, "args": {"name": "disk writes"}},
        {"name": "advance", "ph": "X", "tid": 0, "ts": 0, "dur": 500, "args": {"from": 0, "to": 4}},
        {"name": "wait", "ph": "X", "tid": 1, "ts": 500, "dur": 100, "args": {}},
        {"name": "write", "ph": "X", "tid": 2, "ts": 10, "dur": 400, "args": {"item": "state", "step": 3, "bytes": 9}},
        {"name": "reverse", "ph": "X", "tid": 0, "ts": 600, "dur": 500, "args": {"from": 0, "to": 4}},
    ]
}
METRICS = "".join(
    json.dumps({"iteration": i, "split": "train", "loss": None if i == 7 else 1 / i, "lr": 0.1 / i, "seconds": i})
    + "\n"
    for i in range(1, 60)
) + json.dumps({"iteration": 59, "split": "test", "loss": 0.5, "accuracy": 0.9, "seconds": 60})

TIERS = "--steps 200 --state 1MiB --tape 4MiB --forward 3e-3 --backward 6e-3 --budget 48MiB --tier ssd:write=1GB/s,read=2GB/s"
KINDS = {
    "plan": "--steps 300 --state 1MiB --tape 4MiB --forward 2e-3 --backward 4e-3 --budget 60MiB",
    "tiers": TIERS,
    "sync": TIERS + " --sync",
    "slots": "--steps 10 --strategy revolve --slots 3",
    "one step": "--steps 1",
    "no step": "--steps 0",
    "no time": "--steps 5 --forward 0 --record 0 --backward 0",
    "sweep": "--steps 100 --state 1MiB --tape 4MiB --sweep",
    "report": json.dumps(REPORT),
    "trace": json.dumps(TRACE),
    "training": METRICS,
    "async": "bench async --quick --state 4KiB --steps 10,30 --interval 1,4 --vary-sweeps 1,3",
    "gruslys": "bench gruslys --quick --hidden 8 --batch 4 --input 3 --steps 400 --lengths 30,90 --memory 1,5,20 --threads 1",
    "double": "bench double --quick --hidden 16 --batch 2 --input 8 --budget 32KiB --longer 10 --rates 5 --repeat 1",
}


def answer(words):
    words = words.split() if words.startswith("bench ") else ["plan", *words.split()]
    return json.loads(subprocess.run([EBB, *words, "--json"], check=True, capture_output=True).stdout)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The page of a kind, made once."""
    folder = tmp_path_factory.mktemp("pages")
    paths = {}

    def make(kind, words=None):
        if kind not in paths:
            words = words or KINDS[kind]
            source, paths[kind] = folder / f"{kind}.json", folder / f"{kind}.html"
            source.write_text(json.dumps(answer(words)) if words.startswith(("--", "bench ")) else words)
            subprocess.run([EBB, "view", source, "-o", paths[kind]], check=True, capture_output=True)
        return paths[kind].as_uri()

    return make


@pytest.fixture
def opened(browser):
    """Opens a page; at the end nothing has been said on its console and nothing has been asked of the network."""
    complaints, pages = [], []

    def look(address, width=1100, scheme="light"):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url == address or complaints.append(request.url))
        page.goto(address)
        page.wait_for_selector("html[data-ready]", state="attached")
        page.wait_for_timeout(50)
        pages.append(page)
        return page

    yield look
    for page in pages:
        page.close()
    assert complaints == []


def figures(page):
    return dict(
        zip(page.locator(".figures dt").all_inner_texts(), page.locator(".figures dd").all_inner_texts(), strict=True)
    )


def chart(page, label):
    return page.locator(f'svg[role=application][aria-label^="{label}."]').first


def readout(page, label):
    return chart(page, label).locator("xpath=following-sibling::output").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 360])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_shown_at_any_width(opened, made, kind, width, scheme):
    page = opened(made(kind), width, scheme)
    assert page.locator("section h2").count() >= 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert "NaN" not in page.locator("main").inner_html() and "undefined" not in page.locator("body").inner_text()


@pytest.mark.parametrize("kind", ["slots", "plan", "tiers"])
def test_numbers_are_those_of_the_plan(opened, made, kind):
    page, plan = opened(made(kind)), answer(KINDS[kind])
    shown = figures(page)
    assert (
        shown["Forward steps"] == f"{plan['forwards']} ({plan['advances']} keep nothing, {plan['records']} leave tapes)"
    )
    assert shown["Strategy"].startswith(plan["strategy"])
    if kind == "slots":  # Griewank and Walther 2000: 10 steps with 3 states
        assert shown["Time"].startswith("45 s") and plan["forwards"] == 25
    data = json.loads(page.locator("#data").text_content())
    assert data["chosen"]["seconds"] == plan["seconds"] and data["chosen"]["bound"] == plan["bound_seconds"]
    for place, peak in zip(data["film"]["memory"], plan["peak"].values(), strict=True):
        assert max(place["bytes"]) == peak
    chart(page, "Time against budget").focus()
    texts = set()
    for _ in range(400):
        page.keyboard.press("ArrowRight")
        texts.add(readout(page, "Time against budget"))
    assert any(text.startswith("This plan, ") for text in texts)


def test_the_keyboard_is_enough(opened, made):
    page = opened(made("tiers"))
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "svg":
            break
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("Schedule.")
    page.keyboard.press("ArrowRight")
    first = readout(page, "Schedule")
    page.keyboard.press("ArrowRight")
    assert first and readout(page, "Schedule") not in ("", first)
    whole = chart(page, "Schedule").locator("text").all_text_contents()
    page.keyboard.press("+")
    assert chart(page, "Schedule").locator("text").all_text_contents() != whole
    page.keyboard.press("0")
    assert chart(page, "Schedule").locator("text").all_text_contents() == whole
    page.keyboard.press("End")
    assert "step" in readout(page, "Schedule")
    page.locator("#keys").focus()
    page.keyboard.press("Enter")
    assert page.locator("#keys-help").is_visible()


def test_charts_over_time_zoom_together(opened, made):
    page = opened(made("tiers"))
    before = chart(page, "Fast memory").locator("text").all_text_contents()
    box = chart(page, "Schedule").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 100)
    assert readout(page, "Schedule") != ""
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 120)
    page.mouse.up()
    assert chart(page, "Fast memory").locator("text").all_text_contents() != before
    chart(page, "Schedule").dblclick(position={"x": 300, "y": 100})
    assert chart(page, "Fast memory").locator("text").all_text_contents() == before


def test_data_are_there_as_a_table(opened, made):
    page = opened(made("slots"))
    page.locator("figure details summary").first.click()
    rows = page.locator("details[open] tbody tr")
    assert rows.count() == len(json.loads(page.locator("#data").text_content())["film"]["work"]["kind"])
    assert "step" in page.locator("details[open] thead").inner_text()


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(opened, made, scheme):
    page = opened(made("slots"), scheme=scheme)
    names = re.findall(r"(--[a-z0-9]+):", page.locator("style").text_content())
    style = "getComputedStyle(document.documentElement)"
    colors = {name: page.evaluate(f"{style}.getPropertyValue('{name}').trim()") for name in names}
    for back in ("--back", "--plate"):
        for name, color in colors.items():
            if name in ("--back", "--plate", "--grid"):
                continue
            light, dark = sorted((luminance(color), luminance(colors[back])), reverse=True)
            # WCAG 2: 4.5 for text, 3 for what is drawn.
            assert (light + 0.05) / (dark + 0.05) >= (4.5 if name in ("--ink", "--soft") else 3), (name, back)


def test_the_theme_can_be_chosen_and_paper_is_white(opened, made):
    page = opened(made("slots"))
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.emulate_media(media="print")
    assert not page.locator("#theme").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_the_theme_follows_the_system_until_one_is_chosen(opened, made):
    page = opened(made("slots"))
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector(f"html[data-theme={scheme}]")
    page.locator("#theme").click()
    page.emulate_media(color_scheme="dark")
    page.emulate_media(color_scheme="light")
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_charts_are_as_wide_as_paper_while_they_print(opened, made):
    page = opened(made("tiers"))
    width = "document.querySelector('figure > svg').viewBox.baseVal.width"
    before = page.evaluate(width)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(width) == 640
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(width) == before > 900


def test_a_tap_reads_a_chart(browser, made):
    context = browser.new_context(has_touch=True, viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto(made("tiers"))
    chart(page, "Schedule").tap(position={"x": 200, "y": 150})
    assert "step" in readout(page, "Schedule")
    context.close()


def marks(page, kind):
    """How many squares or triangles the schedule has: whole outlines."""
    paths = chart(page, "Schedule").locator(f".clip > path.{kind}:not(.bar)").all()
    return sum(path.get_attribute("d").count("M") for path in paths)


def test_saves_and_loads_are_told_apart_by_tier(opened, made):
    words = "--steps 60 --state 1MiB --budget 4MiB --strategy h_revolve --tier host:capacity=6MiB,write_time=0.1,read_time=0.1 --tier ssd:write_time=1,read_time=1"
    page = opened(made("two tiers", words))
    figure = chart(page, "Schedule").locator("xpath=..")
    texts = figure.locator(".legend li").all_inner_texts()
    names = [f"{what} {place}" for place in ("host", "ssd") for what in ("save to", "load from")]
    assert set(names) <= set(texts)
    for what in ("save to", "load from"):
        signs = [figure.locator(".legend li", has_text=f"{what} {place}") for place in ("fast memory", "host", "ssd")]
        looks = [(sign.locator("path.solid").count(), sign.locator("path.bar").count()) for sign in signs]
        assert looks == [(0, 0), (1, 0), (1, 1)]
    lanes = json.loads(page.locator("#data").text_content())["film"]["lanes"]
    assert marks(page, "write") == sum(sum(lane["out"]) for lane in lanes)


def test_of_many_saves_and_loads_some_are_marked(opened, made):
    page = opened(made("many marks", "--steps 400 --strategy revolve --slots 8"))
    assert "saves and loads, only some are marked" in page.locator("main").inner_text()
    assert 20 < marks(page, "write") + marks(page, "read") <= 250
    assert "1,000 s" in chart(page, "Schedule").locator("text").all_text_contents()


def test_slots_count_states_alone(opened, made):
    text = opened(made("slots")).locator("main").inner_text()
    assert "States kept, in slots." in text and "working set" not in text


def test_the_mark_of_the_last_test_is_whole(opened, made):
    page = opened(made("training"))
    picture = chart(page, "Loss")
    mark, area = picture.locator("path.mark").bounding_box(), picture.locator(".axis").bounding_box()
    assert mark["x"] + mark["width"] <= area["x"] + area["width"]
    sign = picture.locator("xpath=..").locator(".legend path.mark")
    fill = "(path) => getComputedStyle(path).fill"
    assert sign.evaluate(fill) == picture.locator("path.mark").evaluate(fill)


def test_a_million_steps_are_few_elements(opened, made):
    page = opened(made("million", "--steps 1e6 --strategy revolve --slots 30"))
    assert "too many actions to draw one by one" in page.locator("main").inner_text()
    assert page.evaluate("document.querySelectorAll('*').length") < 2500
    assert len(page.content()) < 2_000_000
    chart(page, "Schedule").focus()
    page.keyboard.press("ArrowRight")
    assert "% of the time" in readout(page, "Schedule")
    page.locator('button[aria-label="Zoom in: Schedule"]').click()
    assert page.locator('button[aria-label="Show all: Schedule"]').get_attribute("aria-disabled") == "false"


def test_reports_show_text_as_text(opened, made):
    page = opened(made("report"))
    text = page.locator("main").inner_text()
    assert "<b>slow</b>" in text and "gradients are NOT exact" in text and "measured 3 s, 2 x" in text


def test_experiments_are_drawn_predicted_beside_measured(opened, made):
    page = opened(made("gruslys"))
    label = "Time against memory"
    plot = next(
        part["plots"][0]
        for part in json.loads(page.locator("#data").text_content())["parts"]
        if part.get("plots", [{}])[0].get("title") == label
    )
    drawn = [point for line in plot["lines"] for point in line["points"]]
    # A mark for each point predicted, one for each measured; the goal is a line.
    shapes = chart(page, label).locator(".clip path.mark")
    assert sum(d.count("M") for d in shapes.evaluate_all("all => all.map((path) => path.getAttribute('d'))")) == (
        2 * len(drawn)
    )
    assert chart(page, label).locator(".clip path.bound").count() == 1
    legend = chart(page, label).locator("xpath=preceding-sibling::div//li").all_inner_texts()
    assert legend[:2] == ["store_all", "auto"] and {"predicted", "measured"} <= set(legend)
    chart(page, label).focus()
    texts = []
    for _ in drawn:
        page.keyboard.press("ArrowRight")
        texts.append(readout(page, label))
    assert len(set(texts)) == len(drawn)
    assert all("predicted" in text and "measured" in text for text in texts)
    assert "auto does not fit at 1 %" in page.locator("main").inner_text()
    assert page.locator("section", has_text="All runs").locator("tbody tr").count() >= len(drawn)
    page.emulate_media(media="print")
    table = page.locator("section", has_text="All runs").locator(".table")
    assert table.evaluate("(of) => of.scrollHeight <= of.clientHeight + 1"), "paper does not scroll"


def test_training_counts_what_is_not_finite(opened, made):
    page = opened(made("training"))
    assert "not finite" in page.locator("main").inner_text()
    chart(page, "Loss").focus()
    page.keyboard.press("End")
    assert readout(page, "Loss").startswith(("training, iteration 59", "test, iteration 59"))


def test_a_page_works_inside_of_a_notebook(browser, tmp_path):
    ebb = pytest.importorskip("ebb")
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><title>n</title>{ebb.plan(20, budget=12)._repr_html_()}", encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for(state="attached")
    assert frame.locator("h1").inner_text().startswith("20 steps in 12 B")
    page.close()


@pytest.mark.parametrize(
    "losses",
    [
        [0.3, 0.30000000000000004, 0.3],
        [1e16, 1e16 + 2],
        [1, 1.6e308],
        [1e-320, 1],
        [-5, 7],
        [1e308, -1e308],
        [-1.79e308, 1.79e308, 0],
        [0.6931471, 0.6931472, 0.69314715],
        [2.5],
    ],
)
def test_any_losses_are_drawn(opened, made, losses):
    lines = [json.dumps({"iteration": i + 1, "split": "train", "loss": loss}) for i, loss in enumerate(losses)]
    page = opened(made(f"losses {losses}", "\n".join(lines) + "\n"))
    labels = [text for text in chart(page, "Loss").locator("text").all_text_contents() if text != "iteration"]
    assert 3 <= len(labels) < 60 and len(set(labels[: len(labels) // 2])) >= len(labels) // 2 - 1
    assert not re.search("NaN|Infinity", page.locator("main").inner_html())


def test_times_of_nothing_are_left_out_of_the_curve(opened, made):
    words = "--steps 20 --forward 0 --record 0 --backward 0 --budget 8 --tier d:write_time=1,read_time=1"
    page = opened(made("free", words))
    assert "Infinity" not in page.locator("main").inner_html()


def test_labels_differ_at_any_zoom(opened, made):
    page = opened(made("plan"))
    chart(page, "Schedule").focus()
    page.keyboard.press("End")
    for _ in range(12):
        page.keyboard.press("+")
    labels = [text for text in chart(page, "Schedule").locator("text").all_text_contents() if text.endswith(" s")]
    assert len(labels) > 1 and len(set(labels)) == len(labels)
    # What is pressed keeps the focus.
    everything = page.locator('button[aria-label="Show all: Schedule"]')
    everything.focus()
    page.keyboard.press("Enter")
    assert everything.get_attribute("aria-disabled") == "true"
    assert page.evaluate("document.activeElement.tagName") == "BUTTON"
