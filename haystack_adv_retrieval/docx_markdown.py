"""Text of DOCX files as Markdown: headings, lists and tables, and what Word knows of its pages."""

import re
from copy import copy
from io import BytesIO
from itertools import chain, pairwise
from zipfile import ZipFile

import mammoth
from bs4 import BeautifulSoup
from markdownify import MarkdownConverter

_STYLES = """p[style-name='Title'] => h1:fresh
br[type='page'] => hr"""
_BODY = "word/document.xml"
_NOTED_PAGE, _PAGE = b"<w:lastRenderedPageBreak/>", b'<w:br w:type="page"/>'
_MOST_COLUMNS = 63  # in Word, so a file that says more is broken
_MARK = "\0"  # a new page, until its place is found; no text of a DOCX file holds it
_STARTS_LINE = re.compile(rf"^((?:[#|*+-]|\d+\.| )*)({_MARK}+)", re.MULTILINE)
_INSIDE_LINE = re.compile(rf"^[^\n{_MARK}]*{_MARK}[^\n]*\n?", re.MULTILINE)


def docx_to_markdown(data: bytes) -> str:
    """
    Convert a DOCX file.

    Nothing is escaped but "|" in tables, and emphasis, links and images leave their text alone, so that what the file
    says stands verbatim in the text; what is struck out stands between "~~". A cell that spans rows or columns stays
    the first of its columns, and is repeated in each of its rows. A form feed is put at the start of the line with
    which a page starts, or of the next line where it starts inside one.

    :param data: The file's content.
    :returns: The text.
    """
    html = mammoth.convert_to_html(BytesIO(_with_pages(data)), style_map=_STYLES, convert_image=lambda _image: [])
    soup = BeautifulSoup(html.value, "html.parser")
    for page in soup.find_all("hr"):
        page.replace_with(_MARK)
    _prepare_tables(soup)
    text: str = MarkdownConverter(
        heading_style="ATX",
        bullets="-",
        strip=["a", "em", "strong"],
        escape_asterisks=False,
        escape_underscores=False,
        table_infer_header=True,
    ).convert_soup(soup)
    text = _STARTS_LINE.sub(lambda found: "\f" * len(found[2]) + found[1], text)
    return _INSIDE_LINE.sub(lambda found: found[0].replace(_MARK, "") + "\f" * found[0].count(_MARK), text)


def _with_pages(data: bytes) -> bytes:
    """Turn the page breaks that Word noted when it last laid the text out into breaks that mammoth sees."""
    pages = BytesIO()
    with ZipFile(BytesIO(data)) as old, ZipFile(pages, "w") as new:
        for item in old.infolist():
            content = old.read(item) if not item.filename.startswith("word/media/") else b""
            if item.filename == _BODY and _NOTED_PAGE in content:  # Word notes a page behind a break by hand, too
                content = content.replace(_PAGE, b"").replace(_NOTED_PAGE, _PAGE)
            new.writestr(item.filename, content)
    return pages.getvalue()


def _prepare_tables(soup: BeautifulSoup) -> None:
    """Leave tables that Markdown can say: a cell for each row and column, no table inside one, and "|" only between."""
    for part in soup.select(":is(td, th) :is(table, thead, tbody, tr, td, th)"):
        part.unwrap()
    for text in soup.find_all(string=re.compile(r"\|")):
        if text.find_parent("table"):
            text.replace_with(text.replace("|", "\\|"))
    for cell in soup.find_all(colspan=True):
        columns = min(int(str(cell.attrs.pop("colspan"))), _MOST_COLUMNS)
        for _ in range(columns - 1):
            empty = copy(cell)
            empty.clear()
            cell.insert_after(empty)
    for row, below in chain.from_iterable(pairwise(table.find_all("tr")) for table in soup.find_all("table")):
        for column, cell in enumerate(row.find_all(["td", "th"], recursive=False)):
            rows = int(str(cell.attrs.pop("rowspan", 1)))
            if rows > 1:
                repeated = copy(cell)
                repeated["rowspan"] = str(rows - 1)
                below.insert(column, repeated)
