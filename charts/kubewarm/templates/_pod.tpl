{{/* Parts that all pods of the chart share. */}}

{{/* The volume that the kubelet would mount by default, with a token of a set lifetime. */}}
{{- define "kubewarm.apiAccess" -}}
- name: api-access
  projected:
    sources:
    - serviceAccountToken:
        path: token
        expirationSeconds: {{ int64 .Values.serviceAccount.token.expirationSeconds }}
        {{- with .Values.serviceAccount.token.audience }}
        audience: {{ . | quote }}
        {{- end }}
    - configMap:
        name: kube-root-ca.crt
        items:
        - {key: ca.crt, path: ca.crt}
    - downwardAPI:
        items:
        - path: namespace
          fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}
{{- end -}}

{{/* Scheduling and security of the pods. */}}
{{- define "kubewarm.placing" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- if not (kindIs "invalid" .Values.hostUsers) }}
hostUsers: {{ .Values.hostUsers }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The CAs of client certificates, by the name of their volume. */}}
{{- define "kubewarm.clientAuthorities" -}}
{{- with .Values.readApi -}}
{{- if and .enabled .clientCA.configMap }}
client-ca: {configMap: {{ .clientCA.configMap }}, key: {{ .clientCA.key }}}
{{- end }}
{{- end -}}
{{- end -}}
