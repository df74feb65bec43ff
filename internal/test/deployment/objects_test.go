package deployment

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// objects are those of one release.
type objects []meta.Object

// all returns those of one type.
func all[T meta.Object](o objects) (of []T) {
	for _, object := range o {
		if t, ok := object.(T); ok {
			of = append(of, t)
		}
	}
	return of
}

// A workload is what runs pods.
type workload struct {
	kind, name string
	replicas   *int32
	selector   *meta.LabelSelector
	pod        core.PodTemplateSpec
	claims     []core.PersistentVolumeClaim
}

func workloads(o objects) (of []workload) {
	for _, d := range all[*apps.Deployment](o) {
		of = append(of, workload{"Deployment", d.Name, d.Spec.Replicas, d.Spec.Selector, d.Spec.Template, nil})
	}
	for _, s := range all[*apps.StatefulSet](o) {
		of = append(of, workload{"StatefulSet", s.Name, s.Spec.Replicas, s.Spec.Selector, s.Spec.Template,
			s.Spec.VolumeClaimTemplates})
	}
	return of
}

// broker returns the workload of the brokers and their container.
func broker(t *testing.T, o objects) (workload, core.Container) {
	t.Helper()
	for _, w := range workloads(o) {
		if c := w.pod.Spec.Containers[0]; c.Name == "broker" {
			return w, c
		}
	}
	t.Fatal("no broker")
	return workload{}, core.Container{}
}

// matched returns the workloads whose pods a selector selects. An empty one selects none here.
func matched(o objects, selector map[string]string) (of []workload) {
	for _, w := range workloads(o) {
		if len(selector) > 0 && holds(w.pod.Labels, selector) {
			of = append(of, w)
		}
	}
	return of
}

// holds reports whether labels have what a selector asks for.
func holds(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// port returns the port of a pod with a name or number; 0: none.
func port(w workload, of intstr.IntOrString) int32 {
	for _, c := range w.pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == of.StrVal && of.Type == intstr.String || p.ContainerPort == of.IntVal && of.Type == intstr.Int {
				return p.ContainerPort
			}
		}
	}
	return 0
}

// each runs a test with each set of values.
func each(t *testing.T, test func(t *testing.T, o objects)) {
	for name, values := range valuesFiles(t) {
		t.Run(name, func(t *testing.T) { test(t, install(t, values)) })
	}
}

func TestEachSelectorSelectsWhatItIsFor(t *testing.T) {
	each(t, func(t *testing.T, o objects) {
		for _, w := range workloads(o) {
			require.Equal(t, []string{w.name}, names(matched(o, w.selector.MatchLabels)))
		}
		for _, s := range all[*core.Service](o) {
			to := matched(o, s.Spec.Selector)
			require.Len(t, to, 1, s.Name)
			for _, p := range s.Spec.Ports {
				require.NotZero(t, port(to[0], p.TargetPort), "%s: %v", s.Name, p.TargetPort)
			}
		}
		brokers, _ := broker(t, o)
		for _, b := range all[*policy.PodDisruptionBudget](o) {
			require.Equal(t, []string{brokers.name}, names(matched(o, b.Spec.Selector.MatchLabels)))
		}
		for _, p := range all[*networking.NetworkPolicy](o) {
			require.Len(t, matched(o, p.Spec.PodSelector.MatchLabels), 1, p.Name)
		}
		for _, s := range all[*apps.StatefulSet](o) {
			require.True(t, slices.ContainsFunc(all[*core.Service](o), func(of *core.Service) bool {
				return of.Name == s.Spec.ServiceName && holds(s.Spec.Template.Labels, of.Spec.Selector)
			}), s.Spec.ServiceName)
		}
	})
}

func names(of []workload) (names []string) {
	for _, w := range of {
		names = append(names, w.name)
	}
	return names
}

func TestWhatScalesIsTheBrokers(t *testing.T) {
	each(t, func(t *testing.T, o objects) {
		var to []autoscaling.CrossVersionObjectReference
		for _, h := range all[*autoscaling.HorizontalPodAutoscaler](o) {
			to = append(to, h.Spec.ScaleTargetRef)
			require.LessOrEqual(t, *h.Spec.MinReplicas, h.Spec.MaxReplicas)
			require.NotEmpty(t, h.Spec.Metrics)
		}
		for _, s := range all[*scaledObject](o) {
			to = append(to, s.Spec.ScaleTargetRef)
			require.Contains(t, read(t, "docs/consumer-metrics.md"), "`penstock_consumer_oldest_waiting_seconds`")
			require.Contains(t, s.Spec.Triggers[0].Metadata["query"],
				`penstock_consumer_oldest_waiting_seconds{namespace="ns",service="r-penstock"}`)
		}
		w, _ := broker(t, o)
		require.Equal(t, len(to) == 0, w.replicas != nil, "what scales decides the number, and Helm does not put it back")
		for _, ref := range to {
			require.Equal(t, autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: w.kind, Name: w.name}, ref)
		}
		several := len(to) > 0 || *w.replicas > 1
		require.Equal(t, several, len(all[*policy.PodDisruptionBudget](o)) == 1)
	})
}

func TestEachVariableIsASetting(t *testing.T) {
	names := settings(t)
	each(t, func(t *testing.T, o objects) {
		for _, w := range workloads(o) {
			for _, c := range slices.Concat(w.pod.Spec.InitContainers, w.pod.Spec.Containers) {
				for _, e := range c.Env {
					require.True(t, known(names, e.Name), e.Name)
				}
			}
		}
		for _, m := range all[*core.ConfigMap](o) {
			for name := range m.Data {
				require.True(t, known(names, name), name)
			}
		}
		for _, s := range all[*core.Secret](o) {
			for name := range s.Data {
				require.True(t, known(names, name), name)
			}
		}
	})
}

// Secrets are in Secrets: neither in a ConfigMap nor in the text of a workload.
func TestNoSecretIsWhereEverybodyReads(t *testing.T) {
	secret := settings(t)
	each(t, func(t *testing.T, o objects) {
		for _, m := range all[*core.ConfigMap](o) {
			for name, value := range m.Data {
				require.False(t, secret[strings.TrimSuffix(name, "_FILE")], name)
				require.NotContains(t, value, "token")
			}
		}
		for _, w := range workloads(o) {
			for _, c := range slices.Concat(w.pod.Spec.InitContainers, w.pod.Spec.Containers) {
				for _, e := range c.Env {
					if secret[e.Name] && e.ValueFrom == nil {
						require.Regexp(t, `:\$\([A-Z]+_PASSWORD\)@`, e.Value, "it comes from a variable of a Secret")
					}
				}
			}
		}
	})
}

// What a pod refers to is there, or was named by whoever installs it.
func TestEachReferenceLeadsSomewhere(t *testing.T) {
	each(t, func(t *testing.T, o objects) {
		there := map[string]bool{"Secret penstock-settings": true, "Secret penstock-seed": true, "Secret penstock-tls": true,
			"ServiceAccount brokers": true, "ServiceAccount ": true, "ConfigMap authorities": true}
		for _, object := range o {
			switch of := object.(type) {
			case *core.Secret:
				there["Secret "+of.Name] = true
			case *core.ConfigMap:
				there["ConfigMap "+of.Name] = true
			case *core.ServiceAccount:
				there["ServiceAccount "+of.Name] = true
			}
		}
		for _, w := range workloads(o) {
			require.Contains(t, there, "ServiceAccount "+w.pod.Spec.ServiceAccountName)
			for _, c := range slices.Concat(w.pod.Spec.InitContainers, w.pod.Spec.Containers) {
				for _, e := range c.EnvFrom {
					if e.SecretRef != nil {
						require.Contains(t, there, "Secret "+e.SecretRef.Name)
					} else {
						require.Contains(t, there, "ConfigMap "+e.ConfigMapRef.Name)
					}
				}
				for _, e := range c.Env {
					if e.ValueFrom != nil {
						require.Contains(t, there, "Secret "+e.ValueFrom.SecretKeyRef.Name)
						require.Nil(t, e.ValueFrom.SecretKeyRef.Optional)
					}
				}
			}
			for _, v := range w.pod.Spec.Volumes {
				if v.Secret != nil {
					require.Contains(t, there, "Secret "+v.Secret.SecretName)
				}
			}
		}
	})
}

func TestEachPodHasTheLeastRights(t *testing.T) {
	each(t, func(t *testing.T, o objects) {
		for _, w := range workloads(o) {
			pod := w.pod.Spec
			require.False(t, *pod.AutomountServiceAccountToken)
			require.False(t, *pod.EnableServiceLinks, "they look like settings")
			require.True(t, *pod.SecurityContext.RunAsNonRoot)
			require.NotZero(t, *pod.SecurityContext.RunAsUser)
			require.Equal(t, core.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
			mountable := map[string]bool{}
			for _, v := range pod.Volumes {
				mountable[v.Name] = true
			}
			for _, c := range w.claims {
				mountable[c.Name] = true
			}
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
				require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
				require.Equal(t, []core.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
				require.NotEmpty(t, c.Resources.Requests)
				require.NotEmpty(t, c.Resources.Limits)
				for _, m := range c.VolumeMounts {
					require.True(t, mountable[m.Name], m.Name)
				}
			}
		}
	})
}

func TestProbesAskRoutesThatAreThere(t *testing.T) {
	paths := routes(t)
	each(t, func(t *testing.T, o objects) {
		w, c := broker(t, o)
		for _, p := range []*core.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			require.True(t, paths[p.HTTPGet.Path], p.HTTPGet.Path)
			require.Equal(t, int32(8080), port(w, p.HTTPGet.Port))
		}
		require.Equal(t, "/livez", c.LivenessProbe.HTTPGet.Path, "a store that is away restarts no broker")
		for _, m := range all[*monitoring.ServiceMonitor](o) {
			var services []*core.Service
			for _, s := range all[*core.Service](o) {
				if holds(s.Labels, m.Spec.Selector.MatchLabels) {
					services = append(services, s)
				}
			}
			require.Len(t, services, 1, "each broker is scraped once")
			for _, e := range m.Spec.Endpoints {
				require.True(t, paths[e.Path], e.Path)
				named := func(p core.ServicePort) bool { return p.Name == e.Port }
				require.True(t, slices.ContainsFunc(services[0].Spec.Ports, named), e.Port)
			}
		}
		for _, i := range all[*networking.Ingress](o) {
			require.Equal(t, w.name, i.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name)
		}
	})
}

// A pod gets more time to stop than a broker takes, and a listener for each port.
func TestTheBrokerStopsInTimeAndListensWhereItIsAsked(t *testing.T) {
	each(t, func(t *testing.T, o objects) {
		w, c := broker(t, o)
		env := map[string]string{}
		for _, e := range c.Env {
			env[e.Name] = e.Value
		}
		delay, err := time.ParseDuration(env["BROKER_DRAIN_DELAY"])
		require.NoError(t, err)
		timeout, err := time.ParseDuration(env["BROKER_DRAIN_TIMEOUT"])
		require.NoError(t, err)
		grace := time.Duration(*w.pod.Spec.TerminationGracePeriodSeconds) * time.Second
		require.Greater(t, grace, delay+2*timeout+25*time.Second)
		ready := c.ReadinessProbe
		noticed := time.Duration(ready.PeriodSeconds*ready.FailureThreshold) * time.Second
		require.Greater(t, delay, noticed, "endpoints are without it before it closes its listener")

		listens := map[string]string{"http": "BROKER_LISTEN", "https": "BROKER_TLS_LISTEN", "h2c": "BROKER_H2C_LISTEN"}
		for _, p := range c.Ports {
			require.Equal(t, fmt.Sprint("0.0.0.0:", p.ContainerPort), env[listens[p.Name]])
			delete(listens, p.Name)
		}
		for name := range maps.Values(listens) {
			require.NotContains(t, env, name, "a listener without a port")
		}
	})
}

// The brokers reach the servers of the chart, and these servers are for brokers only.
func TestPoliciesOfTheNetworkLetThroughWhatIsNeeded(t *testing.T) {
	o := install(t, valuesFiles(t)["bundled-values.yaml"])
	w, c := broker(t, o)
	for _, server := range []string{"mysql", "redis"} {
		name := "r-penstock-" + server
		require.True(t, slices.ContainsFunc(c.Env, func(e core.EnvVar) bool { return strings.Contains(e.Value, name+":") }))
		var into *networking.NetworkPolicy
		for _, p := range all[*networking.NetworkPolicy](o) {
			if p.Name == name {
				into = p
			}
		}
		require.NotNil(t, into)
		require.Equal(t, []string{name}, names(matched(o, into.Spec.PodSelector.MatchLabels)))
		require.Len(t, into.Spec.Ingress, 1)
		require.Equal(t, []string{w.name}, names(matched(o, into.Spec.Ingress[0].From[0].PodSelector.MatchLabels)))
		require.Empty(t, into.Spec.Egress)
		require.Contains(t, into.Spec.PolicyTypes, networking.PolicyTypeEgress)
	}
}
