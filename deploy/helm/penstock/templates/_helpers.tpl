{{- define "penstock.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* 40 characters leave room for what is appended, and for the revisions of a StatefulSet in labels. */}}
{{- define "penstock.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "penstock.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "penstock.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "penstock.matchLabels" -}}
app.kubernetes.io/name: {{ include "penstock.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "penstock.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{ include "penstock.matchLabels" . }}
{{- end -}}

{{- define "penstock.image" -}}
{{- $i := .Values.image -}}
{{- if $i.digest -}}
{{- printf "%s@%s" $i.repository $i.digest -}}
{{- else -}}
{{- printf "%s:%s" $i.repository (default .Chart.AppVersion $i.tag) -}}
{{- end -}}
{{- end -}}

{{- define "penstock.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "penstock.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Names of the Secrets. */}}
{{- define "penstock.secret" -}}
{{- default (include "penstock.fullname" .) .Values.existingSecret -}}
{{- end -}}
{{- define "penstock.mysqlSecret" -}}
{{- default (printf "%s-mysql" (include "penstock.fullname" .)) .Values.mysql.existingSecret -}}
{{- end -}}
{{- define "penstock.redisSecret" -}}
{{- default (printf "%s-redis" (include "penstock.fullname" .)) .Values.redis.existingSecret -}}
{{- end -}}

{{/* A value of a Secret of this chart: the one that is there, else a new one. Arguments: root, secret, key. */}}
{{- define "penstock.kept" -}}
{{- $there := lookup "v1" "Secret" .root.Release.Namespace .secret -}}
{{- $value := "" -}}
{{- if $there -}}{{- $value = index (default dict $there.data) .key | default "" -}}{{- end -}}
{{- default (randAlphaNum 32 | b64enc) $value -}}
{{- end -}}

{{/* Secrets that must not stand in settings, whose values are in a ConfigMap. */}}
{{- define "penstock.secretNames" -}}
BROKER_ADMIN_TOKEN BROKER_ALERT_SMTP_URL BROKER_ALERT_WEBHOOK_SECRET BROKER_ALERT_WEBHOOK_URL BROKER_ARCHIVE_S3_ACCESS_KEY BROKER_ARCHIVE_S3_SECRET_KEY BROKER_GATEWAY_SECRET BROKER_MYSQL_DSN BROKER_MYSQL_DSNS BROKER_REDIS_URL BROKER_TOKEN_KEY BROKER_TOKEN_KEY_PREVIOUS OTEL_EXPORTER_OTLP_HEADERS OTEL_EXPORTER_OTLP_TRACES_HEADERS SENTRY_DSN
{{- end -}}

{{/* Settings that other values decide. */}}
{{- define "penstock.ownNames" -}}
BROKER_LISTEN BROKER_TLS_LISTEN BROKER_TLS_CERT BROKER_TLS_KEY BROKER_TLS_CLIENT_CA BROKER_H2C_LISTEN BROKER_DATA_DIR BROKER_DRAIN_DELAY BROKER_DRAIN_TIMEOUT BROKER_SEED_FILE
{{- end -}}

{{- define "penstock.scaled" -}}
{{- if ne .Values.autoscaling.type "none" -}}true{{- end -}}
{{- end -}}

{{- define "penstock.kind" -}}
{{- if .Values.persistence.enabled -}}StatefulSet{{- else -}}Deployment{{- end -}}
{{- end -}}

{{/* Most that a stop takes: BROKER_DRAIN_DELAY + twice BROKER_DRAIN_TIMEOUT + 25 s, and some more. */}}
{{- define "penstock.graceSeconds" -}}
{{- add .Values.stop.drainDelaySeconds (mul 2 .Values.stop.drainTimeoutSeconds) 30 -}}
{{- end -}}

{{/* What does not go together. */}}
{{- define "penstock.validate" -}}
{{- $v := .Values -}}
{{- $given := $v.secretSettings -}}
{{- if eq $v.store "embedded" -}}
{{- if or (gt (int $v.replicas) 1) (include "penstock.scaled" .) -}}
{{- fail "store=embedded belongs to one broker: replicas is 1 and autoscaling.type is none, or store=mysql" -}}
{{- end -}}
{{- if not $v.persistence.enabled -}}
{{- fail "store=embedded needs persistence.enabled: the store is in that volume" -}}
{{- end -}}
{{- if or $v.mysql.enabled $v.redis.enabled (hasKey $given "BROKER_MYSQL_DSN") (hasKey $given "BROKER_REDIS_URL") -}}
{{- fail "store=embedded uses neither MySQL nor Redis: set store=mysql" -}}
{{- end -}}
{{- else -}}
{{- range $name, $from := dict "BROKER_MYSQL_DSN" $v.mysql "BROKER_REDIS_URL" $v.redis -}}
{{- if and $from.enabled (hasKey $given $name) -}}
{{- fail (printf "%s is in secretSettings, and a server of the chart is enabled: choose one" $name) -}}
{{- end -}}
{{- if not (or $from.enabled $v.existingSecret (hasKey $given $name)) -}}
{{- fail (printf "store=mysql needs %s: in existingSecret, in secretSettings, or from mysql.enabled and redis.enabled" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.existingSecret $given -}}
{{- fail "existingSecret and secretSettings are both set: put everything into one of them" -}}
{{- end -}}
{{- range $name, $_ := $v.settings -}}
{{- if has (trimSuffix "_FILE" $name) (splitList " " (include "penstock.secretNames" $)) -}}
{{- fail (printf "%s is a secret: it belongs into existingSecret or secretSettings, not into settings" $name) -}}
{{- end -}}
{{- if has $name (splitList " " (include "penstock.ownNames" $)) -}}
{{- fail (printf "%s is decided by other values of the chart: leave it out of settings" $name) -}}
{{- end -}}
{{- end -}}
{{- if and $v.tls.enabled (not $v.tls.existingSecret) -}}
{{- fail "tls.enabled needs tls.existingSecret, with tls.crt and tls.key" -}}
{{- end -}}
{{- if and (eq $v.autoscaling.type "keda") (not $v.autoscaling.prometheus) -}}
{{- fail "autoscaling.type=keda needs autoscaling.prometheus, the address of Prometheus" -}}
{{- end -}}
{{- if and (eq $v.autoscaling.type "hpa") (not $v.autoscaling.cpuPercent) (not $v.autoscaling.externalMetric) -}}
{{- fail "autoscaling.type=hpa needs cpuPercent or externalMetric" -}}
{{- end -}}
{{- if and (include "penstock.scaled" .) (gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling.minReplicas is above maxReplicas" -}}
{{- end -}}
{{- end -}}
