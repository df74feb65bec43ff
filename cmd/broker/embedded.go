package main

import (
	"crypto/rand"
	"fmt"
	"net"

	"github.com/alicebob/miniredis/v2"
)

// An embeddedRedis is the in-process Redis of a broker without a Redis URL. It listens on loopback
// with a random password. The next start rebuilds its content from the store.
type embeddedRedis struct {
	server   *miniredis.Miniredis
	password string
}

// embeddedStarted hears the URL of an embedded Redis. Only tests, which look for jobs
// that are left in it, replace this.
var embeddedStarted = func(url string) {}

func startEmbeddedRedis() (*embeddedRedis, error) {
	e := &embeddedRedis{server: miniredis.NewMiniRedis(), password: rand.Text()}
	e.server.RequireAuth(e.password)
	if err := e.server.Start(); err != nil {
		return nil, fmt.Errorf("embedded Redis cannot listen on loopback: %w", err)
	}
	embeddedStarted(e.URL())
	return e, nil
}

// URL is where it listens, password included.
func (e *embeddedRedis) URL() string { return "redis://:" + e.password + "@" + e.server.Addr() }

// addrs is where it listens; nothing with a real Redis.
func (e *embeddedRedis) addrs() []net.Addr {
	if e == nil {
		return nil
	}
	at, err := net.ResolveTCPAddr("tcp", e.server.Addr())
	if err != nil {
		return nil
	}
	return []net.Addr{at}
}

// Close stops it.
func (e *embeddedRedis) Close() { e.server.Close() }
