"""Our engine and Go's own, side by side: what we claim to render, we render as Go does, byte for byte."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from planform.gotemplate.builtins import builtins
from planform.gotemplate.helm import helm
from planform.gotemplate.lexer import tokenize
from planform.gotemplate.sprig import REFUSED, sprig
from tests.gotemplate import corpus, engine, oracle
from tests.gotemplate.calls import generate_call
from tests.gotemplate.generator import generate

QUICK = 500
ALL = 5_000
CALLS = 1_500

pytestmark = pytest.mark.xdist_group("gotemplate-oracle")


def disagreements(questions: list[oracle.Question]) -> list[str]:
    answers = oracle.ask(questions)
    compared = (engine.disagreement(q, engine.answer(q), a) for q, a in zip(questions, answers, strict=True))
    return [text for text in compared if text]


@pytest.mark.parametrize("name", corpus.names())
def test_the_corpus_renders_as_go_renders_it(name: str) -> None:
    assert disagreements(corpus.questions(name)) == []


def test_the_corpus_has_at_least_600_templates() -> None:
    assert sum(len(corpus.questions(name)) for name in corpus.names()) >= 600


def test_generated_templates_render_as_go_renders_them() -> None:
    assert disagreements([generate(seed) for seed in range(QUICK)]) == []


@pytest.mark.long
def test_all_generated_templates_render_as_go_renders_them() -> None:
    assert disagreements([generate(seed) for seed in range(QUICK, ALL)]) == []


def test_functions_take_and_refuse_arguments_as_in_go() -> None:
    assert disagreements([generate_call(seed) for seed in range(CALLS)]) == []


@pytest.mark.long
def test_functions_take_and_refuse_many_more_arguments_as_in_go() -> None:
    assert disagreements([generate_call(seed) for seed in range(CALLS, 20 * CALLS)]) == []


def test_generated_templates_are_neither_all_right_nor_all_wrong() -> None:
    kinds = Counter(engine.answer(generate(seed)).kind for seed in range(100))
    assert kinds["ok"] > 33
    assert kinds["exec"] > 10


def test_every_function_of_sprig_is_there_with_its_go_type_or_refused_by_name() -> None:
    theirs = oracle.function_types()
    assert set(theirs) == set(sprig) | set(REFUSED)
    assert {name: sprig[name].go for name in sprig} == {name: theirs[name] for name in sprig}


def test_no_refused_function_is_offered() -> None:
    assert not set(REFUSED) & (set(sprig) | set(builtins) | set(helm))


def test_every_function_has_at_least_three_cases() -> None:
    uses: Counter[str] = Counter()
    for name in corpus.names():
        for question in corpus.questions(name):
            tokens = tokenize(question.text, question.left or "{{", question.right or "}}")
            uses.update(token.text for token in tokens if token.kind == "identifier")
    wanted = {*builtins, *sprig, *(name for name in helm if name != "mustToYaml")}
    assert {name: uses[name] for name in sorted(wanted) if uses[name] < 3} == {}


def test_templates_of_a_set_find_each_other_as_in_go() -> None:
    others = (("helpers", '{{define "label"}}app={{.}}{{end}}ignored'), ("blank", " \n"))
    questions = [
        oracle.Question('{{template "label" .name}}', corpus.data(), others=others),
        oracle.Question('{{template "helpers" .}}', corpus.data(), others=others),
        oracle.Question('{{include "label" .n | upper}}', corpus.data(), others=others),
        oracle.Question('{{define "label"}}mine{{end}}{{template "label"}}', corpus.data(), others=others),
        oracle.Question('{{template "nowhere"}}', corpus.data(), others=others),
    ]
    assert disagreements(questions) == []


def test_data_of_any_shape_is_seen_as_go_sees_it() -> None:
    shapes: tuple[Any, ...] = (
        None,
        "text",
        7,
        2.5,
        True,
        [1, "a", None],
        {"a": None},
        [],
        {},
        [[1], {"b": 2}],
        9007199254740993,
    )
    texts = (
        "{{.}}",
        "{{.a}}",
        "{{range .}}[{{.}}]{{else}}none{{end}}",
        "{{typeOf .}}",
        "{{len .}}",
        '{{printf "%#v" .}}',
    )
    questions = [
        oracle.Question(text, shape)
        for shape in shapes
        for text in texts
        if shape != 9007199254740993 or "range" not in text
    ]
    assert disagreements(questions) == []
