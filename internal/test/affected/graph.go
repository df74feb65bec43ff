package main

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// A node is a package as `go list -json` shows it.
type node struct {
	ImportPath   string
	Dir          string   // here relative to the root of the module, with slashes
	Deps         []string // everything that its code imports, directly or not
	TestImports  []string
	XTestImports []string
	TestGoFiles  []string
	XTestGoFiles []string
}

// hasTests reports whether `go test` finds something to run.
func (n node) hasTests() bool { return len(n.TestGoFiles)+len(n.XTestGoFiles) > 0 }

// A graph has the packages of a module by import path.
type graph map[string]node

// readsTheTree names the packages whose tests read files of all others.
var readsTheTree = []string{"internal/test/shape", "internal/test/pages"}

// needsServers names the package whose tests all need real servers.
const needsServers = "internal/test/servers"

// testsClients is the package that tests the clients, whose folders are no packages of this module.
const testsClients = "internal/test/clients"

// clientOf returns the folder of the client that a file belongs to, "" for none.
func clientOf(file string) string {
	parts := strings.SplitN(file, "/", 3)
	if len(parts) < 3 || parts[0] != "clients" {
		return ""
	}
	return parts[0] + "/" + parts[1]
}

// importPath returns the import path of another folder from that of a package and its folder.
func importPath(name, dir, other string) string {
	module, ok := strings.CutSuffix(name, dir)
	if !ok || module == "" {
		return ""
	}
	return module + other
}

// affected returns the import paths of the packages with tests whose result the files may change,
// in order. Packages with a changed file come first: their failure says most. A name is relative to
// the root of the module; modules below it are other modules.
func (g graph) affected(files, modules []string) []string {
	own, code, folders := map[string]bool{}, map[string]bool{}, map[string]string{}
	for name, n := range g {
		folders[n.Dir] = name
	}
	for _, file := range files {
		if dir := clientOf(file); dir != "" {
			for name, n := range g {
				own[name] = own[name] || n.Dir == testsClients
				if imports := importPath(name, n.Dir, dir); imports != "" {
					code[imports] = code[imports] || !strings.HasSuffix(file, "_test.go")
				}
			}
			continue
		}
		if slices.ContainsFunc(modules, func(dir string) bool { return within(file, dir) }) {
			continue
		}
		if file == "go.mod" || file == "go.sum" { // each package may have another dependency now
			for name := range g {
				code[name] = true
			}
			continue
		}
		name := owner(file, folders)
		if name == "" {
			continue
		}
		own[name] = true
		if !strings.HasSuffix(file, "_test.go") { // nobody imports the tests of a package
			code[name] = true
		}
	}
	first, rest := []string{}, []string{}
	for _, name := range slices.Sorted(maps.Keys(g)) {
		n := g[name]
		switch {
		case !n.hasTests(), n.Dir == needsServers:
		case own[name] || code[name]:
			first = append(first, name)
		case slices.Contains(readsTheTree, n.Dir) && len(files) > 0, g.reaches(n, code):
			rest = append(rest, name)
		}
	}
	return append(first, rest...)
}

// owner returns the package of a file, from the packages by their folders: that of its folder or, for
// a file that is no source of a package, of the nearest folder above it, whose code may embed it or
// whose tests may read it. "" is none.
func owner(file string, folders map[string]string) string {
	source := strings.HasSuffix(file, ".go") && !strings.Contains(file, "testdata/")
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if name := folders[dir]; name != "" || source { // the package of a source may be gone
			return name
		}
	}
	return ""
}

// reaches reports whether the code or the tests of a package import one of the changed ones.
func (g graph) reaches(n node, changed map[string]bool) bool {
	hit := func(names []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return changed[name] })
	}
	if hit(n.Deps) {
		return true
	}
	for _, name := range slices.Concat(n.TestImports, n.XTestImports) {
		if changed[name] || hit(g[name].Deps) {
			return true
		}
	}
	return false
}

// within reports whether a file is in a folder.
func within(file, dir string) bool { return strings.HasPrefix(file, dir+"/") }
