{{/* An image reference of {registry, repository, tag, digest}: call with (list $ .Values.image). */}}
{{- define "tailgate.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with default $image.registry $root.Values.global.imageRegistry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag }}{{ end -}}
{{- end -}}
