{{- define "rl.labels" -}}
app.kubernetes.io/part-of: rl-operator
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.extraLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Labels that select the pods of one component; called with (list $ "component"). */}}
{{- define "rl.selector" -}}
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- /* Name of an object that is in no namespace; called with (list $ "part"). No other release has it: one namespace has
one release, and its name has no dot. */}}
{{- define "rl.clusterName" -}}
{{- printf "rl-operator-%s.%s" (index . 1) (index . 0).Release.Namespace -}}
{{- end }}

{{- /* The operator's service account. It was rl-operator while cluster-wide objects were named after the release: what an
upgrade without pruning leaves of these holds for that account, which no pod has any more. */}}
{{- define "rl.account" -}}
rl-operator-controller
{{- end }}

{{- /* Reference of an image; called with (list $ "component"). images.COMPONENT wins over image.registry. */}}
{{- define "rl.reference" -}}
{{- $name := index . 1 -}}
{{- $own := index (index . 0).Values.images $name -}}
{{- if $own -}}
{{- $own -}}
{{- else if eq $name "engine" -}}
{{- fail "set images.engine to a full image reference: SGLang's own image, or REGISTRY/engine-cpu for processors" -}}
{{- else -}}
{{- $help := printf "set image.registry to where the images are, for example ghcr.io/you/rl-operator, or images.%s to a full image reference" $name -}}
{{- $registry := required $help (index . 0).Values.image.registry | trimSuffix "/" -}}
{{- if contains "://" $registry -}}
{{- fail (printf "image.registry is %s: leave out https://, as in ghcr.io/you/rl-operator" $registry) -}}
{{- end -}}
{{- $tag := default (index . 0).Chart.AppVersion (index . 0).Values.image.tag -}}
{{- $digest := index (index . 0).Values.image.digests $name -}}
{{- printf "%s/%s:%s%s" $registry $name $tag (empty $digest | ternary "" (printf "@%s" $digest)) -}}
{{- end -}}
{{- end }}

{{- /* The same reference, refused where it names no fixed image. */}}
{{- define "rl.image" -}}
{{- $name := index . 1 -}}
{{- $image := include "rl.reference" . -}}
{{- if and (index . 0).Values.images.requireDigest (not (regexMatch "@sha256:[0-9a-f]{64}$" $image)) -}}
{{- fail (printf "images.%s is %s, and images.requireDigest is true: append the image's digest, name@sha256:…" $name $image) -}}
{{- end -}}
{{- if not (regexMatch "(:[a-zA-Z0-9_][a-zA-Z0-9_.-]*|@sha256:[0-9a-f]{64})$" $image) -}}
{{- fail (printf "images.%s is %s, which names no tag: pods of one release may get different images. Name a tag, or a digest: name@sha256:…" $name $image) -}}
{{- end -}}
{{- if hasSuffix ":latest" $image -}}
{{- fail (printf "images.%s is %s: pods of one release may get different images. Name a tag that does not change, or a digest: name@sha256:…" $name $image) -}}
{{- end -}}
{{- $image -}}
{{- end }}

{{- /* Not empty if an RLJob has ended; called with the job. */}}
{{- define "rl.hasEnded" -}}
{{- range (.status).conditions }}
{{- if and (has .type (list "Complete" "Failed")) (eq .status "True") }}true{{ end }}
{{- end }}
{{- end }}

{{- /* Why an RLJob still needs the operator, and what to do; empty if it does not. Called with the job. */}}
{{- define "rl.needsOperator" -}}
{{- if ne (.spec.managedBy | default "rl-operator.io/operator") "rl-operator.io/operator" -}}
{{- else if .metadata.deletionTimestamp -}}
is being deleted: wait until it is gone
{{- else if not (include "rl.hasEnded" .) -}}
has not ended: let it end, delete it
{{- else if has "rl-operator.io/data" (.metadata.finalizers | default list) -}}
{{- if eq ((.spec.lifecycle).dataPolicy | default "Retain") "Delete" -}}
has data that are deleted with it (dataPolicy: Delete): delete it
{{- else -}}
keeps samplers that hold the quota of a queue: delete them (kubectl delete samplerpool -l rl-operator.io/job={{ .metadata.name }}), let their pods end
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Not empty if another release watches a namespace by a binding of its own; called with (list $ "namespace"). */}}
{{- define "rl.othersWatch" -}}
{{- $release := (index . 0).Release.Namespace -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "RoleBinding" (index . 1) "rl-operator").subjects }}
{{- if ne (.namespace | default $release) $release }}true{{ end }}
{{- end }}
{{- end }}

{{- define "rl.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "rl.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end }}

{{- define "rl.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{- /* Rules of the operator in the namespaces that it watches. */}}
{{- define "rl.rules" -}}
- apiGroups: [rl-operator.io]
  resources: [rljobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [rl-operator.io]
  resources: [samplerpools]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [rl-operator.io]
  resources: [rljobs/status, samplerpools/status]
  verbs: [patch]
- apiGroups: [rl-operator.io]
  resources: [rljobs/finalizers, samplerpools/finalizers]
  verbs: [update]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  # delete: when a job or pool no longer wants one (networkPolicy: None, disruption.pdb: false).
  verbs: [get, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  # Of pods that run programs; delete: when programs run in the sampler's pod from now on.
  verbs: [get, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create]
- apiGroups: [""]
  resources: [pods]
  # get, create: the pods that read the stores; patch: the deletion cost of pods in a shrinking pool;
  # delete: samplers that stay stale or silent, pods of single episodes that had theirs, and readers that nobody asks.
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  # list: what the kubelet says of a pod that does not start.
  verbs: [get, list, create, patch]
# The Lease of a run that another job has adopted (spec.runId).
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update]
{{- if .Values.kueue.enabled }}
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
{{- end }}
{{- if .Values.agentSandbox.enabled }}
- apiGroups: [extensions.agents.x-k8s.io]
  resources: [sandboxtemplates]
  verbs: [get, create, patch]
- apiGroups: [extensions.agents.x-k8s.io]
  resources: [sandboxwarmpools]
  verbs: [get, list, watch, create, patch]
- apiGroups: [extensions.agents.x-k8s.io]
  resources: [sandboxclaims]
  # delete: a claim whose pod had its episode.
  verbs: [get, list, watch, create, delete]
{{- end }}
{{- end }}
