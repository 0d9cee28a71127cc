"""
Writes handbook/warranty.pdf, the one document of the example handbook that is a PDF.

Needs fpdf2 and nothing else: `python examples/make_pdf.py [target]`. The file is committed, so only a change of the
text calls for a new run. The same text and version of fpdf2 give the same bytes.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

from fpdf import FPDF

TEXT = """\
# Warranty and service conditions

Orrelune Instruments, Harrowmouth. Edition of April 2022. These conditions are enclosed with every
product. They describe a promise that we make in addition to the rights that the law gives you
against the seller; those are not touched.

## 1. What we promise

We promise that a product which is mounted and used as its manual says will do what its data sheet
says for the warranty time in table 1. If it doesn't, we repair it or replace it at our choice. The
time begins with the delivery to the first user. It does not begin again when the product is sold
on, but it passes to the new owner, provided the transfer has been registered within 60 days.

Table 1: Warranty times in months

| Product | Without registration | Registered | Used on a ship |
| Fieldpost 200 | 24 | 36 | 12 |
| Fieldpost 400 | 24 | 48 | 12 |
| Marl S | 12 | 18 | none |
| Marl C | 12 | 24 | none |
| Knot | 24 | 36 | 24 |
| Batteries of all kinds | 6 | 12 | 6 |

A product counts as registered if its serial number was entered in Almanac within 30 days of
delivery. Products that are registered later keep the shorter time. For them there is one way out:
whoever sends us the first 30 days of the log, and with it shows that the product was in service
from the start, is treated as if it had been registered in time.

## 2. What is not covered

The promise does not extend to

- damage by lightning, flood, rodents, livestock or vehicles;
- sulphur, copper and other sprays on the humidity sensor;
- batteries that were discharged completely, unless this happened through a fault of the station itself;
- openings of the housing by persons who are not authorised;
- marks that do not affect the measurement.

Lightning is treated more kindly if the station was earthed with the kit E-4. In this case we bear
half of the cost of the repair, once for each station. The owner has to send a photograph that was
taken before the damage and that shows the kit in place.

A broken seal is taken as proof of an opening. You may show that it broke in another way, and we
accept any reasonable evidence. The burden of this lies with you.

## 3. How to make a claim

Report the fault within 60 days after you have noticed it, through Almanac or by telephone. We ask
for the log of the last seven days, since most faults can be recognised in it. If the log can be
sent and is withheld, we may refuse the claim. We then open a case and tell you within three working
days whether we need the product.

Send the product only after that. Once the case has been accepted, we pay for both ways; in other
cases for neither. The repair takes no more than 15 working days from arrival in Pellow. If it takes
longer, you get a station on loan until it is done. Between 1 March and 15 May the loan is given
from the first day, because a farm without frost warnings cannot wait.

The loan has to be returned within 14 days after your own station has been delivered. After this we
charge 5 euros a day, up to the price of a refurbished one. That is also what we charge when the
loan comes back with grade D or E.

## 4. Repair, replacement, refund

We may replace a product by a refurbished one of the same kind if yours is older than six months. In
the first six months it is always replaced by a new one. If the same fault returns after two
repairs, you can choose between a third repair and the current value. This is the price paid,
reduced by one forty-eighth for every full month of use, yet never less than a quarter of it.

Parts replaced carry the remainder of the warranty time, at least twelve months. For batteries the
minimum is three months.

The warranty of the calibration is separate. Air temperature and rain are to stay within the limits
of the data sheet for 24 months, and humidity for 12. Should a comparison in our laboratory show a
deviation that is larger, we calibrate again free of charge. If it shows none, we charge 60 euros
for the comparison, but not the first time.

## 5. Service contracts

Those who cannot be without a station may sign a service contract. There are three, and all of them
run for a year and renew themselves unless cancelled 30 days ahead.

Table 2: Service contracts

| Contract | Answer within | Exchange unit | Visit on site | Euros per station and year |
| Basic | 2 working days | by parcel, 3 days | no | 18 |
| Plus | 8 hours | by parcel, next day | once a year | 46 |
| Frost | 1 hour, day and night | by courier, same day | twice a year | 94 |

In the contract Frost the times hold from 1 March to 31 May only. In the other months it is served
like Plus. The courier comes to places within 120 kilometres of Harrowmouth, Pellow or Stennet Bay.
Farther away the exchange unit is sent for the next morning, and the yearly price is reduced by 20
euros.

If we miss a time that was promised, a twelfth of the yearly price is credited for each case. If we
miss it three times in one contract year, you may end the contract at once and get back the share
for the rest of the year. Delays through snow or floods do not count, as long as we tell you about
them before the time has run out.

A contract may cover some of your stations and leave out others. It cannot be signed for stations
that are older than eight years or already broken. Stations between five and eight years old are
accepted after an inspection, the price of which is 30 euros and is taken off the first year.

## 6. Discontinued products

When we stop making a product, we announce it a year ahead. Parts remain available for eight years
after the last one was built, firmware with security fixes for five. Almanac accepts the data of a
station for as long as it sends them, even after that. We do not promise this for gateways, since
old radio keys have to be switched off when they are no longer safe. In this event owners of a
registered gateway receive a new one at half the price.

## 7. Final remarks

Our liability for lost harvests is limited as the law allows and the order form says. A frost alarm
is an aid; it does not replace the eyes of the grower. If one of these conditions turns out to be
void, the others stay in force. Conditions of an earlier edition hold for products delivered before
this one appeared, but where this one is better for you, you may rely on it.
"""

SIZES = {"#": 18, "##": 13}


def main(target: Path) -> None:
    """Sets TEXT, whose marks are a small part of Markdown's, and writes it to `target`."""
    pdf = FPDF(format="A4")
    pdf.set_creation_date(datetime(2022, 4, 1, tzinfo=UTC))
    pdf.set_compression(False)
    pdf.set_title("Warranty and service conditions")
    pdf.set_margin(25)
    pdf.set_auto_page_break(True, margin=25)
    pdf.add_page()
    for block in TEXT.strip().split("\n\n"):
        first, *_ = block.split(maxsplit=1)
        if first in SIZES:
            pdf.set_font("Helvetica", style="B", size=SIZES[first])
            pdf.multi_cell(0, 9, block.removeprefix(first).strip(), new_x="LMARGIN", new_y="NEXT")
            continue
        pdf.set_font("Helvetica", size=10)
        if first == "|":
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
            widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
            pdf.set_font_size(9)
            with pdf.table(rows, col_widths=widths, line_height=6):
                pass
        else:
            for line in block.splitlines() if first == "-" else [" ".join(block.split())]:
                pdf.multi_cell(0, 5, line, align="L", new_x="LMARGIN", new_y="NEXT")
        pdf.ln(3)
    pdf.output(str(target))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "handbook" / "warranty.pdf")
