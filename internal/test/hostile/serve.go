package hostile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// refuse answers with an error of the broker.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status,
		"code": code, "detail": "The hostile broker says " + code + ".", "request_id": "hostile"})
}

// ServeHTTP takes every request.
func (b *Broker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<20))
	if err != nil {
		return
	}
	door := doorOf(r)
	b.mu.Lock()
	note := Request{At: time.Now(), Door: door, ID: r.Header.Get("X-Broker-Message-ID"), Body: string(body)}
	note.Limit, _ = strconv.Atoi(r.URL.Query().Get("limit"))
	if door == "jobs" {
		note.Moves = b.movesOf(body)
	}
	b.requests = append(b.requests, note)
	b.check(r, door, body)
	f := b.fault(door, body)
	b.wake()
	b.mu.Unlock()
	x := &Exchange{b: b, w: w, r: r, body: body}
	if f != nil {
		f.Do(x)
		return
	}
	b.serve(w, r, body)
}

// check notes what no client may send. b.mu is held.
func (b *Broker) check(r *http.Request, door string, body []byte) {
	if door == "other" {
		b.violation("%s %s is no route that a client needs", r.Method, r.URL.Path)
	}
	if (door == "claim" || door == "jobs") && r.Header.Get("X-Broker-Worker") == "" {
		b.violation("%s without X-Broker-Worker", door)
	}
	if door == "jobs" && len(body) > 256<<10 {
		b.violation("a report of %d bytes", len(body))
	}
	if door == "jobs" {
		seen := map[string]bool{}
		for _, m := range b.requests[len(b.requests)-1].Moves {
			if seen[m.ID] {
				b.violation("job %s is in a report twice", m.ID)
			}
			seen[m.ID] = true
		}
	}
	for name := range r.URL.Query() {
		if !strings.Contains(" limit wait timeout until ", " "+name+" ") {
			b.violation("the parameter %s of %s", name, door)
		}
	}
	if r.Header.Get("Authorization") != "" && door == "manage" {
		b.violation("a bearer token where the client has none")
	}
}

// movesOf reads a report as strictly as the broker does. b.mu is held.
func (b *Broker) movesOf(body []byte) []Move {
	var in struct{ Updates []Move }
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		b.violation("a report that cannot be read: %v", err)
	}
	for i, m := range in.Updates {
		if j := b.job(m.ID); j != nil {
			in.Updates[i].MessageID = j.MessageID
		}
	}
	return in.Updates
}

func (b *Broker) job(id string) *Job {
	for _, j := range b.jobs {
		if j.ID == id {
			return j
		}
	}
	return nil
}

// serve does what a request asks for.
func (b *Broker) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	w.Header().Set("Date", time.Now().Add(b.Clock).UTC().Format(http.TimeFormat))
	if b.Strange {
		w.Header().Set("X-Broker-Strange", "yes")
	}
	door := doorOf(r)
	if door == "manage" {
		b.manage(w, r, body)
		return
	}
	if !b.admit(w, r, door) {
		return
	}
	switch door {
	case "publish":
		b.publish(w, r, body)
	case "batch":
		b.batch(w, r, body)
	case "request", "responses":
		b.respond(w, r, body, door)
	case "claim":
		b.claim(w, r)
	case "jobs":
		b.move(w, body)
	default:
		refuse(w, 404, "no_such_path")
	}
}

// manage makes and shows producers, channels and consumers.
func (b *Broker) manage(w http.ResponseWriter, r *http.Request, body []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	path := r.URL.Path
	consumer := strings.Contains(path, "/consumer/")
	_, exists := b.tokens[path]
	status := 200
	switch {
	case r.Method == http.MethodGet && !exists:
		refuse(w, 404, map[bool]string{true: "consumer_not_found", false: "channel_not_found"}[consumer])
		return
	case r.Method == http.MethodPut && exists && r.Header.Get("If-None-Match") == "*":
		refuse(w, 412, "precondition_failed")
		return
	case r.Method == http.MethodPut && bytes.Contains(body, []byte("token")):
		b.violation("a client sets a token: %s", body)
	case r.Method == http.MethodPut && exists && consumer && len(body) > 0:
		b.violation("a client changes a consumer that exists: %s", body)
	}
	if !exists {
		status = 201
		b.numbers++
		b.tokens[path] = fmt.Sprintf("token-%d", b.numbers)
		if consumer {
			b.types[path] = "push"
			if strings.Contains(string(body), "pull") {
				b.types[path] = "pull"
			}
		}
	}
	parts := strings.Split(path, "/")
	b.answer(w, status, map[string]any{"ID": parts[len(parts)-1], "Token": b.tokens[path], "Type": b.types[path]})
}

// Make makes the consumer of a queue with a type, and its channel.
func (b *Broker) Make(queue, typ string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens["/channel/"+queue] = "token-c"
	b.tokens["/channel/"+queue+"/consumer/"+queue] = "token-k"
	b.types["/channel/"+queue+"/consumer/"+queue] = typ
}

// answer sends JSON.
func (b *Broker) answer(w http.ResponseWriter, status int, v map[string]any) {
	if b.Strange {
		v["Strange"] = map[string]any{"Result": []any{1, nil, "x"}}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// admit checks the tokens of the data plane, in the order of the broker.
func (b *Broker) admit(w http.ResponseWriter, r *http.Request, door string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	parts := strings.Split(r.URL.Path, "/")
	channel := strings.Join(parts[:3], "/")
	token, ok := b.tokens[channel]
	switch {
	case !ok:
		refuse(w, 404, "channel_not_found")
		return false
	case r.Header.Get("X-Broker-Channel-Token") != token:
		refuse(w, 403, "channel_token_mismatch")
		return false
	}
	who, header, missing, wrong := "/producer/"+r.Header.Get("X-Broker-Producer-ID"), "X-Broker-Producer-Token",
		"producer_not_found", "producer_token_mismatch"
	if door == "claim" || door == "jobs" {
		who, header, missing, wrong = strings.Join(parts[:5], "/"), "X-Broker-Consumer-Token", "consumer_not_found",
			"consumer_token_mismatch"
	}
	token, ok = b.tokens[who]
	switch {
	case !ok:
		refuse(w, 401, missing)
	case r.Header.Get(header) != token:
		refuse(w, 403, wrong)
	case b.types[who] == "push":
		refuse(w, 412, "consumer_not_pull")
	default:
		return true
	}
	return false
}

// store stores a message once. It returns the status and the code of the answer.
func (b *Broker) store(id, task, body string) (int, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id == "" {
		b.violation("a publish without a message ID")
		b.numbers++
		id = fmt.Sprintf("made-%d", b.numbers)
	}
	if m := b.messages[id]; m != nil && m.content == task+"\n"+body {
		return 409, "duplicate_message_id"
	} else if m != nil {
		b.violation("message %s is repeated with another content", id)
		return 409, "message_id_conflict"
	}
	b.messages[id] = &message{body: body, content: task + "\n" + body}
	b.add(id, task, body)
	return 201, ""
}

func (b *Broker) publish(w http.ResponseWriter, r *http.Request, body []byte) {
	id := r.Header.Get("X-Broker-Message-ID")
	status, code := b.store(id, r.Header.Get("X-Broker-Task"), string(body))
	if code != "message_id_conflict" {
		w.Header().Set("Location", "/channel/"+strings.Split(r.URL.Path, "/")[2]+"/message/"+id)
		w.Header().Set("X-Broker-Ack", "durable")
	}
	if code != "" {
		refuse(w, status, code)
		return
	}
	w.WriteHeader(status)
}

func (b *Broker) batch(w http.ResponseWriter, r *http.Request, body []byte) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		var line struct{ MessageID, Task, Payload string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			_, _ = io.WriteString(w, `{"Status":400,"code":"invalid_line","detail":"no"}`+"\n")
			continue
		}
		status, code := b.store(line.MessageID, line.Task, line.Payload)
		text, _ := json.Marshal(map[string]any{"Status": status, "code": code, "MessageID": line.MessageID,
			"Location": "/channel/" + strings.Split(r.URL.Path, "/")[2] + "/message/" + line.MessageID})
		_, _ = w.Write(append(text, '\n'))
	}
}

// respond answers requests at once: the response is "you said: " and the payload.
func (b *Broker) respond(w http.ResponseWriter, r *http.Request, body []byte, door string) {
	parts := strings.Split(r.URL.Path, "/")
	if door == "responses" {
		b.mu.Lock()
		m := b.messages[parts[4]]
		b.mu.Unlock()
		if m == nil {
			refuse(w, 404, "message_not_found")
			return
		}
		b.answer(w, 200, map[string]any{"Complete": true, "Result": []any{map[string]any{"ConsumerID": parts[2],
			"State": "RESPONSE_RECEIVED_FROM_RECEIVER", "Status": 200,
			"Headers": map[string]string{"Content-Type": "text/plain"},
			"Body":    "you said: " + m.body, "BodyEncoding": "", "Truncated": false, "Attempt": 1, "Reason": ""}}})
		return
	}
	id := r.Header.Get("X-Broker-Message-ID")
	w.Header().Set("Location", strings.Join(parts[:3], "/")+"/message/"+id+"/responses")
	if status, code := b.store(id, r.Header.Get("X-Broker-Task"), string(body)); code != "" {
		refuse(w, status, code)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("X-Broker-Response-Status", "200")
	w.Header().Set("X-Broker-Consumer-ID", parts[2])
	_, _ = io.WriteString(w, "you said: "+string(body))
}
