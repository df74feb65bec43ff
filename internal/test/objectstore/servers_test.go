package objectstore

import (
	"context"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"

	"github.com/penstock-broker/penstock/internal/feature/archive"
)

const (
	bucket    = "cold-messages"
	accessKey = "test-access"
	secretKey = "test-secret-of-the-store"
)

// settingsOf are the settings of a store at a URL.
func settingsOf(url string) archive.S3Settings {
	return archive.S3Settings{Endpoint: url, Bucket: bucket, Prefix: "penstock/archive", Region: "us-east-1",
		AccessKey: accessKey, SecretKey: secretKey, PathStyle: true}
}

// gateway starts versitygw over a folder with one bucket. A process can run one at a time. The gateway makes its
// folder the working folder of the process.
func gateway(t *testing.T) (url string) {
	t.Helper()
	back, err := os.Getwd()
	require.NoError(t, err)
	root, sidecar := t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, bucket), 0o700))
	store, err := meta.NewSideCar(sidecar)
	require.NoError(t, err)
	be, err := posix.New(root, store, posix.PosixOpts{SideCarDir: sidecar, ForceNoTmpFile: true, Concurrency: 100})
	require.NoError(t, err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- embedgw.RunVersityGW(ctx, be, &embedgw.Config{RootUserAccess: accessKey, RootUserSecret: secretKey,
			Ports: []string{address}, MaxConnections: 100, MaxRequests: 100, MultipartMaxParts: 100, KeepAlive: true,
			Quiet: true})
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		require.NoError(t, os.Chdir(back))
	})
	for {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			require.NoError(t, conn.Close())
			return "http://" + address
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatal("the gateway does not start:", err)
		default:
		}
	}
}

// fake starts gofakes3 in memory.
func fake(t *testing.T) (url string) {
	t.Helper()
	be := s3mem.New()
	require.NoError(t, be.CreateBucket(bucket))
	server := httptest.NewServer(gofakes3.New(be).Server())
	t.Cleanup(server.Close)
	return server.URL
}
