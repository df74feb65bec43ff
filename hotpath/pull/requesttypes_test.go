package pull

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/apitest"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

func TestAClaimTakesTheMembersOfItsType(t *testing.T) {
	members := slices.DeleteFunc(strictjson.Names(apitype.ClaimRequest{}), func(name string) bool {
		return claimMembers[indexOf(claimMembers, []byte(name))] != name // another name of a member
	})
	require.Equal(t, members, claimMembers)
	absent, err := parseClaimText("", "")
	require.NoError(t, err)
	for text, set := range map[string]func(q *claimRequest){
		apitest.Encoded(t, apitype.ClaimRequest{}): func(*claimRequest) {},
		apitest.Encoded(t, apitype.ClaimRequest{Limit: 7}): func(q *claimRequest) {
			q.limit = 7
		},
		apitest.Encoded(t, apitype.ClaimRequest{Wait: "1.5s"}): func(q *claimRequest) {
			q.wait = 1500 * time.Millisecond
		},
		apitest.Encoded(t, apitype.ClaimRequest{Wait: "3"}): func(q *claimRequest) {
			q.wait = 3 * time.Second
		},
		apitest.Encoded(t, apitype.ClaimRequest{Timeout: 9}): func(q *claimRequest) {
			q.timeout = 9 * time.Second
		},
		apitest.Encoded(t, apitype.ClaimRequest{Limit: 500, Wait: "20s", Timeout: 604800}): func(q *claimRequest) {
			*q = claimRequest{limit: 500, wait: 20 * time.Second, timeout: 604800 * time.Second}
		},
	} {
		want := absent
		set(&want)
		got, err := parseClaimText("", text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	apitest.RequireOnlyKnown(t, apitype.ClaimRequest{}, "invalid_body", strings.EqualFold, func(member string) string {
		return fmt.Sprintf(`{%q:null}`, member)
	},
		func(body string) error { _, err := parseClaimText("", body); return err })
}

func TestUpdatesTakeTheMembersOfTheirTypes(t *testing.T) {
	require.Equal(t, strictjson.Names(apitype.UpdatesRequest{}), updatesMembers)
	require.Equal(t, strictjson.Names(apitype.Update{}), updateMembers)
	request := apitype.UpdatesRequest{Updates: []apitype.Update{
		{}, {ID: "a"}, {Lease: "t.1"}, {NextState: "DEAD"}, {IncrementalTimeout: 7}, {Timeout: 9}, {Delay: 8},
		{ID: "b", Lease: "t.2", NextState: "QUEUED", IncrementalTimeout: 604800, Delay: 604800},
	}}
	request.Updates = append(request.Updates, apitype.Update{ID: "c", NextState: "QUEUED", Failed: true})
	for _, text := range apitest.HostileTexts {
		request.Updates = append(request.Updates, apitype.Update{ID: text, Lease: text, NextState: text,
			Response: &text, ResponseBase64: &text, ResponseType: text})
	}
	for _, r := range []apitype.UpdatesRequest{{Updates: []apitype.Update{}}, request} {
		body := apitest.Encoded(t, r)
		got, err := parseUpdates([]byte(body))
		require.NoError(t, err)
		require.Len(t, got, len(r.Updates))
		for i, u := range r.Updates {
			require.Equal(t, update{ID: u.ID, Lease: u.Lease, NextState: u.NextState,
				IncrementalTimeout: u.IncrementalTimeout, Timeout: u.Timeout, Delay: u.Delay, Failed: u.Failed,
				Reason: u.Reason, Detail: u.Detail, Response: u.Response, ResponseBase64: u.ResponseBase64,
				ResponseType: u.ResponseType}, got[i])
		}
	}
	parse := func(body string) error { _, err := parseUpdates([]byte(body)); return err }
	apitest.RequireOnlyKnown(t, apitype.Update{}, "invalid_body", strings.EqualFold, func(member string) string {
		return fmt.Sprintf(`{"Updates":[{%q:null}]}`, member)
	}, parse)
	apitest.RequireOnlyKnown(t, apitype.UpdatesRequest{}, "invalid_body", strings.EqualFold, func(member string) string {
		if member == "Updates" {
			return `{"Updates":[]}`
		}
		return fmt.Sprintf(`{"Updates":[],%q:null}`, member)
	}, parse)
}

func TestAMoveTakesTheMembersOfItsType(t *testing.T) {
	require.Equal(t, strictjson.Names(apitype.MoveRequest{}), moveMembers)
	for _, r := range []apitype.MoveRequest{
		{NextState: "INFLIGHT"}, {NextState: "DELIVERED"}, {NextState: "DEAD"},
		{NextState: "INFLIGHT", IncrementalTimeout: 604800}, {NextState: "QUEUED", Lease: "t.1", Delay: 604800},
	} {
		body := apitest.Encoded(t, r)
		got, err := parseTransition([]byte(body))
		require.NoError(t, err, body)
		require.Equal(t, update{NextState: r.NextState, IncrementalTimeout: r.IncrementalTimeout, Lease: r.Lease,
			Delay: r.Delay}, got, body)
	}
	apitest.RequireOnlyKnown(t, apitype.MoveRequest{}, "invalid_body", strings.EqualFold, func(member string) string {
		if member == "NextState" {
			return `{"NextState":"DEAD"}`
		}
		if member == "Failed" {
			return `{"NextState":"QUEUED","Failed":true}`
		}
		return fmt.Sprintf(`{"NextState":"DEAD",%q:null}`, member)
	}, func(body string) error { _, err := parseTransition([]byte(body)); return err })
}
