package main

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/browser"
	"github.com/penstock-broker/penstock/internal/test/screens"
)

const (
	// screensFolder names a folder that gets the pictures of docs/screens.md: make pictures.
	screensFolder = "PENSTOCK_SCREENS"

	// revealScreen is there only where payloads are hidden.
	revealScreen = "/ui/channel/c/message/m/action/reveal"

	// screenHeight bounds a picture, mostPicture its file and mostPictures all files, bytes.
	screenHeight, mostPicture, mostPictures = 900, 120 << 10, 1_500_000
)

// neutral shows the folders of the test as those of an installation, and no name of a machine.
const neutral = `for (const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); walk.nextNode();) {
	walk.currentNode.data = walk.currentNode.data.replace(new RegExp("FOLDER/\\d+", "g"), "/var/lib/penstock")
		.replace(/\b[\w-]+:\d+ \(embedded Redis\)/g, "broker-1 (embedded Redis)"); } ''`

// screenRoutes are the paths of all pages of the dashboard, as the table of routes has them.
func screenRoutes() (paths []string) {
	for _, r := range api.Routes() {
		if r.Access == api.AccessUI && r.Method == "GET" && !slices.Contains(screens.Files, r.Path) {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// A shot is a picture of docs/screens.md.
type shot struct {
	name, address string
	width         int
	theme         string
}

// shotsOf are all pictures, of the broker of dashboardWithData, and of one that hides payloads.
func shotsOf(t *testing.T, p, hiding *process, pages []string) (shots []shot) {
	job := pages[slices.Index(pages, "/ui/dlq")-1]
	for _, at := range [][2]string{{"overview", "/ui/"}, {"channels", "/ui/channels"}, {"groups", "/ui/groups"},
		{"channel", "/ui/channel/orders"}, {"consumers", "/ui/consumers?sort=dead"},
		{"consumer", "/ui/channel/orders/consumer/billing"}, {"message", "/ui/channel/orders/message/order-17"}, {"job", job},
		{"dead-letters", "/ui/dlq"}, {"causes", "/ui/dlq?channel=orders&consumer=billing"},
		{"redrive", "/ui/channel/orders/consumer/billing/action/redrive?canary=true"},
		{"redrives", "/ui/redrives?channel=orders&consumer=billing"}, {"scheduled", "/ui/scheduled?channel=orders"},
		{"bulks", "/ui/bulks?channel=orders"}, {"replays", "/ui/replays?channel=orders&consumer=search"},
		{"brokers", "/ui/brokers"}, {"settings", "/ui/brokers?show=settings"}, {"bench", "/ui/bench"},
		{"report", "/ui/bench?report=nightly.html"}, {"search", "/ui/search?q=error:503+consumer:billing"},
		{"publish", "/ui/publish?channel=orders&again=order-17"}, {"pause-channel", "/ui/channel/orders/action/pause"},
		{"pause-group", "/ui/group/shops/action/pause"}, {"login", "/ui/login"}} {
		shots = append(shots, shot{at[0], p.base + at[1], 1200, "light"})
	}
	return append(shots, shot{"overview-dark", p.base + "/ui/", 1200, "dark"},
		shot{"consumer-phone", p.base + "/ui/channel/orders/consumer/billing", 360, "light"},
		shot{"reveal", hiding.base + revealScreen, 1200, "light"},
		shot{"portal", portalLink(t), 1200, "light"})
}

// portalLink is a link for the owner of a consumer, at a broker whose management is closed.
func portalLink(t *testing.T) string {
	t.Helper()
	p := embeddedWorld(t).start("BROKER_OPEN_MANAGEMENT=false")
	admin := []string{"X-Broker-Admin-Token", adminToken}
	form := append([]string{"Content-Type", "application/x-www-form-urlencoded"}, admin...)
	for _, put := range [][2]string{{"/producer/p", "token=p-token"}, {"/channel/c", "token=c-token"},
		{"/channel/c/consumer/billing", "token=k&type=pull&name=Billing+of+a+customer"}} {
		r := p.do("PUT", put[0], put[1], form...)
		require.Contains(t, []int{200, 201}, r.status, r.body)
	}
	p.publish(`{"order":1}`)
	r := p.do("POST", "/channel/c/consumer/billing/portal-link", `{"TTL":"4h"}`, append(admin, "Content-Type",
		"application/json")...)
	require.Equal(t, 200, r.status, r.body)
	var link apitype.PortalLink
	require.NoError(t, json.Unmarshal([]byte(r.body), &link))
	portal, err := url.Parse(link.URL)
	require.NoError(t, err)
	return p.base + portal.RequestURI()
}

// Each page of the dashboard has a picture in docs/screens.md, made from this broker by make pictures.
func TestEachPageOfTheDashboardHasAPicture(t *testing.T) {
	parallel(t)
	p, pages := dashboardWithData(t)
	hiding := embeddedWorld(t).start("BROKER_UI_PAYLOADS=hide")
	hiding.sample("pull")
	hiding.publish(`{"card":"4111"}`, "X-Broker-Message-ID", "m")
	b := browser.Start(t)
	b.RunScripts("UTC")
	page, total := fromRoot(t, "docs/screens.md"), 0
	var paths, names []string
	for _, s := range shotsOf(t, p, hiding, pages) {
		b.Screen(s.width, s.theme)
		require.Empty(t, b.Open(s.address), s.name)
		b.Eval(strings.ReplaceAll(neutral, "FOLDER", filepath.Dir(t.TempDir())))
		picture := b.Small(screenHeight)
		require.Less(t, len(picture), mostPicture, s.name)
		if folder := os.Getenv(screensFolder); folder != "" {
			require.NoError(t, os.MkdirAll(folder, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(folder, s.name+".webp"), picture, 0o644))
		}
		require.Contains(t, page, "](pictures/"+s.name+".webp)")
		total += len(fromRoot(t, "docs/pictures/"+s.name+".webp"))
		at, err := url.Parse(s.address)
		require.NoError(t, err)
		paths, names = append(paths, at.Path), append(names, s.name+".webp")
	}
	require.Empty(t, screens.Missed(screenRoutes(), paths))
	require.Less(t, total, mostPictures)
	files, err := filepath.Glob(filepath.Join("../..", "docs/pictures/*"))
	require.NoError(t, err)
	for _, file := range files {
		require.Contains(t, names, filepath.Base(file), "it is not made any more")
	}
}
