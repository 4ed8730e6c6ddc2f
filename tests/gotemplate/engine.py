"""Our answer to a question, in the oracle's terms, and how the two are compared."""

from __future__ import annotations

import copy
import re

from planform.gotemplate import Options, TemplateError, TemplateSet, TemplateSyntaxError
from tests.gotemplate.oracle import Answer, Question

# Functions that report what a Go package said; we say the same in words of our own.
OWN_WORDS = (
    "mustFromJson",
    "mustRegexMatch",
    "mustRegexFind",
    "mustRegexFindAll",
    "mustRegexReplaceAll",
    "mustRegexReplaceAllLiteral",
    "mustRegexSplit",
    "regexFind",
    "regexFindAll",
    "regexReplaceAll",
    "regexReplaceAllLiteral",
    "regexSplit",
    "decryptAES",
    "mustToDate",
    "mustDateModify",
    "must_date_modify",
    "urlParse",
    "semver",
    "randInt",
    "call",
    "len",
    "include",
    "tpl",
)
_OWN_WORDS = re.compile(rf"(error calling (?:{'|'.join(OWN_WORDS)}): ).*", re.DOTALL)


def answer(question: Question) -> Answer:
    options = Options(left=question.left or "{{", right=question.right or "}}", missing_key=question.missing_key)
    templates = TemplateSet(options)
    try:
        templates.parse(question.name, question.text)
        for name, text in question.others:
            templates.parse(name, text)
        return Answer("ok", templates.render(question.name, copy.deepcopy(question.data)))
    except TemplateSyntaxError as error:
        return Answer("parse", error=str(error))
    except TemplateError as error:
        return Answer("exec", error=str(error))


def disagreement(question: Question, ours: Answer, theirs: Answer) -> str:
    """What differs, for people; empty if nothing does."""
    if ours.kind == theirs.kind == "ok":
        if ours.output == theirs.output:
            return ""
    elif ours.kind == theirs.kind and _comparable(ours.error) == _comparable(theirs.error):
        return ""
    return (
        f"template {question.text!r} ({question.missing_key})\n"
        f"  Go:   {theirs.kind} {theirs.error or repr(theirs.output)}\n"
        f"  ours: {ours.kind} {ours.error or repr(ours.output)}"
    )


def _comparable(message: str) -> str:
    return _OWN_WORDS.sub(r"\1...", message)
