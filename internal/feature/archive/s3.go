package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Scheme begins the names of what an S3-compatible store has: s3://BUCKET/KEY.
const Scheme = "s3://"

// IsS3 reports whether a name is of an S3-compatible store.
func IsS3(name string) bool { return strings.HasPrefix(name, Scheme) }

const (
	// s3Tries is how often a request is sent at most, with up to a second between two.
	s3Tries = 3
	// s3Answer bounds the time until the answer to a request begins.
	s3Answer = time.Minute
)

// S3Settings say where an S3-compatible store is.
type S3Settings struct {
	Endpoint string // URL without a path
	Bucket   string
	Prefix   string // of all keys, without slashes at its ends; may be empty
	Region   string
	// AccessKey and SecretKey are those of the store. Without them the variables AWS_* of the environment count,
	// or the role of the machine.
	AccessKey, SecretKey string
	PathStyle            bool // the bucket stands in the path, not in the host name
	Trailers             bool // a checksum follows each upload (CRC32C), in place of Content-MD5
}

// Check says what is wrong with the settings; nil: nothing. plain allows http to any host, not to loopback alone.
func (s *S3Settings) Check(plain bool) error {
	u, err := url.Parse(s.Endpoint)
	switch {
	case err != nil, u.Host == "", u.Scheme != "http" && u.Scheme != "https", strings.Trim(u.Path, "/") != "",
		u.RawQuery != "", u.Fragment != "", u.User != nil:
		return errors.New("the endpoint must be a URL like https://s3.example.com, without path, query and user name")
	case u.Scheme == "http" && !plain && !onLoopback(u.Hostname()):
		return errors.New("the endpoint has http, which is allowed on loopback alone: what is archived, and the requests, " +
			"would be readable on the way")
	case (s.AccessKey == "") != (s.SecretKey == ""):
		return errors.New("of the access key and the secret key only one is set")
	case s.Prefix != strings.Trim(s.Prefix, "/"), strings.Contains(s.Prefix, "//"), len(s.Prefix) > 512:
		return errors.New("the prefix must be at most 512 bytes like penstock/archive, without slashes at its ends")
	case strings.ContainsAny(s.Bucket, "/ \t\r\n"), s.Bucket == "":
		return errors.New("the bucket must be a name")
	}
	for part := range strings.SplitSeq(s.Prefix, "/") {
		if part == "." || part == ".." {
			return errors.New("the prefix must not have . or .. as a part")
		}
	}
	return nil
}

func onLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// An S3 is an S3-compatible store. It is a Source of the names of all its buckets.
type S3 struct {
	S3Settings
	client *minio.Client
}

// NewS3 returns the store of settings that are checked. It sends nothing.
func NewS3(s S3Settings) (*S3, error) {
	u, err := url.Parse(s.Endpoint)
	if err != nil {
		return nil, errors.New("the endpoint is no URL")
	}
	secure := u.Scheme == "https"
	transport := &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: 10 * time.Second,
		ResponseHeaderTimeout: s3Answer,
		IdleConnTimeout:       time.Minute,
		DisableCompression:    true, // objects are read as they are
	}
	keys := credentials.NewStaticV4(s.AccessKey, s.SecretKey, "")
	if s.AccessKey == "" { // those of the environment, else of the role; a chain of both would hide why there are none
		keys = credentials.NewEnvAWS()
		if v, err := keys.GetWithContext(nil); err != nil || v.AccessKeyID == "" {
			keys = credentials.New(&credentials.IAM{
				Client: &http.Client{Transport: transport, Timeout: s3Answer, CheckRedirect: notFollowed}})
		}
	}
	tries := s3Tries
	if s.Trailers { // the client makes the checksum once, and not for the bytes of a repeat
		tries = 1
	}
	lookup := minio.BucketLookupDNS
	if s.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.New(u.Host, &minio.Options{Creds: keys, Secure: secure, Transport: transport, Region: s.Region,
		BucketLookup: lookup, TrailingHeaders: s.Trailers, MaxRetries: tries})
	if err != nil {
		return nil, fmt.Errorf("the S3-compatible store: %w", told(err))
	}
	return &S3{s, client}, nil
}

// notFollowed ends a request at an answer that leads elsewhere.
func notFollowed(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Root is the name below which the archive is.
func (s *S3) Root() string { return s.name("") }

// name is the name of a key below the prefix.
func (s *S3) name(key string) string {
	return strings.TrimSuffix(Scheme+s.Bucket+"/"+s.key(key), "/")
}

func (s *S3) key(below string) string {
	return strings.Trim(s.Prefix+"/"+below, "/")
}

// split returns the bucket and the key of a name.
func split(name string) (bucket, key string, err error) {
	bucket, key, _ = strings.Cut(strings.TrimPrefix(name, Scheme), "/")
	if bucket == "" {
		return "", "", fmt.Errorf("%s has no bucket: s3://BUCKET/KEY", name)
	}
	return bucket, key, nil
}

// Open implements Source.
func (s *S3) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	bucket, key, err := split(name)
	if err != nil {
		return nil, err
	}
	body, _, _, err := (minio.Core{Client: s.client}).GetObject(ctx, bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, told(err))
	}
	return body, nil
}

// Manifests implements Source.
func (s *S3) Manifests(ctx context.Context, below string, f func(name string) error) error {
	bucket, key, err := split(below)
	if err != nil {
		return err
	}
	if key = strings.Trim(key, "/"); key != "" {
		key += "/"
	}
	ctx, stop := context.WithCancel(ctx) // ends the listing after an error of f
	defer stop()
	found := false
	for info := range s.client.ListObjectsIter(ctx, bucket, minio.ListObjectsOptions{Prefix: key, Recursive: true}) {
		if info.Err != nil {
			return fmt.Errorf("%s: %w", below, told(info.Err))
		}
		found = true
		if strings.HasSuffix(info.Key, "/"+manifestName) {
			if err := f(Scheme + bucket + "/" + info.Key); err != nil {
				return err
			}
		}
	}
	if !found && ctx.Err() == nil {
		return fmt.Errorf("%s: nothing is below it: %w", below, fs.ErrNotExist)
	}
	return ctx.Err()
}

// A refusal is an error that the store has answered.
type refusal struct {
	code, text string
	status     int
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the S3-compatible store answers %d %s: %s", r.status, r.code, r.text)
}

// ErrRefused means that a store has answered, and does not do what is asked.
var ErrRefused = errors.New("the S3-compatible store refuses")

func (r *refusal) Is(target error) bool {
	return target == ErrRefused || target == fs.ErrNotExist && (r.code == minio.NoSuchKey || r.code == minio.NoSuchBucket)
}

// maxTold bounds what an error quotes of an answer, bytes.
const maxTold = 300

// told is an error as people read it: what the store says is bounded, in one line.
func told(err error) error {
	answer, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok {
		return err
	}
	short := func(text string) string {
		text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "?")
		if len(text) > maxTold {
			text = strings.ToValidUTF8(text[:maxTold], "") + "..."
		}
		return text
	}
	return &refusal{code: short(answer.Code), text: short(answer.Error()), status: answer.StatusCode}
}
