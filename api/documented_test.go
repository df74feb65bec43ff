package api

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// Each exchange of the tests of this package is compared with openapi.json: status, headers and code of an answer
// must be documented for its route. TestMain fails with the list of those that are not.

// A documented is what openapi.json says of the answers of a route.
type documented struct {
	Responses map[string]struct {
		Ref     string         `json:"$ref"`
		Headers map[string]any `json:"headers"`
	} `json:"responses"`
	Codes []string `json:"x-codes"`
}

// A contract is what the tests read of openapi.json.
type contract struct {
	routes map[string]documented      // by method and path
	failed map[string]map[string]bool // headers of an error, by status
	common map[string]bool            // "404 not_found": every route may answer it
	codes  map[string]bool            // that /docs/errors explains
}

var documentedContract = sync.OnceValue(func() *contract {
	var d struct {
		Paths      map[string]map[string]documented `json:"paths"`
		Components struct {
			Responses map[string]struct {
				Headers map[string]any `json:"headers"`
			} `json:"responses"`
		} `json:"components"`
		Codes []struct {
			Status int    `json:"status"`
			Code   string `json:"code"`
		} `json:"x-codes"`
	}
	text, err := os.ReadFile("../internal/feature/openapi/openapi.json")
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		panic(err)
	}
	c := &contract{map[string]documented{}, map[string]map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, of := range d.Codes {
		c.codes[of.Code] = true
		c.common[strconv.Itoa(of.Status)+" "+of.Code] = true
	}
	for path, methods := range d.Paths {
		for method, of := range methods {
			c.routes[strings.ToUpper(method)+" "+path] = of
			for _, code := range of.Codes {
				delete(c.common, code)
			}
		}
	}
	for status, of := range d.Components.Responses {
		c.failed[status] = map[string]bool{}
		for name := range of.Headers {
			c.failed[status][strings.ToLower(name)] = true
		}
	}
	return c
})

// undocumented are the differences of traffic and openapi.json so far.
var undocumented = struct {
	sync.Mutex
	seen map[string]bool
}{seen: map[string]bool{}}

func differs(text string) {
	undocumented.Lock()
	defer undocumented.Unlock()
	undocumented.seen[text] = true
}

// differences returns what the traffic of all tests had and openapi.json has not.
func differences() []string {
	undocumented.Lock()
	defer undocumented.Unlock()
	return slices.Sorted(maps.Keys(undocumented.seen))
}

// compare compares an answer with openapi.json.
func compare(method, path string, answer *fasthttp.Response) {
	if method == head {
		method = get
	}
	r := routeTaking(method, path)
	if r == nil {
		return
	}
	name, status := r.Method+" "+r.Path, strconv.Itoa(answer.StatusCode())
	c := documentedContract()
	of, known := c.routes[name]
	if !known {
		differs(name + " is missing")
		return
	}
	if string(answer.Header.ContentType()) == apitype.MediaProblem && method == r.Method {
		var p apitype.Problem
		if json.Unmarshal(answer.Body(), &p) == nil && (p.Type != "/docs/errors#"+p.Code || !c.codes[p.Code]) {
			differs(name + " answers a problem whose type is " + p.Type)
		}
		if p.Code != "" && p.Code != "no_such_path" { // with a route: its path is not clean
			code := status + " " + p.Code
			if !c.common[code] && !slices.Contains(of.Codes, code) {
				differs(name + " answers " + code)
			}
			compareHeaders("a problem with the status "+status, answer, c.failed[status])
		}
		return
	}
	if r.data != nil { // the tests of package api have no data plane
		return
	}
	said, ok := of.Responses[status]
	if strings.Contains(said.Ref, "-") { // an error as SQS has it, or a page that says what is wrong
		return
	}
	if !ok || said.Ref != "" {
		differs(name + " answers " + status)
		return
	}
	headers := map[string]bool{}
	for h := range said.Headers {
		headers[strings.ToLower(h)] = true
	}
	compareHeaders(name+" answers "+status, answer, headers)
}

func compareHeaders(what string, answer *fasthttp.Response, said map[string]bool) {
	for header := range answer.Header.All() {
		if h := strings.ToLower(string(header)); isOurs(h) && !said[h] {
			differs(what + " with " + h)
		}
	}
}

// isOurs reports whether a header of an answer says more than HTTP itself asks for.
func isOurs(header string) bool {
	return strings.HasPrefix(header, "x-") && header != "x-content-type-options" || slices.Contains([]string{"etag",
		"last-modified", "location", "retry-after", "preference-applied", "vary", "allow", "www-authenticate"}, header)
}

// routeTaking returns the route of the table that takes a request, nil for none.
func routeTaking(method, path string) *Route {
	r, ok := apitype.Taking(method, path)
	if !ok {
		return nil
	}
	return routeNamed(r.Method + " " + r.Path)
}
