{{/* Names and labels that objects share. */}}

{{- define "kubewarm.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 52 characters, because objects append suffixes and names have at most 63. */}}
{{- define "kubewarm.fullname" -}}
{{- $name := include "kubewarm.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* The pods' selector, which is immutable. */}}
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

{{/* Not empty if the pods read their certificate from a mounted Secret. */}}
{{- define "kubewarm.tls.isMounted" -}}
{{- $isShown := or .Values.readApi.enabled .Values.metrics.tls.enabled -}}
{{- if and $isShown (ne .Values.tls.source "Operator") -}}yes{{- end -}}
{{- end -}}

{{/* Not empty if kubewarm issues the certificate. */}}
{{- define "kubewarm.tls.isIssued" -}}
{{- $isShown := or .Values.readApi.enabled .Values.metrics.tls.enabled -}}
{{- if and $isShown (eq .Values.tls.source "Operator") -}}yes{{- end -}}
{{- end -}}

{{/*
The Secret of the certificate. If kubewarm issues it, also the ConfigMap of its CA. The names differ, because a Secret's
type cannot change, and earlier versions of the chart created a Secret of another type.
*/}}
{{- define "kubewarm.tls.secret" -}}
{{- if eq .Values.tls.source "Operator" -}}{{ include "kubewarm.fullname" . }}-ca
{{- else -}}{{ .Values.tls.secretName | default (printf "%s-tls" (include "kubewarm.fullname" .)) }}{{- end -}}
{{- end -}}

{{/* The value of --auth. */}}
{{- define "kubewarm.readApi.auth" -}}
{{- .Values.readApi.auth | default (ternary "caller-token" "delegated" (not (empty .Values.watchNamespaces))) -}}
{{- end -}}

{{/*
Not empty if a starting replica copies stores from the others. The replicas need permission for the TokenReviews by which
they authenticate to each other.
*/}}
{{- define "kubewarm.peers" -}}
{{- $isDelegated := eq (include "kubewarm.readApi.auth" .) "delegated" -}}
{{- if and .Values.readApi.enabled .Values.readApi.copyStores $isDelegated -}}yes{{- end -}}
{{- end -}}

{{/* The headless Service of all ready replicas. */}}
{{- define "kubewarm.peers.service" -}}
{{- include "kubewarm.fullname" . | trunc 57 | trimSuffix "-" }}-peers
{{- end -}}

{{/* The Services whose names are in the certificate, separated by commas. */}}
{{- define "kubewarm.tls.services" -}}
{{- $service := include "kubewarm.fullname" . -}}
{{- join "," (list $service (printf "%s-metrics" $service) (include "kubewarm.peers.service" .)) -}}
{{- end -}}

{{/*
The names and addresses in a certificate that kubewarm does not issue, as a list in YAML: of the Services, of the API
server for programs that read from kubewarm instead, and of a port-forward.
*/}}
{{- define "kubewarm.tls.names" -}}
{{- $names := list -}}
{{- $namespaces := dict "kubernetes" "default" -}}
{{- range append (include "kubewarm.tls.services" . | splitList ",") "kubernetes" -}}
{{- $there := printf "%s.%s" . (get $namespaces . | default $.Release.Namespace) -}}
{{- $domain := $.Values.clusterDomain | default "cluster.local" -}}
{{- $names = concat $names (list . $there (printf "%s.svc" $there) (printf "%s.svc.%s" $there $domain)) -}}
{{- end -}}
{{- concat $names (list "localhost" "127.0.0.1" "::1") .Values.tls.names | uniq | toYaml -}}
{{- end -}}

{{/*
The value of --metrics-auth. `delegated`: clients that the API server authorizes. `none`: all clients that reach the port,
which networkPolicy.scrapers limits. `loopback`: port-forwards only, because kubewarm cannot send reviews without ClusterRoles.
*/}}
{{- define "kubewarm.metrics.auth" -}}
{{- $policy := .Values.networkPolicy -}}
{{- if .Values.watchNamespaces -}}
{{- ternary "none" "loopback" (and $policy.enabled (not (empty $policy.scrapers))) -}}
{{- else -}}
{{- ternary "delegated" "none" .Values.metrics.auth.enabled -}}
{{- end -}}
{{- end -}}

{{/* The kind of the monitor, empty if none is enabled. The checks refuse both at once. */}}
{{- define "kubewarm.monitor.kind" -}}
{{- with .Values.metrics -}}
{{- if .serviceMonitor.enabled -}}ServiceMonitor{{- else if .podMonitor.enabled -}}PodMonitor{{- end -}}
{{- end -}}
{{- end -}}

{{/* The server name that a scraper expects in the certificate. */}}
{{- define "kubewarm.metrics.serverName" -}}
{{- .Values.metrics.tls.serverName | default (printf "%s.%s.svc" (include "kubewarm.fullname" .) .Release.Namespace) -}}
{{- end -}}

{{/* The pods' ServiceAccount, as bindings name it. */}}
{{- define "kubewarm.subjects" -}}
- kind: ServiceAccount
  name: {{ .Values.serviceAccount.name }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* The rule for an entry of `rbac.read`. */}}
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

{{/* Not empty if the chart creates the ServiceAccount and the Role of `helm test`. */}}
{{- define "kubewarm.helmTest.isThere" -}}
{{- if and .Values.helmTest.enabled .Values.rbac.create .Values.serviceAccount.create -}}yes{{- end -}}
{{- end -}}
