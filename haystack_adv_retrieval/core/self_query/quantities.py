"""Numbers with units, in digits or words: "under 90 minutes", "$2.5k", "half an hour", "two hundred"."""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from text_to_num import find_numbers

from haystack_adv_retrieval.core.sentences import without_surrogates

_MAGNITUDES = {"k": 1e3, "thousand": 1e3, "m": 1e6, "mn": 1e6, "million": 1e6, "bn": 1e9, "billion": 1e9}
_CURRENCIES = {
    "USD": ("$", "us$", "dollar", "buck"),
    "EUR": ("€", "euro"),
    "GBP": ("£", "pound sterling", "quid"),
    "JPY": ("¥", "yen"),
    "INR": ("₹", "rupee"),
    "CHF": ("franc", "sfr"),
}
_MONEY = {word.casefold(): code for code, words in _CURRENCIES.items() for word in (code, *words)}
# Units that are worth converting, by kind: names, and how many of the first unit each is.
_UNITS = {
    "time": "s sec second 1, min minute 60, h hr hour 3600, day 86400, wk week 604800, month 2629800, yr year 31557600",
    "length": "mm millimetre millimeter 1, cm centimetre centimeter 10, m metre meter 1e3, km kilometre kilometer 1e6, "
    "in inch 25.4, ft foot feet 304.8, yd yard 914.4, mi mile 1609344",
    "mass": "mg milligram 1, g gram 1e3, kg kilo kilogram 1e6, t ton tonne 1e9, "
    "oz ounce 28349.523125, lb pound 453592.37",
    "volume": "ml millilitre milliliter 1, cl centilitre centiliter 10, l litre liter 1e3",
    "data": "b byte 1, kb kilobyte 1e3, mb megabyte 1e6, gb gigabyte 1e9, tb terabyte 1e12",
    "energy": "kj kilojoule 1, kcal kilocalorie 4.184",
}
_SCALE = {
    name: (kind, float(factor))
    for kind, units in _UNITS.items()
    for *names, factor in map(str.split, units.split(","))
    for name in names
}

_PARTS = {"a": 1.0, "half a": 0.5, "quarter of a": 0.25, "a quarter of a": 0.25, "3 quarters of a": 0.75}
FILLER = "\x1f"  # white space that texts do not hold

# A number, perhaps with a sign of money before it, or a magnitude and one word of unit behind it.
QUANTITY = re.compile(
    r"(?:(?P<money>us\$|[$€£¥₹])\s*)?"
    r"(?P<number>(?<![\w.,])[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|(?<![\w.,])[-+]?\d+(?:\.\d+)?"
    r"|\bhalf\s+an?\b|\b(?:a\s+)?quarter\s+of\s+an?\b|\b3\s+quarters\s+of\s+an?\b|\ban?\b)"
    r"(?P<half>\s+and\s+a\s+half\b)?"
    r"(?:\s*(?P<magnitude>k|thousand|m|mn|million|bn|billion)\b\.?)?"
    r"(?(money)|(?:[\s-]*(?P<unit>%|°?[^\W\d_]+|[$€£¥₹](?!\d)))?(?P<more>\s+and\s+a\s+half\b)?)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Quantity:
    """
    A number as it was said.

    :param number: The number, without its magnitude.
    :param magnitude: "k", "million" and so on; empty if there is none. A lone "m" may also be the unit of length.
    :param unit: The unit as it was said; empty if there is none.
    """

    number: float
    magnitude: str = ""
    unit: str = ""

    @classmethod
    def said(cls, match: re.Match[str]) -> "Quantity":
        """Make the quantity of a match of `QUANTITY`."""
        number = re.sub(r"\s+", " ", match["number"].casefold()).replace(",", "")
        value = _PARTS.get(number.removesuffix("n"))
        value = (float(number) if value is None else value) + (0.5 if match["half"] or match["more"] else 0.0)
        return cls(value, (match["magnitude"] or "").casefold(), match["money"] or match["unit"] or "")

    def in_unit(self, unit: str, words: Collection[str] = ()) -> float:
        """
        Convert to the unit of a metadata field.

        :param unit: The field's unit, or nothing if it has none.
        :param words: Further words for the field's unit, such as its names.
        :returns: The number.
        :raises ValueError: If the unit is another one that cannot be converted.
        """
        value = self.number * _MAGNITUDES.get(self.magnitude, 1.0)
        wanted = {_singular(word) for word in (unit, *words)}
        if not self.unit and self.magnitude == "m" and _SCALE.get(_singular(unit), ("",))[0] == "length":
            return _converted(self.number, "m", unit)
        if not self.unit or _singular(self.unit) in wanted or _currency(self.unit) == _currency(unit) != "":
            return value
        return _converted(value, self.unit, unit)


def parse_quantity(text: str) -> Quantity:
    """
    Read a text as one quantity.

    :param text: Such as "1,200", "two hundred", "1.5 hours", "$2k" or "1e-3".
    :returns: The quantity.
    :raises ValueError: If it is none.
    """
    try:
        quantity = Quantity(float(text))
    except ValueError:
        match = QUANTITY.fullmatch(digits(text.strip()).strip())
        if not match or match[0].casefold() in ("a", "an"):
            raise ValueError("it is no number") from None
        quantity = Quantity.said(match)
    if not math.isfinite(quantity.number):
        raise ValueError("it is no finite number")
    return quantity


def is_unit(word: str) -> bool:
    """Tell whether a word is a unit that can be converted, or money."""
    return _singular(word) in _SCALE | _MONEY


def digits(text: str) -> str:
    """
    Write the numbers in words as digits.

    :param text: A text in English.
    :returns: The text at the same length: `FILLER` follows the digits where the words were longer.
    """
    tokens = [_Token(match) for match in re.finditer(r"[^\W_]+|[\W_]", without_surrogates(text))]
    for token, following in zip(tokens, tokens[2:], strict=False):
        following.part = following.part and not (token.text().isdigit() and following.text().casefold() in _MAGNITUDES)
    for found in reversed(find_numbers(tokens, "en", 1.0)):
        start, end = tokens[found.start].start, tokens[found.end - 1].end
        number = f"{found.value:g}" if found.value < 1e6 else f"{found.value:.0f}"
        if not found.is_ordinal and len(number) <= end - start:
            text = text[:start] + number.ljust(end - start, FILLER) + text[end:]
    return text


class _Token:
    """A word as text_to_num wants it, that knows where it stands."""

    def __init__(self, match: re.Match[str]) -> None:
        self._text, self.start, self.end, self.part = match.group(), match.start(), match.end(), True

    def text(self) -> str:
        return self._text

    def nt_separated(self, _: Any) -> bool:
        return False

    def not_a_number_part(self) -> bool:
        return not self.part


def _singular(word: str) -> str:
    """Bring a unit to the form in the tables."""
    word = word.casefold().removesuffix(".")
    for ending in ("", "s", "es"):
        if word.endswith(ending) and (form := word.removesuffix(ending)) in _SCALE | _MONEY:
            return form
    return word.removesuffix("s")


def _currency(word: str) -> str:
    return _MONEY.get(_singular(word), "")


def _converted(value: float, unit: str, wanted: str) -> float:
    (kind, factor), (wanted_kind, wanted_factor) = (_SCALE.get(_singular(one), ("", 1.0)) for one in (unit, wanted))
    if not kind or kind != wanted_kind:
        raise ValueError(f"{unit!r} is not {wanted!r}" if wanted else f"the field has no unit, so {unit!r} is unclear")
    return float(f"{value * factor / wanted_factor:.12g}")
