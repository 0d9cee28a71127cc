import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from haystack import Document

from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.evaluation import plots
from haystack_adv_retrieval.evaluation.evaluate import evaluate
from haystack_adv_retrieval.evaluation.plots import Point
from haystack_adv_retrieval.evaluation.report import render_report, write_report
from haystack_adv_retrieval.evaluation.strategies import Answer

CHROMIUM = Path("/usr/bin/chromium")
FIGURES = [
    "Recall against context budget",
    "Quality against latency",
    "Wins and losses",
    "Ranks before and after reranking",
    "Section length against summary length",
]


@pytest.fixture
def evaluation(bm25, questions, sources):
    """Plain chunks against results that were reranked, compressed and joined by a summary and an unknown text."""

    def rich(question):
        [wanted] = [one for one in questions if one.text == question]
        [(source, [gold])] = wanted.spans.items()
        kept = [(0, 7), (gold.start, gold.end), (gold.end + 3, gold.end + 8)]
        content = " ".join(sources[source][start:end] for start, end in kept)
        meta = {"source_id": source, "split_idx_start": 0, "split_idx_end": len(sources[source]), "kept_spans": kept}
        ranks = {"initial_rank": 3, "rank": 1, "matched_spans": [[gold.start - 4, gold.start + 6, 0.9]]}
        return Answer(
            [
                Document(content=content, score=0.9, meta={**meta, **ranks}),
                Document(content="<script>alert(1)</script>", meta={"source_id": "<elsewhere>"}),
            ],
            reply="A <b>bold</b> reply",
        )

    questions[0] = replace(questions[0], text="How <i>many</i> days & why?", answer="28 </script> days", drafted=True)
    return evaluate({"plain <words>": bm25(10, top_k=1), "rich": rich}, questions, budgets=(40, 80, 160))


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM.exists():
        pytest.skip("needs Chromium")
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        yield browser
        browser.close()


@pytest.fixture
def page(browser, evaluation, sources, tmp_path):
    lengths = {"summary": (300, 60)}
    outcomes = [replace(one, trace=replace(one.trace, summaries=lengths)) for one in evaluation.outcomes["rich"]]
    evaluation = replace(evaluation, outcomes={**evaluation.outcomes, "rich": outcomes})
    write_report(tmp_path / "report.html", evaluation, sources, title="Desks & <leave>")
    complaints = []
    page = browser.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(f"{error.message} {error.stack}"))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("request", lambda request: complaints.append(request.url) if "file:" not in request.url else None)
    page.goto((tmp_path / "report.html").as_uri())
    yield page
    page.close()
    assert complaints == []


def marked(page, side, kind):
    return page.locator(f"#{side} + .context .result:not(.miss) {kind}").all_inner_texts()


def test_every_plot_is_drawn_and_lies_within_the_page(page):
    assert page.locator("figure h3").all_inner_texts() == FIGURES
    for svg in page.locator("figure svg").all():
        assert svg.bounding_box()["width"] > 200
        assert svg.locator("line, polyline, rect, circle").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_gold_matched_and_left_out_text_is_highlighted_in_the_source(page, sources):
    page.goto(page.url + "#q1")
    text = sources["handbook/leave.md"]
    gold = text.index("lapse at the end of April")
    assert page.locator("#question").inner_text() == "When does unused leave lapse?"
    assert marked(page, "right", "mark.gold.matched") == ["lapse "]
    assert "".join(marked(page, "right", "mark.gold")) == "lapse at the end of April"
    assert "".join(marked(page, "right", "mark.matched")) == text[gold - 4 : gold + 6]
    kept = [Span(0, 7), Span(gold, gold + 25), Span(gold + 28, gold + 33)]
    assert "".join(page.locator("#right + .context .dropped").all_text_contents()) == "".join(
        character for place, character in enumerate(text) if not any(a <= place < b for a, b in kept)
    )
    assert page.locator("#right + .context .result pre").first.text_content() == text


def test_text_after_an_emoji_is_highlighted_at_the_right_characters(page):
    page.goto(page.url + "#q0")
    assert "".join(marked(page, "right", "mark.gold")) == "28 days of leave a year"


def test_gold_that_was_not_retrieved_is_shown_as_such(page, evaluation):
    missing = next(
        number
        for number, (one, question) in enumerate(
            zip(evaluation.outcomes["plain <words>"], evaluation.questions, strict=True)
        )
        if one.scores["recall@top5"] == 0
    )
    page.goto(f"{page.url}#q{missing}")
    assert page.locator("#left + .context .result.miss mark.gold").count() == 1


def test_sources_are_named_without_the_folder_that_they_share(page):
    assert page.locator("#about").inner_text().startswith("facts · drafted by a model · gold in leave.md · answer: 28")
    assert page.locator("#right + .context header").first.inner_text().startswith("#1 leave.md · 0–")


def test_markup_in_texts_stays_text(page):
    assert page.locator("h1").inner_text() == "Desks & <leave>"
    assert page.locator("#question").inner_text() == "How <i>many</i> days & why?"
    assert "28 </script> days" in page.locator("#about").inner_text()
    context = page.locator("#right + .context")
    assert "A <b>bold</b> reply" in context.inner_text()
    assert "<script>alert(1)</script>" in context.inner_text()


def test_questions_can_be_searched_ordered_and_reached_from_a_bar(page):
    page.fill("#search", "HOTEL")
    assert page.locator("#questions li").all_inner_texts()[0].startswith("What may a hotel cost?")
    page.fill("#search", "")
    page.select_option("#order", "win")
    gains = [
        float(text.replace("−", "-") or 0) for text in page.locator("#questions li span:last-child").all_inner_texts()
    ]
    assert gains == sorted(gains, reverse=True)
    bar = page.locator("figure a").last
    bar.click()
    number = int(bar.get_attribute("href")[2:])
    assert page.locator("#question").inner_text() == page.evaluate(f"data.questions[{number}].text")
    assert page.locator("#questions [aria-current=true]").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(page, scheme):
    page.emulate_media(color_scheme=scheme)
    contrast = """selector => {
        const part = color => color.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
            .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        const light = color => { const [r, g, b] = part(color); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const node = document.querySelector(selector);
        const back = getComputedStyle(document.querySelector("figure")).backgroundColor;
        const [a, b] = [getComputedStyle(node).color, back].map(light).sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05);
    }"""
    for selector in ["h1", ".quiet", "svg .name.c0", "svg .name.c1"]:
        assert page.evaluate(contrast, selector) >= 4.5, selector


def test_the_page_says_how_many_questions_a_model_drafted(evaluation, sources):
    assert "1 of the questions were drafted by a model" in render_report(evaluation, sources)


def test_the_report_is_the_same_every_time_and_asks_no_network(evaluation, sources):
    text = render_report(evaluation, sources)
    assert text == render_report(evaluation, sources)
    assert not re.search(r"""(?:src|href)=["'](?!#)""", text)
    assert "default-src 'none'" in text


def test_sources_without_text_are_shown_by_what_the_results_hold(evaluation):
    assert "handbook/travel.md" in render_report(evaluation, {})


def test_broken_text_can_be_written(evaluation, sources, tmp_path):
    write_report(tmp_path / "r.html", evaluation, sources, title="half \ud83c emoji")
    assert (tmp_path / "r.html").read_text("utf-8").count("half &#55356; emoji") == 2


@pytest.mark.parametrize(
    "svg",
    [
        plots.lines({"a": [Point(500, 1.0)]}, label="one point", x="x", y="y"),
        plots.lines({f"n{i}": [Point(1, 0.5), Point(9, 0.5)] for i in range(30)}, label="crowded", x="x", y="y"),
        plots.scatter({"<&>": Point(0.01, 0.0, low=float("-inf"), high=float("inf"))}, label="<&>", x="x", y="y"),
        plots.cloud([Point(5, 5)], label="same", x="x", y="y"),
        plots.bars([Point(0, 0.0)], label="tie"),
        plots.slopes([(1, 1)], label="one rank"),
    ],
)
def test_plots_of_odd_data_are_well_formed_and_finite(svg):
    ElementTree.fromstring(svg)
    assert not re.search(r'"[^"]*\b(nan|inf)\b[^"]*"', svg)
