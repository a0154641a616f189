{{/* Checks that a schema cannot make: values that contradict each other or the cluster. */}}

{{- define "kubewarm.checks" -}}
{{- $root := . -}}
{{- $watched := .Values.watchNamespaces -}}

{{- if eq .Release.Namespace "kube-system" -}}
{{- fail "--namespace: kube-system holds the leases and credentials of the control plane, and profiles in kubewarm's namespace can read from every namespace; install kubewarm with --namespace kubewarm-system --create-namespace" -}}
{{- end -}}

{{- $seen := dict -}}
{{- range $index, $profile := .Values.profiles -}}
{{- $namespace := $profile.namespace | default $root.Release.Namespace -}}
{{- $name := printf "%s/%s" $namespace $profile.name -}}
{{- if hasKey $seen $name -}}
{{- fail (printf "profiles[%d]: there is a profile %s already; give each profile of a namespace its own name" $index $name) -}}
{{- end -}}
{{- $_ := set $seen $name true -}}
{{- if and $watched (not (has $namespace $watched)) -}}
{{- fail (printf "profiles[%d].namespace: kubewarm does not run profiles in %q, because watchNamespaces does not list that namespace; add it there, or use another namespace" $index $namespace) -}}
{{- end -}}
{{- end -}}

{{- range $index, $entry := .Values.rbac.read -}}
{{- if and (eq $entry.resource "secrets") (not $entry.group) (not $root.Values.rbac.allowSecrets) -}}
{{- fail (printf "rbac.read[%d].resource: secrets need rbac.allowSecrets=true, because anyone who can run pods as the ServiceAccount can then read them" $index) -}}
{{- end -}}
{{- /* Only profiles in kubewarm's own namespace read other namespaces with kubewarm's permissions. */ -}}
{{- if and $watched (not (has $root.Release.Namespace $watched)) -}}
{{- range $namespace := $entry.namespaces -}}
{{- if not (has $namespace $watched) -}}
{{- fail (printf "rbac.read[%d].namespaces: kubewarm would not use a permission in %q, because watchNamespaces does not list that namespace; add it there, or leave it out" $index $namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.rbac.read (not .Values.rbac.create) -}}
{{- fail "rbac.read: with rbac.create=false the chart creates no role; leave rbac.read empty, or set rbac.create to true" -}}
{{- end -}}

{{- $monitor := include "kubewarm.monitor.kind" . -}}
{{- $monitorValue := printf "metrics.%s.enabled" (untitle $monitor) -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.podMonitor.enabled: with metrics.serviceMonitor.enabled=true each replica would be scraped twice; enable one of them" -}}
{{- end -}}
{{- if and (eq $monitor "ServiceMonitor") (not .Values.metrics.service.enabled) -}}
{{- fail "metrics.serviceMonitor.enabled: a ServiceMonitor needs metrics.service.enabled=true; set that, or enable metrics.podMonitor" -}}
{{- end -}}

{{- with .Values.metrics.auth -}}
{{- $auth := include "kubewarm.metrics.auth" $root -}}
{{- if and (eq $auth "loopback") $monitor -}}
{{- fail (printf "%s: with watchNamespaces kubewarm cannot review tokens and serves metrics to loopback alone; set networkPolicy.enabled, and list the scrapers' pods in networkPolicy.scrapers" $monitorValue) -}}
{{- end -}}
{{- if and (eq $auth "delegated") (eq $monitor "PodMonitor") (not .tokenSecret.name) -}}
{{- fail "metrics.podMonitor.enabled: a PodMonitor cannot send Prometheus' own token; name a Secret with a token in metrics.auth.tokenSecret, or enable metrics.serviceMonitor" -}}
{{- end -}}
{{- if and .readers (ne $auth "delegated") -}}
{{- fail "metrics.auth.readers: scrapers need no token with metrics.auth.enabled=false or watchNamespaces; leave readers empty" -}}
{{- end -}}
{{- if and .readers (not $root.Values.rbac.create) -}}
{{- fail "metrics.auth.readers: with rbac.create=false the chart creates no role; leave readers empty, or set rbac.create to true" -}}
{{- end -}}
{{- end -}}

{{- $values := .Files.Get "files/flags.yaml" | fromYaml -}}
{{- range $index, $argument := .Values.extraArgs -}}
{{- $flag := regexFind "^--[a-z-]+" $argument -}}
{{- with get $values ($flag | trimPrefix "--" | replace "-" "_" | upper | printf "KUBEWARM_%s") -}}
{{- fail (printf "extraArgs[%d]: %s would override a value of the chart or of the release; set %s instead" $index $flag .) -}}
{{- end -}}
{{- end -}}
{{- range $index, $variable := .Values.extraEnv -}}
{{- with get $values $variable.name -}}
{{- fail (printf "extraEnv[%d].name: %s would override a value of the chart or of the release; set %s instead" $index $variable.name .) -}}
{{- end -}}
{{- end -}}

{{- range $index, $volume := .Values.extraVolumes -}}
{{- if has $volume.name (list "api-access" "tls" "client-ca") -}}
{{- fail (printf "extraVolumes[%d].name: the chart itself uses the name %s; use another name" $index $volume.name) -}}
{{- end -}}
{{- end -}}

{{- with .Values.readApi -}}
{{- if and .enabled $watched (eq .auth "delegated") -}}
{{- fail "readApi.auth: TokenReviews and SubjectAccessReviews are cluster-scoped, so no Role can grant them; with watchNamespaces leave auth empty, or set caller-token" -}}
{{- end -}}
{{- if and .enabled (eq (int64 .port) (int64 $root.Values.operator.adminPort)) -}}
{{- fail "readApi.port: operator.adminPort has the same number; use another port" -}}
{{- end -}}
{{- if and .enabled .forward (eq .service.sessionAffinity "None") -}}
{{- fail "readApi.service.sessionAffinity: with readApi.forward=true, None could send a client's read to a replica that does not know the client's last write; leave it empty, or set ClientIP" -}}
{{- end -}}
{{- $asksThem := or (eq .auth "caller-token") $watched -}}
{{- if and $asksThem .clientCA.configMap -}}
{{- fail "readApi.clientCA: caller-token (the default with watchNamespaces) sends reviews with the caller's token, and a client with a certificate has none; leave configMap empty" -}}
{{- end -}}
{{- if and .enabled $asksThem (eq .authorization "rbac") -}}
{{- fail "readApi.authorization: rbac needs a ClusterRole and reviews with kubewarm's own permissions; with watchNamespaces or caller-token use reviews or shared-reviews" -}}
{{- end -}}
{{- if and .audiences (or .forward (eq .auth "caller-token") $root.Values.watchNamespaces) -}}
{{- fail "readApi.audiences: the API server rejects tokens for kubewarm's audience, but forward and caller-token (the default with watchNamespaces) send it the caller's token; remove one of these values" -}}
{{- end -}}
{{- end -}}

{{- if and .Values.inject.enabled .Values.watchNamespaces -}}
{{- fail "inject.enabled: kubewarm publishes CAs in labelled namespaces, which needs a ClusterRole; with watchNamespaces leave it false" -}}
{{- end -}}
{{- if and .Values.inject.enabled (not (include "kubewarm.tls.isIssued" .)) -}}
{{- fail "inject.enabled: kubewarm publishes the CAs that it creates; set tls.source to Operator, and readApi.enabled or metrics.tls.enabled" -}}
{{- end -}}

{{- if .Values.inject.policy.enabled -}}
{{- if not .Values.inject.enabled -}}
{{- fail "inject.policy.enabled: injected pods need kubewarm's CA in their namespace; set inject.enabled to true" -}}
{{- end -}}
{{- if not (and .Values.readApi.enabled .Values.readApi.forward) -}}
{{- fail "inject.policy.enabled: injected pods send all requests to kubewarm; set readApi.enabled and readApi.forward to true" -}}
{{- end -}}
{{- if not (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "inject.policy.enabled: MutatingAdmissionPolicies need Kubernetes 1.36, and this cluster has %s; leave it false, or pass --kube-version to helm template" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- end -}}

{{- with .Values.tls -}}
{{- if and (eq .source "Secret") (not .secretName) (include "kubewarm.tls.isMounted" $root) -}}
{{- fail "tls.secretName: tls.source is Secret; set the Secret's name" -}}
{{- end -}}
{{- if include "kubewarm.tls.isIssued" $root -}}
{{- if .secretName -}}
{{- fail "tls.secretName: with tls.source Operator, kubewarm names the Secret itself; leave the value empty, or set another tls.source" -}}
{{- end -}}
{{- range $index, $name := .names -}}
{{- if hasPrefix "*." $name -}}
{{- fail (printf "tls.names[%d]: a CA that kubewarm creates permits no wildcard; name each host, or use another tls.source" $index) -}}
{{- end -}}
{{- if and (regexMatch "(^|\\.)[0-9]+$" $name) (not (regexMatch "^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\\.|$)){4}$" $name)) -}}
{{- fail (printf "tls.names[%d]: %s is neither a DNS name nor an IP address" $index $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq .source "CertManager") (not .issuer.name) (include "kubewarm.tls.isMounted" $root) -}}
{{- fail "tls.issuer.name: tls.source is CertManager; set the issuer's name" -}}
{{- end -}}
{{- end -}}

{{- if .Values.crds.enabled -}}
{{- $served := (.Files.Get "files/operator.yaml" | fromYaml).versions -}}
{{- $crd := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "cacheprofiles.kubewarm.io" -}}
{{- range $version := dig "status" "storedVersions" (list) $crd -}}
{{- if not (has $version $served) -}}
{{- fail (printf "crds.enabled: profiles are stored as %s in this cluster, which this chart's CRD does not have; first upgrade to a chart that has both versions, or set crds.enabled to false" $version) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
