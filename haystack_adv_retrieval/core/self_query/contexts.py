"""Where words that could be conditions are none: in what a text is about, and in questions for a fact."""

import re
from functools import partial

# Where words are no conditions: a pattern over kinds, and which kinds in it become which other.
_TOPICS = [
    (r"M(?=s*[PN])", "M", "c"),
    (r"(?<=[PN])M", "M", "p"),
    (r"M", "M", "i"),
    (r"B(?=[siu]*[VPN])", "B", "x"),  # "in any colour but red"
    (r"B", "B", "w"),
    (r"m(?=s*N)", "m", "c"),
    (r"m", "m", "i"),
    (r"y(?!s*P)", "y", "s"),
    (r"f(?!s*[PN])", "f", "i"),
    (r"O(?=s*P)", "O", "s"),
    (r"O", "O", "A"),
    (r"A[shuwaoV~]*", "V~", "w"),  # "about German beer": what a text is about is to be searched
    (r"us*V(?=[w~])", "V", "w"),  # "the history of French cooking"
    (r"V(?=us*[w~])", "V", "w"),  # "the marketing of ferries"
]
# "How do I make a jacket waterproof?" asks about a kind of thing, not for texts that have this value.
_GENERAL = re.compile(r"\W*(?:how|why|what\s+(?:is|are|does)\s+an?|(?:is|are|was|were)(?!\s+there\b))\b", re.IGNORECASE)
# "When must customers be told?" asks for a fact, and "Which accounts may people share?" does if no value comes first.
_FACT = re.compile(
    r"(?:^|[.!?:]\s)\W*(?:(?:and|but|in|on|at|for|to|by|of|until|since|from|under|with|within)\s)?"
    r"(?:(?P<which>which|what)|when|where|who|whom|whose|how|(?:can|could|may|must|shall|should|will|would|do|does|did"
    r"|is|are|was|were|has|have)(?!\s+(?:you|there)\b))\b",
    re.IGNORECASE,
)
# There, a value counts only beside words for documents or other values, and a cue only before a value.
_SIDE_BY_SIDE = re.compile(r"[VhE](?:[siuF]*[VhE])+|[VF]")
_IDLE_CUE = re.compile(r"[cbnt](?![shiu]*[PNVFE~])")


def in_context(kinds: str, question: str) -> str:
    """
    Turn the words that are no conditions where they stand into other words.

    :param kinds: The kinds of the words of a question, as in `words.Word`.
    :param question: The question.
    :returns: As many kinds, some of them changed.
    """
    general = _GENERAL.match(question)
    if general:
        kinds = kinds.replace("V", "w")
    for pattern, some, other in _TOPICS:
        kinds = re.sub(pattern, partial(_changed, some, other), kinds)
    fact = _FACT.search(question)
    if general or (fact and (not fact["which"] or re.match("[siuft]*[w~]", kinds))):
        kinds = _SIDE_BY_SIDE.sub(lambda said: said.group() if len(said.group()) > 1 else "w", kinds)
        kinds = _IDLE_CUE.sub("s", kinds)
    return kinds


def _changed(kinds: str, other: str, match: re.Match[str]) -> str:
    return re.sub(f"[{kinds}]", other, match.group())
