// Package s3 keeps objects in a bucket of Amazon S3 or of a store that speaks its protocol.
//
// Bytes are protected by our own CRC-32C, computed once and sent as a header; over plain HTTP
// the payload is then not hashed a second time for the signature. That is a third of the
// CPU of the SDK's defaults at the same protection against corruption. Where a store does not
// know the checksum headers, ChecksumNone signs the payload's SHA-256 instead.
//
// Every HTTP request has a deadline of its own, made of Options.Timeout and the bytes it carries. The
// SDK's retries and its silent correction of a wrong clock are off: retrying is objstore/retry's,
// but for parts of an object, which are tried again here; a wrong clock is a failure an operator must hear of.
package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/varve-io/varve/objstore"
)

// Checksum says how a store checks the bytes that it is sent.
type Checksum string

// The modes of varve.store.s3.checksum.
const (
	ChecksumCRC32C Checksum = "crc32c" // x-amz-checksum-crc32c, payload not signed
	ChecksumNone   Checksum = "none"   // for stores without the checksums of 2025: payload signed with SHA-256
)

// Defaults of Options.
const (
	DefaultRegion  = "us-east-1"
	DefaultTimeout = 15 * time.Second
	DefaultMinRate = 1 << 20 // bytes per second
)

const (
	connectTimeout     = 5 * time.Second
	idleTimeout        = 60 * time.Second
	maxIdleConns       = 128 // kept for reuse
	ioBuffer           = 64 << 10
	maxResponseHeaders = 64 << 10
)

// Options say where the bucket is and how to talk to it. Only Bucket is necessary.
type Options struct {
	Bucket string
	Prefix string // names are below it, without slashes at the ends; "" = the whole bucket

	Endpoint  string // scheme://host[:port]; "" = Amazon's of the region
	Region    string // "" = what the AWS default chain says, else DefaultRegion
	PathStyle bool   // http://host/bucket/name instead of http://bucket.host/name
	Checksum  Checksum

	// Credentials sign the requests; nil = the AWS default chain (environment, profile, container
	// and instance roles). See FileCredentials.
	Credentials aws.CredentialsProvider

	// An HTTP request may take Timeout, plus its bytes at MinRate bytes per second.
	Timeout time.Duration
	MinRate int64

	PartSize int64            // bytes, at least S3's 5 MiB; an object of more than four is sent in parts. 0 = objstore.PartSize
	Backoff  objstore.Backoff // for one part; zero = objstore.DefaultBackoff

	TLS  *tls.Config                                                       // nil = the system's roots, or AWS_CA_BUNDLE's
	Dial func(ctx context.Context, network, addr string) (net.Conn, error) // nil = net.Dialer
}

// Store is an objstore.Store in a bucket.
type Store struct {
	client   *s3.Client
	http     *http.Client
	opts     Options
	ifAbsent atomic.Bool // until the store says that it does not know conditional writes
}

// New makes a store of opts. It reads configuration files but does not talk to the bucket.
func New(ctx context.Context, opts Options) (*Store, error) {
	opts.Prefix = strings.Trim(opts.Prefix, "/")
	if err := opts.check(); err != nil {
		return nil, fmt.Errorf("open s3 store: %w", err)
	}
	opts.setDefaults()
	cfg, err := loadConfig(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("open s3 store: %w", err)
	}
	if sdk, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok && opts.TLS == nil {
		opts.TLS = sdk.GetTransport().TLSClientConfig // holds the authorities of AWS_CA_BUNDLE
	}
	s := &Store{http: newHTTPClient(opts), opts: opts}
	s.ifAbsent.Store(true)
	s.client = s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.HTTPClient = s.http
		o.UsePathStyle = opts.PathStyle
		if opts.Endpoint != "" {
			o.BaseEndpoint = &opts.Endpoint
		}
		o.Credentials = markCredentialErrors(o.Credentials)
		o.Retryer = aws.NopRetryer{}
		o.DisableClockSkewCorrection = true
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.Logger = logging.Nop{}
	})
	return s, nil
}

func (o Options) check() error {
	if o.Bucket == "" {
		return errors.New("no bucket named")
	}
	if o.Prefix != "" {
		if err := objstore.CheckName(o.Prefix); err != nil {
			return fmt.Errorf("prefix: %w", err)
		}
	}
	switch o.Checksum {
	case "", ChecksumCRC32C, ChecksumNone:
	default:
		return fmt.Errorf("checksum mode %q, want %s or %s", o.Checksum, ChecksumCRC32C, ChecksumNone)
	}
	if o.Endpoint == "" {
		return nil
	}
	// The endpoint itself is not shown: someone may have put a secret into it.
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("the endpoint is not of the form http(s)://host[:port]")
	}
	if u.User != nil || u.RawQuery != "" {
		return errors.New("the endpoint holds credentials or a query; credentials belong in files or the environment")
	}
	return nil
}

func (o *Options) setDefaults() {
	if o.Checksum == "" {
		o.Checksum = ChecksumCRC32C
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MinRate <= 0 {
		o.MinRate = DefaultMinRate
	}
	if o.PartSize <= 0 {
		o.PartSize = objstore.PartSize
	}
	if o.Backoff.Attempts <= 0 {
		o.Backoff = objstore.DefaultBackoff
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
}

func loadConfig(ctx context.Context, opts Options) (aws.Config, error) {
	load := []func(*config.LoadOptions) error{config.WithLogger(logging.Nop{})}
	if opts.Region != "" {
		load = append(load, config.WithRegion(opts.Region))
	}
	if opts.Credentials != nil {
		load = append(load, config.WithCredentialsProvider(opts.Credentials))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if cfg.Region == "" {
		cfg.Region = DefaultRegion
	}
	return cfg, err
}

// newHTTPClient makes a client with connections of its own. Buffers are those that carry large bodies
// in few system calls; there is no timeout here, every request has its own.
func newHTTPClient(opts Options) *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            opts.Dial,
			TLSClientConfig:        opts.TLS.Clone(),
			TLSHandshakeTimeout:    connectTimeout,
			ForceAttemptHTTP2:      false, // one stream a connection: parts must not share a window
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxIdleConns:           maxIdleConns,
			MaxIdleConnsPerHost:    maxIdleConns,
			IdleConnTimeout:        idleTimeout,
			ExpectContinueTimeout:  time.Second,
			DisableCompression:     true,
			WriteBufferSize:        ioBuffer,
			ReadBufferSize:         ioBuffer,
			MaxResponseHeaderBytes: maxResponseHeaders,
		},
	}
}

// Capabilities implements objstore.Store.
func (s *Store) Capabilities() objstore.Capabilities {
	return objstore.Capabilities{IfAbsent: s.ifAbsent.Load(), Checksum: s.opts.Checksum == ChecksumCRC32C}
}

// Close implements objstore.Store.
func (s *Store) Close() error {
	s.http.CloseIdleConnections()
	return nil
}

// key is the object's key in the bucket.
func (s *Store) key(name string) *string {
	if s.opts.Prefix != "" {
		name = s.opts.Prefix + "/" + name
	}
	return &name
}

// check refuses what must not reach the bucket.
func (s *Store) check(ctx context.Context, op, name string) error {
	if ctx.Err() != nil {
		return &objstore.Error{Op: op, Name: name, Err: context.Cause(ctx)}
	}
	err := objstore.CheckName(name)
	if err == nil {
		err = objstore.CheckName(*s.key(name)) // for the length with the prefix
	}
	if err != nil {
		return &objstore.Error{Op: op, Err: err}
	}
	return nil
}

// deadline bounds one HTTP request that carries size bytes.
func (s *Store) deadline(ctx context.Context, size int64) (context.Context, context.CancelFunc) {
	return s.sending(ctx, size, 0)
}

// sending is deadline for bytes that come at rate bytes per second by the caller's own limit; 0: without one.
func (s *Store) sending(ctx context.Context, size, rate int64) (context.Context, context.CancelFunc) {
	limit := s.opts.Timeout + during(size, s.opts.MinRate)
	if rate > 0 {
		limit += during(size, rate)
	}
	return context.WithTimeout(ctx, limit)
}

// during is how long size bytes take at rate bytes per second, at most a month.
func during(size, rate int64) time.Duration {
	const month = 30 * 24 * time.Hour
	return time.Duration(min(float64(size)/float64(rate), month.Seconds()) * float64(time.Second))
}

// unsignedPayload leaves the payload's SHA-256 out of the signature, where our checksum
// protects it.
func unsignedPayload(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
}
