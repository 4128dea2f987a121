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

{{/* The text of a file of the chart: call with (list $ "policy/users.yaml"). A chart from which parts are missing installs nothing. */}}
{{- define "tailgate.file" -}}
{{- $text := (index . 0).Files.Get (printf "files/%s" (index . 1)) -}}
{{- if not $text }}{{ fail (printf "this copy of the chart is not whole: files/%s is missing or empty; install the packaged chart of a release, or copy all of config/helm" (index . 1)) }}{{ end -}}
{{ $text }}
{{- end -}}
