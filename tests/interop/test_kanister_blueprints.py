"""Blueprints that others wrote: Kanister's own examples parse and validate here, and render as Go renders them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from planform.api.kinds import Object
from planform.blueprints.catalogue import PhaseCatalogue
from planform.blueprints.contract import PhaseEnvironment
from planform.blueprints.model import parse_blueprint
from planform.blueprints.rendering import options
from planform.blueprints.shipped import shipped_catalogue
from planform.blueprints.validation import blueprint_findings
from planform.errors import FieldError
from planform.gotemplate import Template, TemplateError, TemplateSyntaxError
from tests.gotemplate.engine import disagreement
from tests.gotemplate.oracle import Answer, Question, ask
from tests.interop.kanister import data_for, example_blueprints, templates_of

FEWEST = 20
MISTAKES = (
    # When it was written, Kanister did not check arguments: it says containers where it means a container.
    ("stable/cassandra/cassandra-blueprint.yaml", 'KubeExec v0.0.0: argument "containers" is not supported'),
)
_OF_NOW = re.compile(r"\bnow\b|\.Time\s*\|\s*date")  # `date` takes a text for the time it is
_PHASE = re.compile(r"actions\.(?P<action>.+)\.(?:phases\[(?P<number>\d+)\]|deferPhase)\.func\Z")


@pytest.fixture(scope="module")
def blueprints() -> dict[str, Object]:
    found = example_blueprints()
    assert len(found) >= FEWEST, sorted(found)
    return found


@pytest.fixture(scope="module")
def catalogue() -> PhaseCatalogue:
    return shipped_catalogue(plugins=lambda: ())


def test_all_examples_parse(blueprints: dict[str, Object]) -> None:
    for path, obj in blueprints.items():
        assert parse_blueprint(obj).actions, path


def test_examples_are_valid_but_for_removed_functions_and_mistakes_of_their_own(
    blueprints: dict[str, Object], catalogue: PhaseCatalogue
) -> None:
    here, valid = PhaseEnvironment(engine="kubernetes"), []
    unexpected: list[str] = []
    for path, obj in blueprints.items():
        errors = blueprint_findings(obj, catalogue, here).errors
        unexpected += [
            f"{path}: {error}"
            for error in errors
            if not _is_about_removal(obj, error, catalogue)
            and not any(path == where and what in str(error) for where, what in MISTAKES)
        ]
        valid += [] if errors else [path]
    assert unexpected == []
    assert len(valid) >= FEWEST, valid


def _is_about_removal(obj: Object, error: FieldError, catalogue: PhaseCatalogue) -> bool:
    place = _PHASE.match(error.field)
    if place is None:
        return False
    action = obj["actions"][place["action"]]
    phase = action["deferPhase"] if place["number"] is None else action["phases"][int(place["number"])]
    versions = catalogue.describe(phase["func"])
    return bool(versions) and all(each.state == "removed" for each in versions)


def test_examples_render_as_go_renders_them(blueprints: dict[str, Object]) -> None:
    questions: list[Question] = []
    for obj in blueprints.values():
        texts = list(dict.fromkeys(templates_of(obj["actions"])))
        data = data_for(texts)
        questions += [Question(text, data, missing_key="error") for text in texts]
    ours = [_answer(question) for question in questions]
    theirs = ask(questions)
    differing = [
        text
        for question, mine, go in zip(questions, ours, theirs, strict=True)
        if (text := disagreement(question, _timeless(question, mine), _timeless(question, go)))
    ]
    assert differing == [], "\n".join(differing)
    failed = list(_failed(questions, theirs))
    assert len(failed) <= len(questions) // 20, "\n".join(failed)


def _timeless(question: Question, answer: Answer) -> Answer:
    """The answer, without the digits of one that depends on when it was given."""
    if not _OF_NOW.search(question.text):
        return answer
    return Answer(answer.kind, re.sub(r"\d", "0", answer.output), answer.error)


def _failed(questions: list[Question], answers: list[Answer]) -> Iterator[str]:
    """Templates for which the data that we made up does not do."""
    for question, answer in zip(questions, answers, strict=True):
        if answer.kind != "ok":
            yield f"{answer.error}: {question.text}"


def _answer(question: Question) -> Answer:
    try:
        made = Template(question.text, name=question.name, options=options(lambda: 0.0, question.missing_key))
        return Answer("ok", made.render(question.data))
    except TemplateSyntaxError as error:
        return Answer("parse", error=str(error))
    except TemplateError as error:
        return Answer("exec", error=str(error))
