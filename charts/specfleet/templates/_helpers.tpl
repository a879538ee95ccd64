{{- define "specfleet.fullname" -}}
{{- if contains "specfleet" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-specfleet" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "specfleet.selector" -}}
app.kubernetes.io/name: specfleet
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "specfleet.labels" -}}
{{ include "specfleet.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: specfleet
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "specfleet.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "specfleet.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: name the account to use, or set serviceAccount.create" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "specfleet.image" -}}
{{- $repository := required "image.repository: set it to where you pushed the operator's image" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "specfleet.lease" -}}
{{- if .Values.shard -}}specfleet-{{ .Values.shard }}{{- else -}}specfleet{{- end -}}
{{- end -}}

{{/* What the operator may do where its deployments are: its own kinds, and the children it makes of them. */}}
{{- define "specfleet.rules" -}}
- apiGroups: [specfleet.dev]
  resources: [speculativedeployments]
  verbs: [get, list, watch]
- apiGroups: [specfleet.dev]
  resources: [speculativedeployments/status]
  verbs: [patch]
# For clusters that check owner references (OwnerReferencesPermissionEnforcement); no finalizer is set.
- apiGroups: [specfleet.dev]
  resources: [speculativedeployments/finalizers]
  verbs: [update]
- apiGroups: [specfleet.dev]
  resources: [speculativebenchmarks]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments, controllerrevisions]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, list, watch, create, patch, delete]
{{- end -}}
