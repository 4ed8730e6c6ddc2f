"""How long warm templates take to render, beside Go's engine on the same templates and Jinja2 on equivalent ones.

    python -m bench gotemplate [--seconds 1.0]

All three run in this one process' time: Go renders each template many times over in one batch of the test oracle and
reports its own clock, which leaves out starting, parsing and talking.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

import jinja2
from tests.gotemplate.oracle import Question, ask

from bench.report import Report
from planform.gotemplate import Template

AGAINST_GO = 8.0
AGAINST_JINJA = 2.0

DATA: dict[str, Any] = {
    "name": "web",
    "space": "prod",
    "replicas": 3,
    "image": {"repository": "registry.example/web", "tag": "1.25"},
    "labels": {"app": "web", "team": "platform", "tier": "front"},
    "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}],
    "env": [{"name": f"VAR_{i}", "value": f"value {i}", "secret": i % 3 == 0} for i in range(20)],
    "users": [{"name": f"user{i}", "age": i, "tags": ["a", "b", "c"], "admin": i % 7 == 0} for i in range(100)],
    "rows": [[i * j for j in range(20)] for i in range(20)],
}


@dataclass(frozen=True)
class Case:
    """The same text made by a Go template and by a Jinja2 one."""

    name: str
    go: str
    jinja: str


MANIFEST = Case(
    "a manifest: fields, conditions, short loops",
    """apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .space }}
  labels:
{{- range $key, $value := .labels }}
    {{ $key }}: {{ $value }}
{{- end }}
spec:
  replicas: {{ .replicas }}
  template:
    spec:
      containers:
      - name: {{ .name }}
        image: {{ .image.repository }}:{{ .image.tag }}
{{- if .ports }}
        ports:
{{- range .ports }}
        - name: {{ .name }}
          containerPort: {{ .port }}
{{- end }}
{{- end }}
        env:
{{- range .env }}
        - name: {{ .name }}
{{- if .secret }}
          valueFrom: {secretKeyRef: {name: {{ $.name }}, key: {{ .name }}}}
{{- else }}
          value: {{ .value }}
{{- end }}
{{- end }}
""",
    """apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ name }}
  namespace: {{ space }}
  labels:
{%- for key, value in labels|dictsort %}
    {{ key }}: {{ value }}
{%- endfor %}
spec:
  replicas: {{ replicas }}
  template:
    spec:
      containers:
      - name: {{ name }}
        image: {{ image.repository }}:{{ image.tag }}
{%- if ports %}
        ports:
{%- for port in ports %}
        - name: {{ port.name }}
          containerPort: {{ port.port }}
{%- endfor %}
{%- endif %}
        env:
{%- for item in env %}
        - name: {{ item.name }}
{%- if item.secret %}
          valueFrom: {secretKeyRef: {name: {{ name }}, key: {{ item.name }}}}
{%- else %}
          value: {{ item.value }}
{%- endif %}
{%- endfor %}
""",
)

FUNCTIONS = Case(
    "functions: upper, default, join, replace, quote",
    """{{ range .users }}{{ .name | upper }} {{ .nick | default "none" }} {{ join "," .tags }} """
    """{{ replace "user" "u" .name }} {{ trunc 3 .name }} {{ if and .admin (gt .age 10) }}{{ .name | quote }}{{ end }}
{{ end }}""",
    """{% for user in users %}{{ user.name|upper }} {{ user.nick|default("none") }} {{ user.tags|join(",") }} """
    """{{ user.name|replace("user", "u") }} {{ user.name[:3] }} """
    """{% if user.admin and user.age > 10 %}"{{ user.name }}"{% endif %}
{% endfor %}""",
)

NUMBERS = Case(
    "numbers: nested loops, comparison, arithmetic",
    """{{ range $i, $row := .rows }}{{ range $row }}{{ if lt . 100 }}{{ add . 1 }},{{ else }}{{ . }};{{ end }}{{ end }}
{{ end }}""",
    """{% for row in rows %}{% for cell in row %}"""
    """{% if cell < 100 %}{{ cell + 1 }},{% else %}{{ cell }};{% endif %}{% endfor %}
{% endfor %}""",
)

HELPERS = Case(
    "helpers: a named template in a loop",
    """{{ define "label" }}{{ .name }}={{ .age }}{{ end }}{{ range .users }}{{ template "label" . }}
{{ end }}""",
    """{% macro label(user) %}{{ user.name }}={{ user.age }}{% endmacro %}{% for user in users %}{{ label(user) }}
{% endfor %}""",
)

VARIABLES = Case(
    "variables: kept, changed and printed with printf",
    """{{ $last := "" }}{{ range .users }}{{ if ne .name $last }}"""
    """{{ printf "%s-%d" .name .age }}{{ end }}{{ $last = .name }}
{{ end }}{{ $last }}""",
    """{% set state = namespace(last="") %}{% for user in users %}{% if user.name != state.last %}"""
    """{{ "%s-%d"|format(user.name, user.age) }}{% endif %}{% set state.last = user.name %}
{% endfor %}{{ state.last }}""",
)

CASES = (MANIFEST, FUNCTIONS, NUMBERS, HELPERS, VARIABLES)


def seconds_each(render: Callable[[], object], budget: float) -> float:
    """The best of several runs, each long enough for the clock."""
    render()
    rounds = 1
    while True:
        started = time.perf_counter()
        for _ in range(rounds):
            render()
        took = time.perf_counter() - started
        if took > budget / 10:
            break
        rounds *= 2
    best = took / rounds
    for _ in range(6):
        started = time.perf_counter()
        for _ in range(rounds):
            render()
        best = min(best, (time.perf_counter() - started) / rounds)
    return best


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="bench gotemplate")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each template and engine")
    options = parser.parse_args(arguments)
    report = Report("Go templates: warm renders beside Go and Jinja2")
    environment = jinja2.Environment(trim_blocks=False)
    against_go, against_jinja = [], []
    for case in CASES:
        ours, theirs = Template(case.go), environment.from_string(case.jinja)
        answers = [ask([Question(case.go, DATA, repeat=200)])[0] for _ in range(3)]
        if {answer.output for answer in answers} != {ours.render(DATA)}:
            raise AssertionError(f"{case.name}: Go renders something else")
        our_time = seconds_each(lambda ours=ours: ours.render(DATA), options.seconds)  # type: ignore[misc]
        jinja_time = seconds_each(lambda theirs=theirs: theirs.render(DATA), options.seconds)  # type: ignore[misc]
        go_time = min(answer.seconds for answer in answers)
        against_go.append(our_time / go_time)
        against_jinja.append(our_time / jinja_time)
        report.note(
            f"{case.name}: ours {our_time * 1e6:.0f} µs, Go {go_time * 1e6:.0f} µs, Jinja2 {jinja_time * 1e6:.0f} µs"
        )
        report.at_most(f"{case.name.split(':')[0]}, against Go", against_go[-1], AGAINST_GO)
        report.at_most(f"{case.name.split(':')[0]}, against Jinja2", against_jinja[-1], AGAINST_JINJA)
    report.at_most("all of them, against Go (geometric mean)", geometric_mean(against_go), AGAINST_GO)
    report.at_most("all of them, against Jinja2 (geometric mean)", geometric_mean(against_jinja), AGAINST_JINJA)
    return 1 if report.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
