package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

// healthTimeout bounds a whole health check. It is shorter than the usual limits of container
// runtimes.
const healthTimeout = 4 * time.Second

// healthcheck asks the broker that listens at BROKER_LISTEN of these settings, on this machine,
// whether it is ready, or with live whether it is alive. An image without a shell uses it as its
// health check.
func healthcheck(environ []string, live bool, stdout, stderr io.Writer) int {
	addr, err := healthAddr(environ)
	if err != nil {
		fmt.Fprintf(stderr, "broker healthcheck: %v\n", sentence.Of(err))
		return exitUsage
	}
	path := "/readyz"
	if live {
		path = "/livez"
	}
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	answer, err := askHealth(ctx, addr, path)
	if err != nil {
		fmt.Fprintf(stderr, "broker healthcheck: %v\n", sentence.Of(err))
		return exitUsage
	}
	fmt.Fprintln(stdout, answer)
	return exitClean
}

// healthAddr returns the address at which this machine reaches the broker. It reads no other
// setting, because the file of a secret may be readable only once.
func healthAddr(environ []string) (string, error) {
	own := []string{"BROKER_ADMIN_TOKEN=any"} // the broker itself checks that a token is set
	for _, line := range environ {
		if strings.HasPrefix(line, "BROKER_LISTEN=") || strings.HasPrefix(line, "BROKER_LISTEN"+fileSuffix+"=") {
			own = append(own, line)
		}
	}
	c, err := readConfig(own)
	if err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return "", err
	}
	n, err := net.LookupPort("tcp", port) // it may have a name
	if err != nil {
		return "", err
	}
	// A listener on all addresses accepts IPv4 if the machine has it.
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

// askHealth returns the answer of a healthy broker.
func askHealth(ctx context.Context, addr, path string) (string, error) {
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	text := cmp.Or(strings.TrimSpace(string(body)), "no answer")
	switch {
	case err != nil:
		return "", err
	case res.StatusCode != http.StatusOK:
		return "", fmt.Errorf("%s answered %d: %s", req.URL, res.StatusCode, text)
	}
	return text, nil
}
