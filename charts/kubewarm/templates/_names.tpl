{{/* Names and labels that objects share. */}}

{{- define "kubewarm.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for what is appended to it in a name of 63 characters. */}}
{{- define "kubewarm.fullname" -}}
{{- $name := include "kubewarm.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* What selects the pods: it cannot be changed later. */}}
{{- define "kubewarm.selector" -}}
app.kubernetes.io/name: {{ include "kubewarm.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kubewarm.labels" -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" (.Chart.AppVersion | toString)
  "app.kubernetes.io/managed-by" .Release.Service
-}}
{{- toYaml (merge (include "kubewarm.selector" . | fromYaml) $own .Values.commonLabels) -}}
{{- end -}}

{{- define "kubewarm.image" -}}
{{- $image := .Values.image -}}
{{- $global := .Values.global | default dict -}}
{{- $registry := $image.registry | default $global.imageRegistry -}}
{{- $path := $image.repository -}}
{{- if $registry -}}
{{- $path = printf "%s/%s" (trimSuffix "/" $registry) (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $path "") -}}
{{- end -}}
{{- $path }}:{{ $image.tag | default .Chart.AppVersion }}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* The pods' ServiceAccount, as bindings name it. */}}
{{- define "kubewarm.subjects" -}}
- kind: ServiceAccount
  name: {{ .Values.serviceAccount.name }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* What an entry of `rbac.read` grants. */}}
{{- define "kubewarm.readRule" -}}
apiGroups: [{{ .group | default "" | quote }}]
resources: [{{ .resource }}]
verbs: [list, watch]
{{- end -}}

{{/*
Not empty if an object of `kind` of the Prometheus operator is to be rendered, by `metrics.renderMode`.
Called with a dict of `root` and `kind`.
*/}}
{{- define "kubewarm.renders" -}}
{{- $api := printf "monitoring.coreos.com/v1/%s" .kind -}}
{{- $known := .root.Capabilities.APIVersions.Has $api -}}
{{- $mode := .root.Values.metrics.renderMode -}}
{{- if and (not $known) (eq $mode "failIfMissing") -}}
{{- fail (printf "metrics.renderMode is failIfMissing, and the cluster has no %s of monitoring.coreos.com/v1; install the CRDs of the Prometheus operator, or set metrics.renderMode to skipIfMissing" .kind) -}}
{{- end -}}
{{- if or $known (eq $mode "always") -}}yes{{- end -}}
{{- end -}}
