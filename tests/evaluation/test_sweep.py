import inspect
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from haystack import Document

from haystack_adv_retrieval import load_pipeline
from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.evaluation.questions import Question
from haystack_adv_retrieval.evaluation.strategies import Answer
from haystack_adv_retrieval.evaluation.sweep import combinations, split, sweep


@pytest.fixture
def many():
    """Forty questions in two groups; the gold of each is ten characters at its own place."""
    return [
        Question(
            str(number), frozenset({"a"}), {"a": (Span(100 * number, 100 * number + 10),)}, group="ab"[number % 4 == 0]
        )
        for number in range(40)
    ]


def build(settings):
    """A search that sees as far as it is set to, and refuses to see backwards."""
    reach = settings.get("reach", 3)
    if reach < 0:
        raise ValueError(f"reach must not be negative, got {reach}")

    def ask(question):
        start = 100 * int(question)
        meta = {"source_id": "a", "split_idx_start": start, "split_idx_end": start + reach}
        return Answer([Document(content="x" * reach, meta=meta)])

    return ask


def test_the_best_settings_are_compared_with_the_default_on_unseen_questions(many):
    tried = []
    result = sweep(build, {"reach": [1, 8, 5]}, many, advance=tried.append)
    assert [trial.settings for trial in tried] == [{}, {"reach": 1}, {"reach": 8}, {"reach": 5}]
    assert [(trial.settings, trial.score) for trial in result.trials] == [
        ({"reach": 8}, pytest.approx(0.8)),
        ({"reach": 5}, pytest.approx(0.5)),
        ({}, pytest.approx(0.3)),
        ({"reach": 1}, pytest.approx(0.1)),
    ]
    seen, unseen = ({question.text for question in part} for part in (result.tuning, result.held_out.questions))
    assert len(seen) == len(unseen) == 20
    assert not seen & unseen
    assert result.held_out.comparison("chosen", "recall@2000").verdict == "better"


def test_settings_that_do_not_go_together_are_skipped(many):
    result = sweep(build, {"reach": [-1, 4]}, many)
    assert result.best.settings == {"reach": 4}
    assert result.trials[-1].error == "reach must not be negative, got -1"


def test_the_default_is_kept_where_nothing_is_better(many):
    result = sweep(build, {"reach": [3, 2]}, many)
    assert result.best.settings == {}
    assert list(result.held_out.outcomes) == ["default"]


def test_another_metric_can_be_maximised(many):
    assert sweep(build, {"reach": [2, 9]}, many, metric="precision@top5").best.score == 1
    with pytest.raises(ValueError, match=r"metric must be one of .*got 'accuracy'"):
        sweep(build, {"reach": [2]}, many, metric="accuracy")


def test_a_grid_is_complete_and_its_last_setting_changes_fastest():
    assert combinations({"a": [1, 2], "b": "xy"}) == [{"a": a, "b": b} for a in (1, 2) for b in "xy"]


def test_random_settings_are_distinct_and_depend_on_the_seed_alone():
    space = {name: range(100) for name in "abcdefgh"}
    drawn = combinations(space, trials=50, seed=4)
    assert len({tuple(settings.items()) for settings in drawn}) == 50
    assert drawn == combinations(space, trials=50, seed=4)
    assert drawn != combinations(space, trials=50, seed=5)
    assert combinations({"a": [1, 2]}, trials=9) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("space", [{}, {"a": [1], "b": []}])
def test_a_space_without_values_is_refused(space):
    with pytest.raises(ValueError, match="space must name values"):
        combinations(space)


def test_every_group_is_split_in_the_same_proportion(many):
    tuning, held_out = split(many, 0.3, seed=1)
    assert (len(tuning), len(held_out)) == (28, 12)
    assert sum(question.group == "b" for question in held_out) == 3
    assert split(many, 0.3, seed=1) == (tuning, held_out)
    assert split(many, 0.3, seed=2) != (tuning, held_out)


@pytest.mark.parametrize("share", [0, 1, 0.01])
def test_a_split_needs_questions_on_both_sides(many, share):
    with pytest.raises(ValueError, match="held_out must"):
        split(many, share)


def test_the_settings_of_the_example_are_some_of_the_pipeline():
    sizes = []

    def build_all(build, space, _questions):
        sizes.extend(build(each).get_component("expander").window_size for each in combinations(space))
        return SimpleNamespace(best=Mock(), held_out=Mock())

    example = inspect.cleandoc(inspect.getdoc(sweep).split("```python")[1].split("```")[0])
    exec(example, {"load_pipeline": load_pipeline, "sweep": build_all, "questions": []})
    assert sizes == [1, 1, 2, 2, 3, 3]
