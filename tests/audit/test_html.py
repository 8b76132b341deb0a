"""The page, opened in headless Chromium: it complains of nothing, asks for nothing, and fits a phone."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from repro.audit.records import Audit, Outcome
from repro.audit.report import html
from repro.audit.report.view import View
from repro.audit.verdict import Thresholds, verdict
from repro.errors import ReproError
from tests.audit.browser import Page, browser
from tests.audit.samples import HOSTILE, OWN, capture, sample

SECTIONS = ("executors", "groups", "growth", "histograms", "origins", "orders", "environments", "commands")


def page(audit: Audit) -> str:
    return html.render(View(audit, verdict(audit, Thresholds(max_ulp=4000), ("torch",)), ("torch",)))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Generator[Page]:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(sample()), encoding="utf-8")
    with browser() as made:
        made.open(path)
        yield made


def test_it_asks_for_nothing_and_complains_of_nothing(opened: Page) -> None:
    assert [address for address in opened.requests() if not address.startswith(("file:", "data:"))] == []
    assert len(opened.requests()) >= 1, "the page itself was asked for"
    assert opened.complaints() == []


@pytest.mark.parametrize("section", SECTIONS)
def test_sections_have_content(opened: Page, section: str) -> None:
    assert opened.evaluate(f"document.getElementById('{section}').innerText.trim().length") > 40
    assert opened.evaluate(f"document.querySelectorAll('nav a[href=\"#{section}\"]').length") == 1


def test_drawings_have_content(opened: Page) -> None:
    opened.resize(1280, 900)
    shapes = "[...document.querySelectorAll('#growth svg')].map(each => each.querySelectorAll('rect').length)"
    assert opened.evaluate(shapes) == [117, 117, 60], "a column for each value that differs, a drawing for each group"
    tallest = "Math.max(...[...document.querySelectorAll('#growth rect')].map(r => r.getBoundingClientRect().height))"
    assert 100 < opened.evaluate(tallest) < 200
    bars = "[...document.querySelectorAll('#histograms .fill')].filter(b => b.getBoundingClientRect().width > 0).length"
    assert opened.evaluate(bars) > 10


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_window(opened: Page, width: int, dark: bool, tmp_path: Path) -> None:
    opened.resize(width, 800, phone=width < 600, dark=dark)
    opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert opened.evaluate("document.documentElement.scrollWidth") == width
    outside = """[...document.querySelectorAll('body *')].filter(each => !each.closest('.scroll, pre, .skip')
        && each.getBoundingClientRect().right > innerWidth + 1).map(each => each.outerHTML.slice(0, 80))"""
    assert opened.evaluate(outside) == []
    opened.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_texts_can_be_read(opened: Page, dark: bool) -> None:
    """At least 4.5 to 1 between text and what lies behind it (WCAG 2.2, success criterion 1.4.3)."""
    opened.resize(1280, 900, dark=dark)
    contrasts = opened.evaluate(_CONTRASTS)
    assert len(contrasts) > 100
    assert [each for each in contrasts if each[0] < 4.5] == []


_CONTRASTS = """(() => {
  const parse = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => { const [r, g, b] = parse(colour).map(c => (c /= 255) <= 0.04045 ? c / 12.92
    : ((c + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = each => { for (; each; each = each.parentElement) { const colour = getComputedStyle(each)
    .backgroundColor; if (parse(colour)[3] !== 0) return colour; } return 'rgb(255, 255, 255)'; };
  return [...document.querySelectorAll('body *')]
    .filter(each => [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()))
    .filter(each => !each.closest('svg')).map(each => {
      const [a, b] = [light(getComputedStyle(each).color), light(ground(each))].sort((x, y) => y - x);
      return [Math.round((a + 0.05) / (b + 0.05) * 100) / 100, each.outerHTML.slice(0, 90)]; }); })()"""


def test_it_can_be_used_without_sight_or_mouse(opened: Page) -> None:
    assert opened.evaluate("document.documentElement.lang") == "en"
    unnamed = "[...document.querySelectorAll('svg, .scroll')].filter(e => !e.getAttribute('aria-label')).length"
    assert opened.evaluate(unnamed) == 0
    unreachable = "[...document.querySelectorAll('.scroll, pre')].filter(each => each.tabIndex < 0).length"
    assert opened.evaluate(unreachable) == 0
    headless = "[...document.querySelectorAll('table')].filter(each => !each.querySelector('th[scope]')).length"
    assert opened.evaluate(headless) == 0
    levels = "[...document.querySelectorAll('h1, h2, h3')].map(each => +each.tagName[1])"
    found = opened.evaluate(levels)
    assert found[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(found))


def test_names_are_shown_and_not_obeyed(opened: Page) -> None:
    assert opened.evaluate("document.querySelectorAll('script').length") == 0
    shown = HOSTILE.replace("\x1b", "\\x1b")
    assert opened.evaluate("document.body.textContent").count(shown) >= 2
    assert opened.evaluate("document.title") == "Audit of nano <gpt>"


def test_the_same_audit_gives_the_same_bytes() -> None:
    assert page(sample()) == page(sample())


def test_an_audit_of_which_nothing_ran_is_a_page_too() -> None:
    audit = sample()
    lost = [capture(each.executor, Outcome.FAILED, "no memory") for each in audit.records[0].captures]
    record = replace(audit.records[0], captures=tuple(lost))
    empty = page(replace(audit, records=(record,), pairs=(), groups=(("golden",),), probes=(), commands=()))
    assert "no executor ran" in empty
    assert "0 of 9 executors ran" in empty.replace("&#39;", "'")
    assert OWN[0].name.partition("[")[0] in empty


def test_without_jinja2_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ReproError, match="Jinja2") as caught:
        page(sample())
    assert "repro[report]" in str(caught.value)
