{{/* The pod of a broker, the same in a StatefulSet and in a Deployment. */}}
{{- define "penstock.env" -}}
- name: BROKER_LISTEN
  value: 0.0.0.0:8080
- name: BROKER_DATA_DIR
  value: /data
- name: BROKER_DRAIN_DELAY
  value: {{ printf "%ds" (int .Values.stop.drainDelaySeconds) }}
- name: BROKER_DRAIN_TIMEOUT
  value: {{ printf "%ds" (int .Values.stop.drainTimeoutSeconds) }}
{{- if .Values.tls.enabled }}
- name: BROKER_TLS_LISTEN
  value: 0.0.0.0:8443
- name: BROKER_TLS_CERT
  value: /etc/penstock/tls/tls.crt
- name: BROKER_TLS_KEY
  value: /etc/penstock/tls/tls.key
{{- if .Values.tls.clientCA }}
- name: BROKER_TLS_CLIENT_CA
  value: /etc/penstock/tls/ca.crt
{{- end }}
{{- end }}
{{- if .Values.h2c.enabled }}
- name: BROKER_H2C_LISTEN
  value: 0.0.0.0:8081
{{- end }}
{{- if include "penstock.seeded" . }}
- name: BROKER_SEED_FILE
  value: /etc/penstock/seed/seed.ini
{{- end }}
{{- if eq .Values.store "mysql" }}
{{- if .Values.mysql.enabled }}
- name: MYSQL_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ include "penstock.mysqlSecret" . }}
      key: mysql-password
- name: BROKER_MYSQL_DSN
  value: penstock:$(MYSQL_PASSWORD)@tcp({{ include "penstock.fullname" . }}-mysql:3306)/penstock
{{- else }}
{{- /* By name: a Secret without it must not lead to embedded stores, one for each broker. */}}
- name: BROKER_MYSQL_DSN
  valueFrom:
    secretKeyRef:
      name: {{ include "penstock.secret" . }}
      key: BROKER_MYSQL_DSN
{{- end }}
{{- if .Values.redis.enabled }}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ include "penstock.redisSecret" . }}
      key: redis-password
- name: BROKER_REDIS_URL
  value: redis://:$(REDIS_PASSWORD)@{{ include "penstock.fullname" . }}-redis:6379/0
{{- else }}
- name: BROKER_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "penstock.secret" . }}
      key: BROKER_REDIS_URL
{{- end }}
{{- end }}
{{- end -}}

{{- define "penstock.seeded" -}}
{{- if or .Values.seed.text .Values.seed.existingSecret -}}true{{- end -}}
{{- end -}}

{{- define "penstock.container" -}}
image: {{ include "penstock.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
env:
  {{- include "penstock.env" . | nindent 2 }}
envFrom:
  - configMapRef:
      name: {{ include "penstock.fullname" . }}
  - secretRef:
      name: {{ include "penstock.secret" . }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  - name: data
    mountPath: /data
  - name: tmp
    mountPath: /tmp
  {{- if .Values.tls.enabled }}
  - name: tls
    mountPath: /etc/penstock/tls
    readOnly: true
  {{- end }}
  {{- if include "penstock.seeded" . }}
  - name: seed
    mountPath: /etc/penstock/seed
    readOnly: true
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "penstock.pod" -}}
{{- $broker := dict "root" . "component" "broker" -}}
metadata:
  labels:
    {{- include "penstock.labels" $broker | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # A change of these rolls the brokers.
    checksum/settings: {{ toJson .Values.settings | sha256sum }}
    checksum/secrets: {{ printf "%s%s" (toJson .Values.secretSettings) (toJson .Values.seed) | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "penstock.serviceAccount" . }}
  automountServiceAccountToken: false
  # Variables of services named broker look like settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "penstock.graceSeconds" . }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- with .Values.topologySpreadConstraints }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "penstock.matchLabels" $broker | nindent 10 }}
    {{- end }}
  {{- if .Values.check }}
  initContainers:
    - name: check
      args: [check, --starting]
      {{- include "penstock.container" . | nindent 6 }}
  {{- end }}
  containers:
    - name: broker
      args: [serve]
      {{- include "penstock.container" . | nindent 6 }}
      ports:
        - name: http
          containerPort: 8080
        {{- if .Values.tls.enabled }}
        - name: https
          containerPort: 8443
        {{- end }}
        {{- if .Values.h2c.enabled }}
        - name: h2c
          containerPort: 8081
        {{- end }}
      startupProbe:
        httpGet:
          path: /livez
          port: http
        periodSeconds: 5
        timeoutSeconds: 3
        failureThreshold: {{ max 1 (div (int .Values.probes.startupSeconds) 5) }}
      livenessProbe:
        httpGet:
          path: /livez
          port: http
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet:
          path: {{ .Values.probes.readinessPath }}
          port: http
        periodSeconds: 2
        timeoutSeconds: 3
        failureThreshold: 2
  volumes:
    - name: tmp
      emptyDir: {}
    {{- if not .Values.persistence.enabled }}
    - name: data
      emptyDir: {}
    {{- end }}
    {{- if .Values.tls.enabled }}
    - name: tls
      secret:
        secretName: {{ .Values.tls.existingSecret }}
        defaultMode: 0440
    {{- end }}
    {{- if include "penstock.seeded" . }}
    - name: seed
      secret:
        secretName: {{ default (printf "%s-seed" (include "penstock.fullname" .)) .Values.seed.existingSecret }}
        defaultMode: 0440
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
