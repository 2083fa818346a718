{{- define "trainyard.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "trainyard.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "trainyard.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "trainyard.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "trainyard.selector" -}}
app.kubernetes.io/name: {{ include "trainyard.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "trainyard.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "trainyard.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: trainyard
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The namespaces whose jobs are looked after, as a JSON list; empty: all. */}}
{{- define "trainyard.namespaces" -}}
{{- concat (compact (list .Values.watchNamespace)) .Values.watchNamespaces | uniq | toJson }}
{{- end }}

{{/* The full name of an image: (list $ .Values.image) */}}
{{- define "trainyard.image" -}}
{{- $root := index . 0 }}
{{- $image := index . 1 }}
{{- $name := $image.repository }}
{{- if $root.Values.registry }}{{ $name = printf "%s/%s" $root.Values.registry (base $image.repository) }}
{{- else if $image.registry }}{{ $name = printf "%s/%s" $image.registry $image.repository }}{{ end }}
{{- if $image.digest }}
{{- printf "%s@%s" $name $image.digest }}
{{- else }}
{{- printf "%s:%s" $name (default $root.Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{- define "trainyard.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "trainyard.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "trainyard.rootSecret" -}}
{{- default (printf "%s-root" (include "trainyard.fullname" .)) .Values.rootSecret.existingSecret }}
{{- end }}

{{/* What the operator may do where it looks after jobs. */}}
{{- define "trainyard.rules" -}}
# delete: when a job's ttlSecondsAfterFinished is over.
- apiGroups: [trainyard.dev]
  resources: [trainingjobs]
  verbs: [get, list, watch, delete]
- apiGroups: [trainyard.dev]
  resources: [trainingjobs/status]
  verbs: [patch]
# Owner references that block deletion.
- apiGroups: [trainyard.dev]
  resources: [trainingjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, create, patch]
# The addresses behind the names of tasks, which are pods: OpenShift lets nobody else tell of those.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, create, patch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices/restricted]
  verbs: [create]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch]
# volumeClaimTemplates. list, delete: of jobs with whenScaled Delete; patch: owners, by whenDeleted.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, create, patch, delete]
# Secrets of jobs are made and never read.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- with .Values.gangScheduler.kind }}
- apiGroups: [{{ ternary "scheduling.volcano.sh" "scheduling.x-k8s.io" (eq . "Volcano") }}]
  resources: [podgroups]
  verbs: [get, create, patch]
{{- end }}
{{- if .Values.kueue.enabled }}
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
{{- end }}
{{- if .Values.networkPolicy.jobs.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, patch]
{{- end }}
{{- end }}
