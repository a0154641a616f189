{{/*
What `helm test` runs: `kubewarm self-test` of the operator's own image. One pod waits for a profile of its
own and reads the metrics, as an account of its own that may do just that; another is the operator's
account, and compares what that may do with what the chart grants. Everything goes when all is well; a pod
that failed stays, until the next test.
*/}}

{{/* Called with a dict of `weight`, and of `keeps`, where what passed stays. */}}
{{- define "kubewarm.selfTest.hook" -}}
helm.sh/hook: test
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation{{ if not .keeps }},hook-succeeded{{ end }}
{{- end -}}

{{/* Of what the pods need. Called with a dict of `root`, perhaps `namespace`, and `suffix`, which is `test` if it is left out. */}}
{{- define "kubewarm.selfTest.metadata" -}}
namespace: {{ .namespace | default .root.Release.Namespace }}
{{ include "kubewarm.selfTest.clusterMetadata" . }}
{{- end -}}

{{- define "kubewarm.selfTest.clusterMetadata" -}}
name: {{ include "kubewarm.fullname" .root }}-{{ .suffix | default "test" }}
labels:
  {{- include "kubewarm.labels" .root | nindent 2 }}
  app.kubernetes.io/component: self-test
annotations:
  {{- include "kubewarm.selfTest.hook" (dict "weight" "0") | nindent 2 }}
{{- end -}}

{{/*
A pod, but for the volumes that it has besides. Not with the labels that select the operator's pods. Called
with a dict of `root`, `account`, `suffix`, `weight`, `args` and `mounts`.
*/}}
{{- define "kubewarm.selfTest.pod" -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "kubewarm.fullname" .root }}-{{ .suffix }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- $labels := merge (dict "app.kubernetes.io/name" (printf "%s-self-test" (include "kubewarm.name" .root))) (include "kubewarm.labels" .root | fromYaml) }}
    {{- toYaml $labels | nindent 4 }}
    app.kubernetes.io/component: self-test
  annotations:
    {{- include "kubewarm.selfTest.hook" (dict "weight" .weight "keeps" .root.Values.selfTest.keepPods) | nindent 4 }}
    # `helm test` prints what the pod printed.
    helm.sh/hook-output-log-policy: hook-succeeded,hook-failed
spec:
  restartPolicy: Never
  serviceAccountName: {{ .account }}
  automountServiceAccountToken: false
  # By which a pod learns where the read API is.
  enableServiceLinks: true
  # `self-test` ends by itself before that, unless the image does not come.
  activeDeadlineSeconds: 300
  {{- with include "kubewarm.placing" .root | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  containers:
  - name: self-test
    image: {{ include "kubewarm.image" .root | quote }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args:
    - self-test
    - --operator-namespace={{ .root.Release.Namespace }}
    {{- range .args }}
    - {{ . | quote }}
    {{- end }}
    resources:
      requests: {cpu: 10m, memory: 32Mi}
      limits: {memory: 64Mi}
    {{- with .root.Values.securityContext }}
    securityContext:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    volumeMounts:
    - name: api-access
      mountPath: /var/run/secrets/kubernetes.io/serviceaccount
      readOnly: true
    {{- with .mounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
  {{- include "kubewarm.apiAccess" .root | nindent 2 }}
{{- end -}}
