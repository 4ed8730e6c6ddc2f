{{- /* What others match on: network policies of functions let in pods of this name. */ -}}
{{- define "planform.selector" -}}
app.kubernetes.io/name: planform
app.kubernetes.io/component: controllers
{{- end }}

{{- define "planform.labels" -}}
{{ include "planform.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "planform.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
