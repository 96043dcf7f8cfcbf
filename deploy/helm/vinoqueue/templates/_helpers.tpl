{{/* What all pods have in common, above their containers. The context is the root. */}}
{{- define "vinoqueue.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
# VINOQUEUE_DRAIN, the API's VINOQUEUE_DRAIN_DELAY (5 s), and some to spare.
terminationGracePeriodSeconds: {{ add (int .Values.settings.VINOQUEUE_DRAIN) 30 }}
{{- end }}

{{- define "vinoqueue.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Entries of env. The context is a map of variables. */}}
{{- define "vinoqueue.variables" -}}
{{- range $name, $value := . }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{/* Pods start again when the settings change. The context is the root. */}}
{{- define "vinoqueue.annotations" -}}
vinoqueue/settings: {{ toJson .Values.settings | sha256sum | trunc 16 | quote }}
{{- end }}
