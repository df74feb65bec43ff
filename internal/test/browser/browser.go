// Package browser drives a headless Chromium in tests, over the DevTools protocol on a pipe. It needs no port and no
// client library. scripts/toolchains.sh installs the browser.
package browser

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds the wait for one answer of the browser.
const patience = 2 * time.Minute

// A Browser is a running browser with one page.
type Browser struct {
	t       testing.TB
	in      *os.File
	session string

	mu      sync.Mutex
	last    int
	answers map[int]chan answer
	events  chan event
	faults  []string // errors that the console, the network and the policy of the page had
}

type answer struct {
	ID        int             `json:"id"`
	Method    string          `json:"method"`
	SessionID string          `json:"sessionId"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error"`
}

type event struct{ method string }

// program finds the browser.
func program(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	require.Fail(t, "there is no Chromium; scripts/toolchains.sh installs it")
	return ""
}

// Start starts a browser, which ends with the test. Pages run no scripts.
func Start(t testing.TB) *Browser {
	t.Helper()
	theirIn, ourOut, err := os.Pipe()
	require.NoError(t, err)
	ourIn, theirOut, err := os.Pipe()
	require.NoError(t, err)
	folder, err := os.MkdirTemp("", "penstock-browser-")
	require.NoError(t, err)
	cmd := exec.Command(program(t), "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--disable-sync", "--no-proxy-server", "--hide-scrollbars", "--user-data-dir="+folder, "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	var said bytes.Buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	require.NoError(t, theirIn.Close())
	require.NoError(t, theirOut.Close())
	b := &Browser{t: t, in: ourOut, answers: map[int]chan answer{}, events: make(chan event, 1000)}
	read := make(chan struct{})
	go func() { defer close(read); b.read(ourIn) }()
	t.Cleanup(func() {
		_ = ourOut.Close() // it ends
		timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		<-read
		_ = ourIn.Close()
		_ = os.RemoveAll(folder) // a helper of the browser may still write there
		if t.Failed() {
			t.Logf("the browser said:\n%s", said.String())
		}
	})
	var target struct {
		TargetID string `json:"targetId"`
	}
	b.call(&target, "Target.createTarget", map[string]any{"url": "about:blank"})
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.call(&attached, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true})
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Log", "Network"} {
		b.call(nil, domain+".enable", nil)
	}
	b.call(nil, "Emulation.setScriptExecutionDisabled", map[string]any{"value": true})
	return b
}

// read takes what the browser says until it ends.
func (b *Browser) read(from *os.File) {
	r := bufio.NewReaderSize(from, 1<<20)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var a answer
		if json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &a) != nil {
			continue
		}
		b.mu.Lock()
		if wanted := b.answers[a.ID]; a.ID > 0 && wanted != nil {
			delete(b.answers, a.ID)
			wanted <- a
		} else if a.ID == 0 {
			b.note(&a)
		}
		b.mu.Unlock()
	}
}

// note takes an event. The caller holds mu.
func (b *Browser) note(a *answer) {
	switch a.Method {
	case "Log.entryAdded":
		var p struct {
			Entry struct{ Level, Text, URL string }
		}
		if json.Unmarshal(a.Params, &p) == nil && p.Entry.Level == "error" {
			b.faults = append(b.faults, p.Entry.Text+" "+p.Entry.URL)
		}
	case "Network.loadingFailed":
		var p struct {
			Canceled      bool // the page was left, and with it what it had asked for
			BlockedReason string
		}
		if json.Unmarshal(a.Params, &p) != nil || !p.Canceled || p.BlockedReason != "" {
			b.faults = append(b.faults, string(a.Params))
		}
	}
	select {
	case b.events <- event{a.Method}:
	default:
	}
}

// call sends a command and reads its result.
func (b *Browser) call(result any, method string, params map[string]any) {
	b.t.Helper()
	b.mu.Lock()
	b.last++
	id, done := b.last, make(chan answer, 1)
	b.answers[id] = done
	b.mu.Unlock()
	command := map[string]any{"id": id, "method": method}
	if params != nil {
		command["params"] = params
	}
	if b.session != "" {
		command["sessionId"] = b.session
	}
	text, err := json.Marshal(command)
	require.NoError(b.t, err)
	_, err = b.in.Write(append(text, 0))
	require.NoError(b.t, err)
	select {
	case a := <-done:
		require.Nil(b.t, a.Error, "%s: %v", method, a.Error)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(a.Result, result))
		}
	case <-time.After(patience):
		require.Fail(b.t, "the browser does not answer "+method)
	}
}

// RunScripts makes the pages that are opened from now on run their scripts, in a time zone.
func (b *Browser) RunScripts(zone string) {
	b.t.Helper()
	b.call(nil, "Emulation.setScriptExecutionDisabled", map[string]any{"value": false})
	b.call(nil, "Emulation.setTimezoneOverride", map[string]any{"timezoneId": zone})
}

// Eval evaluates an expression of JavaScript in the page, which is a text.
func (b *Browser) Eval(expression string) string {
	b.t.Helper()
	var got struct {
		Result struct {
			Value any `json:"value"`
		} `json:"result"`
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	b.call(&got, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true})
	require.Empty(b.t, string(got.Exception), expression)
	return fmt.Sprint(got.Result.Value)
}

// Key presses a key that writes a character.
func (b *Browser) Key(key string) {
	b.t.Helper()
	b.call(nil, "Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": key, "text": key})
	b.call(nil, "Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key})
}

// Faults are the errors since the page was opened.
func (b *Browser) Faults() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.faults
}

// Screen sets the width and the theme, "light" or "dark".
func (b *Browser) Screen(width int, theme string) {
	b.t.Helper()
	b.call(nil, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1,
		"mobile": false})
	b.call(nil, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{
		"name": "prefers-color-scheme", "value": theme}}})
}

// SetCookie sets a cookie of an address.
func (b *Browser) SetCookie(url, name, value string) {
	b.t.Helper()
	b.call(nil, "Network.setCookie", map[string]any{"url": url, "name": name, "value": value})
}

// DropCookies removes all cookies.
func (b *Browser) DropCookies() {
	b.t.Helper()
	b.call(nil, "Network.clearBrowserCookies", nil)
}

// Open opens an address and waits until all of it is loaded. It returns the errors that the page had.
func (b *Browser) Open(url string) (faults []string) {
	b.t.Helper()
	b.forget()
	var went struct {
		ErrorText string `json:"errorText"`
	}
	b.call(&went, "Page.navigate", map[string]any{"url": url})
	require.Empty(b.t, went.ErrorText, url)
	return b.loaded(url)
}

// forget drops what the page before has said.
func (b *Browser) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = nil
	for len(b.events) > 0 {
		<-b.events
	}
}

// loaded waits until all of a page is loaded, and returns the errors that it had.
func (b *Browser) loaded(what string) (faults []string) {
	b.t.Helper()
	end := time.After(patience)
	for {
		select {
		case e := <-b.events:
			if e.method == "Page.loadEventFired" {
				b.mu.Lock()
				defer b.mu.Unlock()
				return b.faults
			}
		case <-end:
			require.Fail(b.t, "the page is not loaded: "+what)
		}
	}
}

// node finds the first element of a selector.
func (b *Browser) node(selector string) map[string]any {
	b.t.Helper()
	var document struct {
		Root struct {
			NodeID int `json:"nodeId"`
		} `json:"root"`
	}
	b.call(&document, "DOM.getDocument", map[string]any{"depth": 0})
	var found struct {
		NodeID int `json:"nodeId"`
	}
	b.call(&found, "DOM.querySelector", map[string]any{"nodeId": document.Root.NodeID, "selector": selector})
	require.NotZero(b.t, found.NodeID, "the page has no %s", selector)
	return map[string]any{"nodeId": found.NodeID}
}

// Press clicks on an element, and waits until the page is loaded to which it leads. It returns the errors that this
// page had.
func (b *Browser) Press(selector string) (faults []string) {
	b.t.Helper()
	b.Click(selector)
	return b.loaded(selector)
}

// Click presses the middle of an element with the mouse.
func (b *Browser) Click(selector string) {
	b.t.Helper()
	node := b.node(selector)
	b.call(nil, "DOM.scrollIntoViewIfNeeded", node)
	var quads struct {
		Quads [][]float64 `json:"quads"`
	}
	b.call(&quads, "DOM.getContentQuads", node)
	require.NotEmpty(b.t, quads.Quads, "%s is not visible", selector)
	q := quads.Quads[0]
	b.forget()
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		b.call(nil, "Input.dispatchMouseEvent", map[string]any{"type": kind, "x": (q[0] + q[4]) / 2, "y": (q[1] + q[5]) / 2,
			"button": "left", "clickCount": 1})
	}
}

// Type writes a text into a field, after what is there.
func (b *Browser) Type(selector, text string) {
	b.t.Helper()
	b.call(nil, "DOM.focus", b.node(selector))
	b.call(nil, "Input.insertText", map[string]any{"text": text})
}

// Clear empties a field.
func (b *Browser) Clear(selector string) {
	b.t.Helper()
	b.call(nil, "DOM.focus", b.node(selector))
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		b.call(nil, "Input.dispatchKeyEvent", map[string]any{"type": kind, "key": "a", "modifiers": 2,
			"commands": []string{"selectAll"}})
	}
	b.call(nil, "Input.insertText", map[string]any{"text": ""})
	b.call(nil, "Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": "Delete", "windowsVirtualKeyCode": 46})
}

// HTML returns the page as the browser has it.
func (b *Browser) HTML() string {
	b.t.Helper()
	var page struct {
		OuterHTML string `json:"outerHTML"`
	}
	b.call(&page, "DOM.getOuterHTML", b.node("html"))
	return page.OuterHTML
}

// Size returns the width of the window and that of what is in it, which is more where a page has to be scrolled
// sideways, and the height of what is in it.
func (b *Browser) Size() (window, width, height int) {
	b.t.Helper()
	var m struct {
		Layout struct {
			ClientWidth float64 `json:"clientWidth"`
		} `json:"cssLayoutViewport"`
		Content struct{ Width, Height float64 } `json:"cssContentSize"`
	}
	b.call(&m, "Page.getLayoutMetrics", nil)
	return int(m.Layout.ClientWidth), int(m.Content.Width), int(m.Content.Height)
}

// Picture returns the whole page as PNG.
func (b *Browser) Picture() []byte {
	b.t.Helper()
	return b.picture(map[string]any{"format": "png"}, 8000)
}

// Small returns the begin of the page, up to a height, as WebP of a modest quality.
func (b *Browser) Small(most int) []byte {
	b.t.Helper()
	return b.picture(map[string]any{"format": "webp", "quality": 60}, most)
}

func (b *Browser) picture(how map[string]any, most int) []byte {
	b.t.Helper()
	_, width, height := b.Size()
	var shot struct {
		Data string `json:"data"`
	}
	how["captureBeyondViewport"] = true
	how["clip"] = map[string]any{"x": 0, "y": 0, "width": width, "height": min(height, most), "scale": 1}
	b.call(&shot, "Page.captureScreenshot", how)
	picture, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(b.t, err, fmt.Sprint(len(shot.Data)))
	return picture
}
