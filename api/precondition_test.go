package api

import (
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var resources = []string{"/producer/p", "/channel/c", "/channel/c/consumer/k"}

func TestIfMatchAllowsTheRevisionThatAGETShowed(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	for _, path := range resources {
		tag := w.get(path).is(200).Header("ETag")
		for _, header := range []string{`If-Match: "other"`, "If-Match: W/" + tag, `If-Match: "a", W/` + tag + `, "b"`,
			"If-None-Match: *", "If-None-Match: " + tag, `If-None-Match: "x", W/` + tag} {
			w.put(path, "name=lost", header).problem(412, "precondition_failed")
			require.Equal(t, tag, w.get(path).Header("ETag"), header)
		}
		r := w.put(path, "name=a", "If-Match: "+tag).is(200)
		require.Equal(t, r.Header("ETag"), w.get(path).Header("ETag"), "the answer to a PUT shows the tag of the next GET")
		w.put(path, "name=b", "If-Match: "+tag).problem(412, "precondition_failed")
		tag = w.put(path, "name=b", `If-Match: "x,y" ,, `+r.Header("ETag")+" ,").is(200).Header("ETag")
		tag = w.put(path, "name=c", `If-Match: "x"`, "If-Match: "+tag).is(200).Header("ETag")
		w.put(path, "name=d", "If-Match: *").is(200)
		w.put(path, "name=d", "If-Match: "+tag).problem(412, "precondition_failed")
		w.put(path, "name=e", `If-None-Match: "other"`).is(200)
		old := "If-Unmodified-Since: " + time.Unix(0, 0).UTC().Format(http.TimeFormat)
		w.put(path, "name=f", "If-Match: *", old).is(200)
	}
}

// A change back to what was there before is a change all the same.
func TestATagDoesNotComeBack(t *testing.T) {
	w := newWorld(t, nil)
	first := w.put("/producer/p", "name=a&token="+secret).is(201).Header("ETag")
	w.put("/producer/p", "name=b").is(200)
	w.put("/producer/p", "name=a").is(200)
	w.put("/producer/p", "name=c", "If-Match: "+first).problem(412, "precondition_failed")
}

// A new consumer is no change of the channel that a GET shows.
func TestANewConsumerKeepsTheTagOfItsChannel(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	tag := w.get("/channel/c").Header("ETag")
	w.consumer("k", "pull")
	w.put("/channel/c", "name=x", "If-Match: "+tag).is(200)
}

func TestPreconditionsOfWhatDoesNotExist(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	for _, path := range []string{"/producer/new", "/channel/new", "/channel/c/consumer/new"} {
		form := formFor(path)
		w.put(path, form, "If-Match: *").problem(412, "precondition_failed")
		w.put(path, form, `If-Match: "x"`).problem(412, "precondition_failed")
		w.get(path).is(404)
		w.put(path, form, "If-None-Match: *").is(201)
		w.put(path, "name=x", "If-None-Match: *").problem(412, "precondition_failed")
	}
	w.put("/channel/nowhere/consumer/k", "type=pull", "If-Match: *").problem(404, "channel_not_found")
	w.put("/producer/tagged", "", `If-None-Match: "x"`).is(201)
}

func TestPreconditionsThatCannotBeReadChangeNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	tag := w.get("/producer/p").Header("ETag")
	for _, name := range []string{"If-Match", "If-None-Match"} {
		for _, value := range []string{"", " ", ",", tag[1 : len(tag)-1], `"open`, `open"`, "**", "*, " + tag, tag + ", *",
			`w/"x"`, `W/ "x"`, `W/`, `"a" "b"`, `"a b"`, `'x'`, `"a",x`} {
			w.put("/producer/p", "name=lost", name+": "+value).problem(400, "invalid_etag")
		}
		w.put("/producer/p", "name=lost", name+": *", name+": *").problem(400, "invalid_etag")
	}
	require.Equal(t, tag, w.get("/producer/p").Header("ETag"))
	w.get("/producer/p", "If-None-Match: "+tag+`, "open`).is(200)
}

// However many writers send the same precondition, through two brokers, one wins.
func TestOfManyWritersWithOnePreconditionOneWins(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	other := newWorldOn(t, w)
	for _, path := range resources {
		for _, kind := range []string{"If-Match", "If-Unmodified-Since", "If-None-Match"} {
			r, target, won := w.get(path).is(200), path, 200
			header := kind + ": " + r.Header("ETag")
			switch kind {
			case "If-Unmodified-Since":
				header = kind + ": " + r.Header("Last-Modified")
			case "If-None-Match":
				target, won, header = path+"-new", 201, kind+": *"
			}
			statuses := make([]int, 50)
			names := make([]string, len(statuses))
			var wg sync.WaitGroup
			for i := range statuses {
				wg.Go(func() {
					names[i] = fmt.Sprintf("%s by %d", kind, i)
					statuses[i] = []*world{w, other}[i%2].put(target, formFor(target)+"&name="+url.QueryEscape(names[i]),
						header).Status
				})
			}
			wg.Wait()
			winner := ""
			for i, status := range statuses {
				if status == won {
					require.Empty(t, winner, "%s %s: two writers won", kind, target)
					winner = names[i]
					continue
				}
				require.Equal(t, 412, status)
			}
			require.Equal(t, winner, w.get(target).is(200).json()["Name"])
		}
	}
}
