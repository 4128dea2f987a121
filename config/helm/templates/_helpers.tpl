{{/* An image reference of {registry, repository, tag, digest}: call with (list $ .Values.image). */}}
{{- define "tailgate.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with default $image.registry $root.Values.global.imageRegistry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag }}{{ end -}}
{{- end -}}

{{/* The Secret with the certificate of metrics and verdicts; empty: there is none, or nothing to serve. */}}
{{- define "tailgate.servingCert" -}}
{{- if .Values.metrics.enabled }}{{ .Values.metrics.certificate.secretName }}{{ end -}}
{{- end -}}
