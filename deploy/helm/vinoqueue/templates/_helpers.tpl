{{/* What pods have in common, above their containers. The context is the root and the values of the workload. */}}
{{- define "vinoqueue.pod" -}}
{{- $root := index . 0 }}
{{- $values := index . 1 }}
automountServiceAccountToken: false
enableServiceLinks: false
# VINOQUEUE_DRAIN, the API's VINOQUEUE_DRAIN_DELAY (5 s), and some to spare.
terminationGracePeriodSeconds: {{ add (int $root.Values.settings.VINOQUEUE_DRAIN) 30 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
  {{- with $values.supplementalGroups }}
  supplementalGroups: {{ toJson . }}
  {{- end }}
{{- with $values.pod }}
{{ toYaml . }}
{{- end }}
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
