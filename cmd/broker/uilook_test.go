package main

import (
	"bytes"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/browser"
	"github.com/penstock-broker/penstock/internal/test/screens"
)

// picturesFolder names a folder that gets the pictures of the pages, to be looked at.
const picturesFolder = "PENSTOCK_PICTURES"

// Each page fits a telephone and a wide screen, in both themes, without scripts and without an error of the console,
// the network or the policy of the page; and the themes differ.
func TestThePagesOfTheDashboardInABrowser(t *testing.T) {
	parallel(t)
	p, pages := dashboardWithData(t)
	require.Empty(t, screens.Missed(screenRoutes(), append(pages, revealScreen)), "each page is looked at")
	b := browser.Start(t)
	for _, width := range []int{360, 1200, 3840} {
		for _, path := range pages {
			var brightness []float64
			for _, theme := range []string{"light", "dark"} {
				b.Screen(width, theme)
				require.Empty(t, b.Open(p.base+path), "%s at %d, %s", path, width, theme)
				window, content, _ := b.Size()
				require.Equal(t, width, window)
				require.LessOrEqual(t, content, width, "%s has to be scrolled sideways", path)
				picture := b.Picture()
				light, colours := look(t, picture)
				require.Greater(t, colours, 10, "%s is not blank", path)
				brightness = append(brightness, light)
				keepPicture(t, fmt.Sprintf("%s-%d-%s.png", strings.Trim(strings.NewReplacer("/", "_", "?", "_", "&", "_", "=",
					"_").Replace(path), "_"), width, theme), picture)
			}
			require.Greater(t, brightness[0], 0.8, path)
			require.Less(t, brightness[1], 0.3, path)
		}
	}
}

// axe-core finds nothing to say of any page: names of what is pressed and read, contrast in both themes, order of
// headings, regions.
func TestThePagesOfTheDashboardAreForEverybody(t *testing.T) {
	parallel(t)
	p, pages := dashboardWithData(t)
	source := browser.Axe(t)
	b := browser.Start(t)
	b.RunScripts("UTC")
	found := map[string]string{} // where, by what
	for _, path := range pages {
		for _, screen := range []struct {
			width int
			theme string
		}{{1200, "light"}, {1200, "dark"}, {360, "light"}} {
			b.Screen(screen.width, screen.theme)
			require.Empty(t, b.Open(p.base+path), path)
			for _, v := range b.Violations(source) {
				found[v] = fmt.Sprintf("%s at %d, %s", path, screen.width, screen.theme)
			}
		}
	}
	require.Empty(t, found)
}

// look returns how bright a picture is, from 0 to 1, and how many colours it has.
func look(t *testing.T, picture []byte) (light float64, colours int) {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(picture))
	require.NoError(t, err)
	seen, n := map[[3]uint32]bool{}, 0
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y += 3 {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x += 3 {
			r, g, b, _ := img.At(x, y).RGBA()
			seen[[3]uint32{r, g, b}] = true
			light += float64(r+g+b) / (3 * 0xffff)
			n++
		}
	}
	return light / float64(n), len(seen)
}

func keepPicture(t *testing.T, name string, picture []byte) {
	t.Helper()
	if folder := os.Getenv(picturesFolder); folder != "" {
		require.NoError(t, os.MkdirAll(folder, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), picture, 0o644))
	}
}
