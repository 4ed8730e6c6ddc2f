"""The template engine as its callers use it: options, sets, errors, limits, and what templates cannot reach."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from planform.gotemplate import (
    Function,
    FunctionError,
    Int,
    Limits,
    NilMap,
    Options,
    Template,
    TemplateExecutionError,
    TemplateLimitExceeded,
    TemplateSet,
    TemplateSyntaxError,
)
from planform.gotemplate.sprig import REFUSED
from planform.gotemplate.template import _compiled, _functions


def render(text: str, data: Any = None, **options: Any) -> str:
    return Template(text, **options).render(data)


# --- options ---------------------------------------------------------------------------------------------------------


def test_a_template_renders_with_sprig_by_default() -> None:
    assert render("Hello, {{ .name | upper }}!", {"name": "World"}) == "Hello, WORLD!"


def test_a_template_can_be_rendered_many_times() -> None:
    template = Template("{{ range . }}{{ . }},{{ end }}")
    assert [template.render([1, 2]), template.render([]), template.render(["x"])] == ["1,2,", "", "x,"]


def test_delimiters_can_be_changed() -> None:
    assert render("<< .a >> {{ .a }}", {"a": 1}, left="<<", right=">>") == "1 {{ .a }}"


def test_missing_keys_can_be_errors() -> None:
    with pytest.raises(TemplateExecutionError, match='map has no entry for key "b"'):
        render("{{ .a.b }}", {"a": {}}, missing_key="error")


def test_an_unknown_missing_key_option_is_refused() -> None:
    with pytest.raises(TemplateSyntaxError, match="missingkey=sometimes"):
        Template("x", missing_key="sometimes")


def test_sprig_and_helm_can_be_left_out() -> None:
    with pytest.raises(TemplateSyntaxError, match='function "upper" not defined'):
        Template("{{ upper .x }}", sprig=False)
    with pytest.raises(TemplateSyntaxError, match='function "include" not defined'):
        Template('{{ include "x" . }}', helm=False)


def test_functions_of_the_caller_win_over_the_libraries() -> None:
    assert render("{{ upper .x }}", {"x": "a"}, functions={"upper": lambda value: f"<{value}>"}) == "<a>"


def test_a_function_with_a_signature_gets_arguments_of_its_types() -> None:
    double = Function(lambda text, times: text * times, "func(string, int) string")
    assert render('{{ double "ab" 2 }}', functions={"double": double}) == "abab"
    with pytest.raises(TemplateExecutionError, match="expected int; got string"):
        render('{{ double "ab" .x }}', {"x": "no"}, functions={"double": double})


def test_an_error_of_a_function_names_it_and_its_place() -> None:
    def refuse(value: Any) -> str:
        raise FunctionError(f"no {value} here")

    with pytest.raises(TemplateExecutionError) as caught:
        Template("a\n  {{ .x | refuse }}", name="cfg", functions={"refuse": refuse}).render({"x": 3})
    assert str(caught.value) == 'template: cfg:2:10: executing "cfg" at <refuse>: error calling refuse: no 3 here'
    assert (caught.value.name, caught.value.line, caught.value.column) == ("cfg", 2, 10)


def test_a_function_that_returns_a_nil_map_gives_missing_fields() -> None:
    options = Options(functions={"find": Function(NilMap, "func() map[string]interface {}")})
    text = '{{ find.a }} {{ (find).b.c }} {{ if find }}y{{ else }}n{{ end }} {{ len find }} {{ hasKey find "a" }}'
    assert Template(text, options=options).render() == "<no value> <no value> n 0 false"


# --- sets ------------------------------------------------------------------------------------------------------------


def test_templates_of_a_set_share_definitions() -> None:
    templates = TemplateSet()
    templates.parse("helpers", '{{ define "label" }}app={{ . }}{{ end }}')
    templates.parse("main", '{{ include "label" .name | quote }}')
    assert templates.render("main", {"name": "web"}) == '"app=web"'
    assert templates.names() == ["helpers", "label", "main"]


def test_a_later_definition_replaces_an_earlier_one_unless_it_is_blank() -> None:
    templates = TemplateSet()
    templates.parse("a", '{{ define "x" }}1{{ end }}')
    templates.parse("b", '{{ define "x" }}2{{ end }}')
    templates.parse("c", '{{ define "x" }} {{ end }}{{ template "x" }}')
    assert templates.render("c") == "2"


def test_a_template_that_is_not_in_the_set_is_an_error() -> None:
    with pytest.raises(TemplateExecutionError, match='no template "nope"'):
        TemplateSet().render("nope")


def test_a_text_is_compiled_once() -> None:
    options = Options()
    functions = _functions(options)
    first = _compiled("n", "{{ .only.once }}", options, functions)
    assert _compiled("n", "{{ .only.once }}", Options(), functions) is first
    assert _compiled("other", "{{ .only.once }}", options, functions) is not first


# --- errors ----------------------------------------------------------------------------------------------------------


def test_columns_count_bytes_as_go_counts_them() -> None:
    with pytest.raises(TemplateExecutionError) as caught:
        render("x\né {{ .a.b }}", {"a": 1})
    assert (caught.value.line, caught.value.column) == (2, 8)


def test_syntax_errors_carry_the_line() -> None:
    with pytest.raises(TemplateSyntaxError, match=r"template: template:3: unexpected EOF") as caught:
        Template("a\n{{ if .x }}\nb")
    assert caught.value.line == 3


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refused_function_is_refused_by_name_when_it_is_called(name: str) -> None:
    template = Template(f'{{{{ if .call }}}}{{{{ {name} "x" }}}}{{{{ end }}}}')
    assert template.render({"call": False}) == ""
    with pytest.raises(TemplateExecutionError, match=f"error calling {name}: it is refused") as caught:
        template.render({"call": True})
    assert REFUSED[name] in str(caught.value)


def test_lookup_is_not_there() -> None:
    with pytest.raises(TemplateSyntaxError, match='function "lookup" not defined'):
        Template('{{ lookup "v1" "Secret" "ns" "name" }}')


# --- time and randomness ---------------------------------------------------------------------------------------------


def test_now_is_what_the_clock_says() -> None:
    text = '{{ now | date "2006-01-02 15:04:05" }} {{ ago (int64 0) }}'
    assert render(text, clock=lambda: 90.0) == "1970-01-01 00:01:30 1m30s"


def test_local_time_is_that_of_the_zone() -> None:
    assert render('{{ date "15:04 MST" 0 }}', zone="Asia/Tokyo") == "09:00 JST"


def test_the_same_seed_gives_the_same_text() -> None:
    text = '{{ randAlphaNum 8 }} {{ uuidv4 }} {{ randInt 0 1000 }} {{ shuffle "abcdef" }} {{ encryptAES "k" "v" }}'
    assert render(text, rng=random.Random(7)) == render(text, rng=random.Random(7))
    assert render(text, rng=random.Random(7)) != render(text, rng=random.Random(8))


# --- what templates cannot reach -------------------------------------------------------------------------------------


class Secretive:
    """An object that no template should be able to look into."""

    password = "hunter2"

    def reveal(self) -> str:
        return self.password


@pytest.mark.parametrize(
    "text",
    [
        "{{ .o.password }}",
        "{{ .o.reveal }}",
        "{{ .o.__class__ }}",
        "{{ .s.upper }}",
        "{{ .s.__class__.__mro__ }}",
        "{{ .l.append 1 }}",
        "{{ .m.keys }}x{{ .m.keys.x.y }}{{ .m.pop 1 }}",
        "{{ (index .l 0).real }}",
        '{{ printf "%v" .o }}{{ .o.x }}',
    ],
)
def test_attributes_and_methods_of_python_are_out_of_reach(text: str) -> None:
    data = {"o": Secretive(), "s": "x", "l": [1], "m": {}}
    with pytest.raises(TemplateExecutionError):
        render(text, data)
    assert data["l"] == [1]


def test_an_object_of_python_prints_as_nothing_but_its_kind() -> None:
    assert render("{{ .o }} {{ toString .o }} {{ typeOf .o }}", {"o": Secretive()}) == (
        "<python Secretive> <python Secretive> python Secretive"
    )


def test_text_of_a_template_never_becomes_python() -> None:
    hostile = '"); __import__("os").system("true"); ("'
    assert render(f"{hostile}{{{{ `{hostile}` }}}}\n#@0\n{{{{ .x }}}}", {"x": "\n#@1\n"}) == (
        f"{hostile}{hostile}\n#@0\n\n#@1\n"
    )


# --- limits ----------------------------------------------------------------------------------------------------------

DOUBLING = '{{ $s := "xxxxxxxxxxxxxxxx" }}{{ range until 60 }}{{ $s = %s }}{{ end }}{{ len $s }}'

SHARING = "{{ $l := list 1 }}{{ range until 60 }}{{ $l = list $l $l }}{{ end }}"

HOSTILE = {
    "a template that invokes itself": '{{ define "x" }}{{ template "x" . }}{{ end }}{{ template "x" . }}',
    "a template that includes itself": '{{ define "x" }}{{ include "x" . }}{{ end }}{{ include "x" . }}',
    "a template that evaluates itself": '{{ $t := "{{ tpl . . }}" }}{{ tpl $t $t }}',
    "two templates that invoke each other": (
        '{{ define "a" }}{{ template "b" }}{{ end }}{{ define "b" }}{{ template "a" }}{{ end }}{{ template "a" }}'
    ),
    "many repetitions": '{{ repeat 2000000000 "x" }}',
    "a long list": "{{ until 2000000000 }}",
    "a long list of steps": "{{ untilStep 0 9000000000000000000 1 }}",
    "a long sequence": "{{ seq 2000000000 }}",
    "a wide number": '{{ range until 100 }}{{ printf "%9999999d" 1 }}{{ end }}',
    "a width from an argument": '{{ range until 100 }}{{ printf "%*d" 1000000 1 }}{{ end }}',
    "a precise number": '{{ range until 1000 }}{{ printf "%.999999f" 1.5 }}{{ end }}',
    "an endless range": "{{ range 9000000000000000000 }}{{ end }}",
    "nested ranges": "{{ range until 10000 }}{{ range until 10000 }}{{ end }}{{ end }}",
    "long output": '{{ $s := repeat 100000 "x" }}{{ range until 10000 }}{{ $s }}{{ end }}',
    "doubling by print": DOUBLING % "print $s $s",
    "doubling by printf": DOUBLING % 'printf "%s%s" $s $s',
    "doubling by join": DOUBLING % 'list $s $s | join ""',
    "doubling by replace": DOUBLING % 'replace "x" "xx" $s',
    "doubling by regular expression": DOUBLING % 'regexReplaceAll "x" $s "xx"',
    "doubling by cat": DOUBLING % "cat $s $s",
    "doubling by quote": DOUBLING % "quote $s $s",
    "doubling by toJson": DOUBLING % "toJson (list $s $s)",
    "doubling by include": '{{ define "d" }}{{ . }}{{ . }}{{ end }}' + DOUBLING % 'include "d" $s',
    "growing by base 64": DOUBLING % "b64enc (print $s $s)",
    "growing by indentation": DOUBLING % 'nindent 1000 (print $s "\\n" $s)',
    "growing by wrapping": DOUBLING % "wrapWith 1 $s $s",
    "a list that doubles": '{{ $l := list 1 }}{{ range until 60 }}{{ $l = concat $l $l }}{{ end }}',
    "a list that shares its parts, printed": SHARING + "{{ $l }}",
    "a list that shares its parts, as JSON": SHARING + "{{ toJson $l }}",
    "a list that shares its parts, as YAML": SHARING + "{{ toYaml $l }}",
    "a list that shares its parts, compared": SHARING + "{{ deepEqual $l $l }}",
    "a list that shares its parts, copied": SHARING + "{{ deepCopy $l }}",
    "a list that shares its parts, formatted": SHARING + '{{ printf "%d" $l }}',
    "a map that contains itself, printed": '{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ $d }}',
    "a map that contains itself, as JSON": '{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ toJson $d }}',
    "a map that contains itself, as YAML": '{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ toYaml $d }}',
    "a map that contains itself, copied": '{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ deepCopy $d }}',
    "a map that contains itself, merged": '{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ merge $d $d }}',
    "a map that contains itself, formatted": '{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ printf "%v" $d }}',
    "a deep list": "{{ $l := list }}{{ range until 5000 }}{{ $l = list $l }}{{ end }}{{ $l }}",
    "many derived passwords": '{{ range until 1000 }}{{ derivePassword 1 "long" "p" "u" "s" }}{{ end }}',
    "regular expressions over long text": (
        '{{ $s := repeat 1000000 "a" }}{{ range until 100000 }}{{ regexMatch "(a+)+$" $s }}{{ end }}'
    ),
    "long text searched often": '{{ $s := repeat 1000000 "a" }}{{ range until 100000 }}{{ contains "b" $s }}{{ end }}',
    "many unique elements": "{{ uniq (until 1000000) }}",
    "random text": "{{ randAlpha 2000000000 }}",
    "random bytes": "{{ randBytes 2000000000 }}",
}  # fmt: skip


TIGHT = Limits(steps=400_000, output=4 << 20)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_template_is_stopped(text: str) -> None:
    started = time.process_time()
    with pytest.raises(TemplateLimitExceeded):
        render(text, limits=TIGHT)
    assert time.process_time() - started < 4


def test_the_limits_that_are_there_by_default_stop_a_hostile_template_too() -> None:
    for name in ("an endless range", "doubling by print", "a map that contains itself, printed"):
        with pytest.raises(TemplateLimitExceeded):
            render(HOSTILE[name])


def test_a_catastrophic_pattern_takes_linear_time() -> None:
    assert render('{{ regexMatch "^(a|a)*$" (print (repeat 100000 "a") "b") }}') == "false"


def test_limits_can_be_chosen() -> None:
    assert render('{{ repeat 10 "x" }}', limits=Limits(output=10)) == "x" * 10
    with pytest.raises(TemplateLimitExceeded, match="longer than 10 characters"):
        render('{{ repeat 11 "x" }}', limits=Limits(output=10))
    with pytest.raises(TemplateLimitExceeded, match="more than 100 steps"):
        render("{{ range until 60 }}{{ . }}{{ end }}", limits=Limits(steps=100))
    with pytest.raises(TemplateLimitExceeded, match="maximum template depth"):
        render('{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}', limits=Limits(depth=3))


def test_a_limit_says_where_it_was_reached() -> None:
    with pytest.raises(TemplateLimitExceeded, match=r'template: template:2:2: executing "template" at <repeat 99'):
        render('\n{{repeat 99 "x"}}', limits=Limits(output=10))


@pytest.mark.parametrize(
    "text",
    [
        "{{ if . }}" * 200 + "{{ end }}" * 200,
        "{{ range . }}" * 30 + "{{ end }}" * 30,
        "{{ " + "(" * 100 + "1" + ")" * 100 + " }}",
        "{{ . " + "| print " * 300 + "}}",
        "x" * (5 << 20),
    ],
    ids=["blocks", "ranges", "parentheses", "pipeline", "text"],
)
def test_a_template_too_deep_or_long_to_compile_is_a_syntax_error(text: str) -> None:
    with pytest.raises(TemplateSyntaxError):
        Template(text)


def test_a_long_chain_of_else_if_is_no_nesting() -> None:
    text = "{{ if eq . 0 }}0" + "".join(f"{{{{ else if eq . {i} }}}}{i}" for i in range(1, 300)) + "{{ end }}"
    assert render(text, Int(299)) == "299"


def test_a_render_leaves_the_callers_lists_alone() -> None:
    data = {"l": [3, 1, 2], "m": {"b": 1, "a": 2}}
    render('{{ append .l 4 }}{{ reverse .l }}{{ sortAlpha .l }}{{ range .m }}{{ end }}{{ omit .m "a" }}', data)
    assert data == {"l": [3, 1, 2], "m": {"b": 1, "a": 2}}
