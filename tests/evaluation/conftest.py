import pytest
from haystack import Document, Pipeline
from haystack.components.preprocessors import DocumentSplitter
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

from haystack_adv_retrieval.evaluation.questions import Question, locate

SOURCES = {
    "handbook/leave.md": (
        "# Leave 🏖\n\nEveryone has 28 days of leave a year. Leave for the summer is asked for in March.\n\n"
        "<b>Unused</b> leave & overtime lapse at the end of April, unless illness kept you from taking it.\n"
    ),
    "handbook/travel.md": (
        "# Travel\n\nTrains are booked by the office, first class from four hours on.\n\n"
        "A hotel may cost up to 140 euros a night. Receipts are handed in within a month.\n"
    ),
    "handbook/desk.md": (
        "# The desk\n\nDesks are shared. Lockers stand on the second floor; keys are with Noor.\n\n"
        "Screens are switched off in the evening, and windows are closed by whoever leaves last.\n"
    ),
}


def ask(text, source, *quotes, group=None):
    spans = tuple(locate(quote, SOURCES[source]) for quote in quotes)
    return Question(text, frozenset({source}), {source: spans}, group=group)


@pytest.fixture(scope="session")
def sources():
    return dict(SOURCES)


@pytest.fixture
def questions():
    return [
        ask("How many days of leave are there?", "handbook/leave.md", "28 days of leave a year", group="facts"),
        ask("When does unused leave lapse?", "handbook/leave.md", "lapse at the end of April", group="dates"),
        ask("What may a hotel cost?", "handbook/travel.md", "up to 140 euros a night", group="facts"),
        ask("Who has the locker keys?", "handbook/desk.md", "keys are with Noor", group="facts"),
        ask("By when are receipts handed in?", "handbook/travel.md", "Receipts are handed in within a month"),
    ]


@pytest.fixture
def bm25():
    def build(words, top_k=10):
        store = InMemoryDocumentStore()
        splitter = DocumentSplitter(split_by="word", split_length=words, split_overlap=0)
        documents = [Document(id=source, content=text) for source, text in SOURCES.items()]
        store.write_documents(splitter.run(documents=documents)["documents"])
        pipeline = Pipeline()
        pipeline.add_component("retriever", InMemoryBM25Retriever(store, top_k=top_k))
        return pipeline

    return build
