"""Texts that splitting is tried on: generated ones of every kind, and the example handbook."""

from pathlib import Path

from hypothesis import strategies as st

HANDBOOK = Path(__file__).parents[1] / "examples" / "handbook"

PIECES = [
    *(
        "word ",
        "Dr. Who said “Go.” Then he left. ",
        "a, b; c: d — e ",
        "!? ",
        "... ",
        "x" * 50,
        "1,000 ",
        "e.g. this ",
        '"a',
    ),
    *(
        "\n",
        "\n\n",
        "\r\n",
        "\r\n\r\n",
        "\r",
        "\t",
        "  ",
        "\f",
        "\x00",
        "\x1c",
        "\x85",
        "\xa0",
        "\u2028",
        "\u200b",
        "\ufeff",
    ),
    *(
        "# Head\n",
        "## Sub\n",
        "Title\n===\n",
        "---\n",
        "> quote\n",
        "- item\n",
        "1. one\n",
        "    indented\n",
        "| lone\n",
    ),
    *(
        "```\ncode # x\n  y\n```\n",
        "~~~\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n",
        "---\ntitle: x\n---\n",
        "<div>\n",
    ),
    *(
        "山の上。",
        "「雪が降る。」",
        "नमस्ते। ",
        "क्ष्म",
        "한국어 ",
        "\u1112\u1161\u11ab",
        "กำ",
        "مرحبا؟ ",
        "\u202e",
        "Zoë ",
    ),
    *("👩‍🚒", "🧗🏽‍♀️", "🇵🇹", "🇵", "e\u0301", "\u0301", "\u200d", "\ufe0f", "\u0600", "\ud800", "\udfff"),
]


@st.composite
def texts(draw: st.DrawFn, longest: int = 25) -> str:
    """Draw a text in which kinds of text follow each other that seldom do, some of them many times."""
    runs = st.tuples(st.sampled_from(PIECES), st.sampled_from([1, 1, 1, 2, 30]))
    return "".join(piece * times for piece, times in draw(st.lists(runs, max_size=longest)))


def handbook_texts() -> dict[str, str]:
    """Read the texts of the handbook, with their line ends as they are."""
    paths = sorted(path for path in HANDBOOK.iterdir() if path.suffix in {".md", ".txt", ".html"})
    return {path.name: path.read_bytes().decode() for path in paths}
