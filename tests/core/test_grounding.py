import pytest

from haystack_adv_retrieval.core.grounding import unsupported

SOURCE = (
    "Refunds of Fieldpost cost 1,250 EUR and take 14 days, as Mira Olsen wrote in 2023. Batteries are covered for two "
    "years, at 2.5 % a month. The rule says: “no receipt, no refund”. It was sent to iCloud and to NASA."
)


@pytest.mark.parametrize(
    "summary",
    [
        "",
        "Refunds take 14 days.",
        "They cost 1250 EUR, or 1,250 EUR.",
        "Batteries are covered for 2 years.",
        "Batteries are covered for Two years at 2.5%.",
        "Fieldpost refunds, wrote Mira Olsen's office, take fourteen days.",
        'The rule is "no receipt, no  refund".',
        "However, nothing else is covered. Receipts are needed.",
        "Sent to NASA and iCloud.",
        'It said "Refunds of Fieldpost".',
    ],
)
def test_what_the_source_says_is_supported(summary):
    assert unsupported(summary, SOURCE) == []


@pytest.mark.parametrize(
    ("summary", "claims"),
    [
        ("Refunds take 15 days.", ["15"]),
        ("Refunds take ten days.", ["ten"]),
        ("They cost 12.50 EUR.", ["12.50"]),
        ("They cost 125 EUR, not 1,250.", ["125"]),
        ("At 25 % a month.", ["25"]),
        ("At .5 % or 1.4 days.", ["5", "1.4"]),
        ("It was wrote by Nia Olsen.", ["Nia"]),
        ("Refunds are made by (Acme) or Ärzte.", ["Acme", "Ärzte"]),
        ("It was sent to eBay and IBM.", ["eBay", "IBM"]),
        ('The rule says "no receipt, no money".', ["no receipt, no money"]),
        ("The rule says «keine Quittung».", ["Quittung", "keine Quittung"]),
        ("15 days, 15 days.", ["15"]),
    ],
)
def test_numbers_names_and_quotations_that_the_source_lacks_are_found(summary, claims):
    assert unsupported(summary, SOURCE) == claims


def test_a_source_supports_itself():
    assert unsupported(SOURCE, SOURCE) == []
