"""DOCX files as Markdown, each as Word would write it."""

import io
from base64 import b64decode

import docx
import pytest
from docx.oxml import OxmlElement, parse_xml
from docx.oxml.ns import nsdecls
from haystack.dataclasses import ByteStream

from haystack_adv_retrieval import FileReader
from haystack_adv_retrieval.docx_markdown import docx_to_markdown

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def document():
    return docx.Document()


def converted(document) -> str:
    file = io.BytesIO()
    document.save(file)
    return docx_to_markdown(file.getvalue())


def new_page(run):
    """Note, as Word does, that a page starts with a run."""
    run._r.insert(0, OxmlElement("w:lastRenderedPageBreak"))


def test_headings_and_paragraphs_are_apart_and_text_is_verbatim(document):
    document.add_heading("Handbook", 0)
    document.add_heading("Refunds", 1)
    paragraph = document.add_paragraph("Paid within ")
    paragraph.add_run("14").bold = True
    paragraph.add_run(" days, see *terms_of_use* <a>.\nNo fee.")
    document.add_heading("Stations", 2)
    document.add_paragraph("None.")
    assert converted(document) == (
        "# Handbook\n\n# Refunds\n\nPaid within 14 days, see *terms_of_use* <a>.  \nNo fee.\n\n## Stations\n\nNone."
    )


def test_lists_keep_their_depth(document):
    levels = "".join(
        f'<w:lvl w:ilvl="{level}"><w:numFmt w:val="{kind}"/><w:lvlText w:val="x"/></w:lvl>'
        for level, kind in enumerate(["decimal", "bullet"])
    )
    numbering = document.part.numbering_part.element
    numbering.insert(0, parse_xml(f'<w:abstractNum {nsdecls("w")} w:abstractNumId="77">{levels}</w:abstractNum>'))
    numbering.append(parse_xml(f'<w:num {nsdecls("w")} w:numId="77"><w:abstractNumId w:val="77"/></w:num>'))
    for text, level in [("wash", 0), ("warm", 1), ("twice", 1), ("dry", 0)]:
        number = f'<w:numPr {nsdecls("w")}><w:ilvl w:val="{level}"/><w:numId w:val="77"/></w:numPr>'
        document.add_paragraph(text)._p.get_or_add_pPr().append(parse_xml(number))
    document.add_paragraph("tea", style="List Bullet")
    assert converted(document) == "1. wash\n   - warm\n   - twice\n2. dry\n\n- tea"


def test_a_table_has_a_cell_for_each_row_and_column(document):
    table = document.add_table(3, 3)
    for row, cells in enumerate(["abc", "def", "ghi"]):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    table.cell(0, 1).merge(table.cell(0, 2)).text = "over two | wide"
    table.cell(1, 0).merge(table.cell(2, 0)).text = "over two high"
    table.cell(1, 1).text = "two\nlines"
    inner = table.cell(2, 2).add_table(1, 2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = "in | a", "table"
    assert [" ".join(line.split()) for line in converted(document).split("\n")] == [
        "| a | over two \\| wide | |",
        "| --- | --- | --- |",
        "| over two high | two lines | f |",
        "| over two high | h | i in \\| a table |",
    ]


def test_a_cell_that_reaches_from_the_header_into_the_body_stays_in_its_column(document):
    table = document.add_table(3, 2)
    for row in range(3):
        for column in range(2):
            table.cell(row, column).text = f"{row}{column}"
    table.rows[0]._tr.get_or_add_trPr().append(OxmlElement("w:tblHeader"))
    table.cell(0, 0).merge(table.cell(1, 0))
    lines = [line for line in converted(document).splitlines() if line.startswith("| ") and "--" not in line]
    assert [line.split("|")[2].strip() for line in lines] == ["01", "11", "21"]


def test_what_is_struck_out_is_marked(document):
    paragraph = document.add_paragraph("The fee is ")
    paragraph.add_run("12").font.strike = True
    paragraph.add_run(" 15 Euro.")
    assert converted(document).strip() == "The fee is ~~12~~ 15 Euro."


def test_pages_start_at_the_start_of_a_line(document):
    document.add_paragraph("Tea.")
    new_page(document.add_heading("Rye", 1).runs[0])
    paragraph = document.add_paragraph("It keeps ")
    new_page(paragraph.add_run("a week."))
    table = document.add_table(2, 1)
    new_page(table.cell(1, 0).paragraphs[0].add_run("row"))
    lines = converted(document).split("\n")
    assert [line for line in lines if "\f" in line] == ["\f# Rye", "\f", "\f| row |"]
    assert lines[lines.index("\f") - 1] == "It keeps a week."


def test_a_break_by_hand_counts_where_word_noted_no_page(document):
    document.add_paragraph("Tea.")
    document.add_page_break()
    paragraph = document.add_paragraph("Rye.")
    assert converted(document) == "Tea.\n\n\f\n\nRye."
    new_page(paragraph.runs[0])
    assert converted(document) == "Tea.\n\n\fRye."


def test_images_leave_nothing_and_an_empty_file_is_an_empty_text(document):
    assert converted(document) == ""
    document.add_picture(io.BytesIO(b64decode(PIXEL)))
    document.add_paragraph("Tea.")
    assert converted(document) == "Tea."


def test_a_file_reader_reads_it(document):
    document.add_heading("Tea", 1)
    file = io.BytesIO()
    document.save(file)
    sources = [ByteStream(data, meta={"file_path": "tea.docx"}) for data in (file.getvalue(), file.getvalue()[:900])]
    result = FileReader().run(sources=sources)
    assert [each.content for each in result["documents"]] == ["# Tea"]
    assert [each["reason"] for each in result["failed"]] == ["no text could be read from this .docx file"]
