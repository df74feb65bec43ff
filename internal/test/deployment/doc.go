// Package deployment holds the tests of what installs a broker: the Helm chart in deploy/helm/penstock and
// docker-compose.yml. It has no other content.
//
//	chart_test.go     renders the chart with the engine of Helm, and decodes each document into its Go type
//	objects_test.go   what has to be true of each set of documents: names, ports, selectors, secrets, rights
//	values_test.go    what single values do, and which ones are refused
//	compose_test.go   docker-compose.yml, by the schema of compose
//	workflows_test.go the workflows of GitHub: YAML, and targets that are there
//	program_test.go   names of settings and routes, from the pages that tests of the program keep true
//
// It is a module of its own: nothing else here needs Helm, Kubernetes or compose.
package deployment
