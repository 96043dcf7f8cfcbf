{{/* What pods have in common, above their containers. The context is the root and the values of the workload. */}}
{{- define "vinoqueue.pod" -}}
{{- $root := index . 0 }}
{{- $values := index . 1 }}
automountServiceAccountToken: false
enableServiceLinks: false
# VINOQUEUE_DRAIN, the API's VINOQUEUE_DRAIN_DELAY (5 s), and some to spare.
terminationGracePeriodSeconds: {{ add (int $root.Values.settings.VINOQUEUE_DRAIN) 30 }}
securityContext:
  {{- include "vinoqueue.user" $root.Values.runAsUser | nindent 2 }}
  {{- with $values.supplementalGroups }}
  supplementalGroups: {{ toJson . }}
  {{- end }}
{{- with $values.pod }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What the security contexts of pods have in common. The context is the number of the user, or nothing. */}}
{{- define "vinoqueue.user" -}}
runAsNonRoot: true
{{- with . }}
runAsUser: {{ int . }}
runAsGroup: {{ int . }}
fsGroup: {{ int . }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Where variables come from. The context is the values of the workload. */}}
{{- define "vinoqueue.envFrom" -}}
- configMapRef: {name: vinoqueue}
{{- with .envFrom }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "vinoqueue.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* A worker that serves, and a node, say so at each heartbeat in the image's VINOQUEUE_HEALTH_FILE. */}}
{{- define "vinoqueue.servingProbe" -}}
exec: {command: [sh, -c, 'grep -qx serving "$(find /tmp/health -mmin -1)"']}
periodSeconds: 5
timeoutSeconds: 5
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
