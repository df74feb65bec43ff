package deployment

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// servers returns values with a store of servers.
func servers(values string) string { return "{store: mysql, " + values + "}" }

func TestValuesThatDoNotGoTogetherAreRefused(t *testing.T) {
	for values, why := range map[string]string{
		"replicas: 2":                           "belongs to one broker",
		"autoscaling: {type: hpa}":              "belongs to one broker",
		"persistence: {enabled: false}":         "needs persistence.enabled",
		"mysql: {enabled: true}":                "set store=mysql",
		"store: mysql":                          "needs BROKER_",
		servers("redis: {enabled: true}"):       "needs BROKER_MYSQL_DSN",
		"settings: {BROKER_ADMIN_TOKEN: a}":     "is a secret",
		"settings: {BROKER_MYSQL_DSN_FILE: /a}": "is a secret",
		"settings: {BROKER_LISTEN: ':80'}":      "decided by other values",
		"settings: {BROKER_DRAIN_DELAY: 1s}":    "decided by other values",
		"tls: {enabled: true}":                  "tls.existingSecret",

		servers("mysql: {enabled: true}, secretSettings: {BROKER_MYSQL_DSN: a}"): "choose one",
		"{existingSecret: a, secretSettings: {BROKER_ADMIN_TOKEN: a}}":           "both set",
		servers("existingSecret: a, autoscaling: {type: keda}"):                  "autoscaling.prometheus",
		servers("existingSecret: a, autoscaling: {type: hpa, cpuPercent: 0}"):    "cpuPercent or externalMetric",
		servers("existingSecret: a, autoscaling: {type: hpa, minReplicas: 9}"):   "above maxReplicas",
	} {
		_, err := render(loadChart(t), values)
		require.ErrorContains(t, err, why, values)
	}
}

func TestTheSchemaRefusesWhatIsMisspelt(t *testing.T) {
	for _, values := range []string{
		"replica: 2", "replicas: two", "store: sqlite", "image: {digest: latest}", "settings: {broker_listen: a}",
		"settings: {BROKER_ALLOWED_HOSTS: [a]}", "secretSettings: {ADMIN_TOKEN: a}",
		"secretSettings: {BROKER_ADMIN_TOKEN: ''}",
		"persistence: {accessModes: [ReadWriteMany]}", "probes: {readinessPath: /healthz}", "service: {port: 70000}",
		"stop: {drainTimeoutSeconds: 0}", "autoscaling: {type: vpa}", "ingress: {enabled: true}", "tls: {port: https}",
		"mysql: {enabled: 'yes'}", "redis: {size: big}", "existingSecret: Not_A_Name",
		"podDisruptionBudget: {maxUnavailable: 0}",
	} {
		_, err := render(loadChart(t), values)
		require.ErrorContains(t, err, "values don't meet the specifications", values)
	}
}

// The names in the chart of what is secret are those of the program, and of the libraries that take one.
func TestTheChartKnowsWhatIsSecret(t *testing.T) {
	secret := []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "SENTRY_DSN"}
	for name, is := range settings(t) {
		if is {
			secret = append(secret, name)
		}
	}
	require.ElementsMatch(t, secret, list(t, "penstock.secretNames"), "deploy/helm/penstock/templates/_helpers.tpl")
	names := settings(t)
	for _, name := range list(t, "penstock.ownNames") {
		require.Contains(t, names, name)
	}
}

// list returns the words of a template.
func list(t *testing.T, name string) []string {
	t.Helper()
	text := read(t, "deploy/helm/penstock/templates/_helpers.tpl")
	line := regexp.MustCompile(`\{\{- define "` + regexp.QuoteMeta(name) + `" -\}\}\n([A-Z0-9_ ]+)\n`)
	found := line.FindStringSubmatch(text)
	require.Len(t, found, 2, name)
	return strings.Fields(found[1])
}

// Settings and secrets arrive as they were given, whatever YAML makes of them.
func TestValuesArriveUnchanged(t *testing.T) {
	o := install(t, `
settings: {BROKER_MAX_RETRIES: 8, BROKER_ALLOW_DELETE: true, BROKER_PRODUCER_MAX_SCHEDULED: 10000000,
  BROKER_USER_AGENT: "a \"b\": {{ c }} # d"}
secretSettings: {BROKER_ADMIN_TOKEN: "1e3"}`)
	require.Equal(t, map[string]string{"BROKER_MAX_RETRIES": "8", "BROKER_ALLOW_DELETE": "true",
		"BROKER_PRODUCER_MAX_SCHEDULED": "10000000", "BROKER_USER_AGENT": `a "b": {{ c }} # d`},
		all[*core.ConfigMap](o)[0].Data)
	require.Equal(t, map[string][]byte{"BROKER_ADMIN_TOKEN": []byte("1e3")}, all[*core.Secret](o)[0].Data)
}

// The secret of whoever installs it is used, and the chart makes none.
func TestAnExistingSecretIsUsed(t *testing.T) {
	o := install(t, "{store: mysql, existingSecret: mine, replicas: 3}")
	require.Empty(t, all[*core.Secret](o))
	_, c := broker(t, o)
	for _, name := range []string{"BROKER_MYSQL_DSN", "BROKER_REDIS_URL"} {
		at := slices.IndexFunc(c.Env, func(e core.EnvVar) bool { return e.Name == name })
		require.GreaterOrEqual(t, at, 0, "a Secret without it must not lead to embedded stores")
		require.Equal(t, "mine", c.Env[at].ValueFrom.SecretKeyRef.Name)
		require.Equal(t, name, c.Env[at].ValueFrom.SecretKeyRef.Key)
	}
	require.Contains(t, c.EnvFrom, core.EnvFromSource{
		SecretRef: &core.SecretEnvSource{LocalObjectReference: core.LocalObjectReference{Name: "mine"}}})
}

// A setting, or a secret, that changes rolls the brokers.
func TestAChangeRollsTheBrokers(t *testing.T) {
	before, _ := broker(t, install(t, "{}"))
	same, _ := broker(t, install(t, "{}"))
	require.Equal(t, before.pod, same.pod)
	for _, values := range []string{"settings: {BROKER_TTL: 1h}", "secretSettings: {BROKER_ADMIN_TOKEN: t}",
		"seed: {text: a}"} {
		after, _ := broker(t, install(t, values))
		require.False(t, maps.Equal(before.pod.Annotations, after.pod.Annotations), values)
	}
}

// The schema has each value, so that none is without a check.
func TestTheSchemaHasEachValue(t *testing.T) {
	var schema struct {
		Properties map[string]any
	}
	var values map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "deploy/helm/penstock/values.schema.json")), &schema))
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "deploy/helm/penstock/values.yaml")), &values))
	delete(schema.Properties, "global") // Helm's own
	require.ElementsMatch(t, slices.Collect(maps.Keys(schema.Properties)), slices.Collect(maps.Keys(values)))
}

func TestTheImageIsWhatWasAskedFor(t *testing.T) {
	for values, image := range map[string]string{
		"{}":               "ghcr.io/penstock-broker/penstock:" + loadChart(t).Metadata.AppVersion,
		"image: {tag: v9}": "ghcr.io/penstock-broker/penstock:v9",
		"image: {repository: a.example/p, tag: v9, digest: 'sha256:" + strings.Repeat("a", 64) + "'}": "a.example/p@sha256:" +
			strings.Repeat("a", 64),
	} {
		_, c := broker(t, install(t, values))
		require.Equal(t, image, c.Image)
	}
}
