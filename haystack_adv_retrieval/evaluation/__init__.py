"""
Prove that a pattern helps on your own documents: strategies side by side on a labelled set.

```python
from haystack_adv_retrieval import load_pipeline
from haystack_adv_retrieval.evaluation import evaluate, load_questions, write_report

questions = load_questions("questions.jsonl", texts)  # texts: {source_id: text}
strategies = {name: load_pipeline(name) for name in ("parent", "sentence_window")}
evaluation = evaluate(strategies, questions, baseline="parent")
print(evaluation.summary())
write_report("report.html", evaluation, texts)
```
"""

from haystack_adv_retrieval.evaluation.drafting import Drafts, draft_questions
from haystack_adv_retrieval.evaluation.evaluate import evaluate
from haystack_adv_retrieval.evaluation.indexes import build_index, fixed_size_baseline, read_sources
from haystack_adv_retrieval.evaluation.judge import Judge
from haystack_adv_retrieval.evaluation.questions import Question, grouped_by, load_questions, save_questions
from haystack_adv_retrieval.evaluation.report import write_report
from haystack_adv_retrieval.evaluation.results import Evaluation, Outcome
from haystack_adv_retrieval.evaluation.strategies import Answer, Strategy, pipeline_strategy
from haystack_adv_retrieval.evaluation.sweep import Sweep, sweep

__all__ = [
    "Answer",
    "Drafts",
    "Evaluation",
    "Judge",
    "Outcome",
    "Question",
    "Strategy",
    "Sweep",
    "build_index",
    "draft_questions",
    "evaluate",
    "fixed_size_baseline",
    "grouped_by",
    "load_questions",
    "pipeline_strategy",
    "read_sources",
    "save_questions",
    "sweep",
    "write_report",
]
