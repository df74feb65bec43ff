package screens

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestARouteThatNoAddressLeadsToIsMissed(t *testing.T) {
	routes := []string{"/ui/", "/ui/channel/{channel}", "/ui/channel/{channel}/action/{action}", "/ui/style.css"}
	require.Empty(t, Missed(routes, []string{"/ui/?over=30d", "/ui/channel/a.b-c", "/ui/channel/c/action/pause",
		"/ui/style.css"}))
	require.Equal(t, routes[1:], Missed(routes, []string{"/ui/", "/ui/channel/", "/ui/channel/c/", "/ui/styleXcss",
		"/ui/channel/c/action/"}))
}
