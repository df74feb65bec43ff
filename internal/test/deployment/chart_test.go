package deployment

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const chartFolder = root + "/deploy/helm/penstock"

// A scaledObject is what the chart uses of the ScaledObject of KEDA, whose module is larger than all others here.
type scaledObject struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		ScaleTargetRef  autoscaling.CrossVersionObjectReference `json:"scaleTargetRef"`
		MinReplicaCount int32                                   `json:"minReplicaCount"`
		MaxReplicaCount int32                                   `json:"maxReplicaCount"`
		Advanced        struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior autoscaling.HorizontalPodAutoscalerBehavior `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []struct {
			Type       string                       `json:"type"`
			MetricType autoscaling.MetricTargetType `json:"metricType"`
			Metadata   map[string]string            `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

// goTypes are the Go types of the documents, by version and kind.
var goTypes = map[string]func() meta.Object{
	"v1 ConfigMap":                            func() meta.Object { return &core.ConfigMap{} },
	"v1 Secret":                               func() meta.Object { return &core.Secret{} },
	"v1 Service":                              func() meta.Object { return &core.Service{} },
	"v1 ServiceAccount":                       func() meta.Object { return &core.ServiceAccount{} },
	"apps/v1 Deployment":                      func() meta.Object { return &apps.Deployment{} },
	"apps/v1 StatefulSet":                     func() meta.Object { return &apps.StatefulSet{} },
	"autoscaling/v2 HorizontalPodAutoscaler":  func() meta.Object { return &autoscaling.HorizontalPodAutoscaler{} },
	"networking.k8s.io/v1 Ingress":            func() meta.Object { return &networking.Ingress{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() meta.Object { return &networking.NetworkPolicy{} },
	"policy/v1 PodDisruptionBudget":           func() meta.Object { return &policy.PodDisruptionBudget{} },
	"keda.sh/v1alpha1 ScaledObject":           func() meta.Object { return &scaledObject{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() meta.Object { return &monitoring.ServiceMonitor{} },
}

// decode returns a document as the Go type of its kind. A name that the type has not, or that stands twice, is an
// error.
func decode(document string) (meta.Object, error) {
	var of meta.TypeMeta
	if err := yaml.Unmarshal([]byte(document), &of); err != nil {
		return nil, err
	}
	empty, ok := goTypes[of.APIVersion+" "+of.Kind]
	if !ok {
		return nil, fmt.Errorf("no type for %q of %q", of.Kind, of.APIVersion)
	}
	object := empty()
	return object, yaml.UnmarshalStrict([]byte(document), object)
}

// loadChart returns the chart, read again each time: rendering changes it.
func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartFolder)
	require.NoError(t, err)
	return c
}

// render returns what Helm would install as release "r" in namespace "ns", by template.
func render(c *chart.Chart, values string) (map[string]string, error) {
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "r", Namespace: "ns", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(c, all)
}

// split returns the YAML documents of rendered templates, in the order of the templates' names.
func split(files map[string]string) (documents []string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, d := range regexp.MustCompile(`(?m)^---$`).Split(files[name], -1) {
			if strings.TrimSpace(regexp.MustCompile(`(?m)^\s*#.*$`).ReplaceAllString(d, "")) != "" {
				documents = append(documents, d)
			}
		}
	}
	return documents
}

// install returns the objects of the chart with these values.
func install(t *testing.T, values string) objects {
	t.Helper()
	files, err := render(loadChart(t), values)
	require.NoError(t, err)
	all := objects{}
	for _, d := range split(files) {
		object, err := decode(d)
		require.NoError(t, err, d)
		all = append(all, object)
	}
	require.NotEmpty(t, all)
	return all
}

// valuesFiles returns the sets of values that the chart is tried with; the first has none.
func valuesFiles(t *testing.T) map[string]string {
	t.Helper()
	sets := map[string]string{"none": "{}"}
	files, err := filepath.Glob(chartFolder + "/ci/*-values.yaml")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		sets[filepath.Base(file)] = string(text)
	}
	require.Len(t, sets, 4)
	return sets
}

func TestTheChartIsWhatKubernetesTakes(t *testing.T) {
	kinds := map[string]bool{}
	for name, values := range valuesFiles(t) {
		t.Run(name, func(t *testing.T) {
			for _, object := range install(t, values) {
				kinds[fmt.Sprintf("%T", object)] = true
				require.LessOrEqual(t, len(object.GetName()), 57, "with what Kubernetes appends, at most 63")
			}
		})
	}
	require.Len(t, kinds, len(goTypes), "the sets of values have each kind of object")
}

func TestADocumentThatKubernetesDoesNotTakeIsFound(t *testing.T) {
	for wrong, why := range map[string]string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {selectors: {a: b}}":                    "selectors",
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: http}]}":                "int32",
		"apiVersion: v1\nkind: Service\nmetadata: {name: a, name: b}":                                      "already set",
		"apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: a}\nspec: {}":             "no type",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {probe: 1}}}": "probe",
	} {
		_, err := decode(wrong)
		require.ErrorContains(t, err, why)
	}
}

// Without a cluster to look in, what is generated differs each time; everything else is the same.
func TestRenderingTwiceGivesTheSame(t *testing.T) {
	for name, values := range valuesFiles(t) {
		first, err := render(loadChart(t), values)
		require.NoError(t, err)
		second, err := render(loadChart(t), values)
		require.NoError(t, err)
		for file := range first {
			if !strings.Contains(first[file], "kind: Secret") {
				require.Equal(t, first[file], second[file], name)
			}
		}
	}
}

func TestTheNotesSayWhatToDoNext(t *testing.T) {
	for values, said := range map[string]string{
		"{}": "rollout status statefulset/r-penstock",
		"secretSettings: {BROKER_ADMIN_TOKEN: t}": "The store is embedded",
		valuesFiles(t)["bundled-values.yaml"]:     "without backup",
	} {
		files, err := render(loadChart(t), values)
		require.NoError(t, err)
		require.Contains(t, files["penstock/templates/NOTES.txt"], said)
		require.Equal(t, !strings.Contains(values, "BROKER_ADMIN_TOKEN"),
			strings.Contains(files["penstock/templates/NOTES.txt"], "was generated"))
	}
}
