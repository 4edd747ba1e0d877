package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/varve-io/varve/objstore"
)

const (
	noSuchUpload   = "NoSuchUpload"
	uploadRestarts = 3     // how often an upload that the store forgot is begun again
	maxParts       = 10000 // S3's limit
	abortTimeout   = 10 * time.Second
)

// putParts sends an object in parts. If a store loses the upload (a lifecycle rule, a
// restored server) it is begun again. What fails is aborted, so that no parts are left that cost and
// that no listing shows.
func (s *Store) putParts(ctx context.Context, name string, r io.ReaderAt, size int64, opts objstore.PutOptions) error {
	var err error
	for range uploadRestarts {
		u := &upload{store: s, name: name, src: &source{r: r, size: size}, opts: opts, partSize: s.partSize(size)}
		err = u.run(ctx)
		if code(err) != noSuchUpload {
			return err
		}
	}
	return &objstore.Error{Op: "put", Name: name, Kind: objstore.ErrUnavailable, Err: err}
}

// partSize is as configured, or more where the object would have too many parts.
func (s *Store) partSize(size int64) int64 {
	return max(s.opts.PartSize, (size+maxParts-1)/maxParts)
}

// upload is one multipart upload.
type upload struct {
	store    *Store
	name     string
	src      *source
	opts     objstore.PutOptions
	partSize int64
	id       *string
	parts    []types.CompletedPart
	crcs     []uint32 // of the parts, in crc32c mode
}

func (u *upload) run(ctx context.Context) error {
	if err := u.store.opts.Backoff.Do(ctx, func(int) error { return u.step(ctx, u.create) }); err != nil {
		return err
	}
	err := u.sendAll(ctx)
	if err == nil {
		err = u.complete(ctx)
	}
	if err != nil {
		u.abort(ctx)
	}
	return err
}

// step makes an objstore.Error of a request's, so that Backoff.Do sees whether to try again.
func (u *upload) step(ctx context.Context, fn func(context.Context) error) error {
	err := fn(ctx)
	if cause := u.src.failed(); cause != nil && err != nil {
		err = &localError{err: cause}
	}
	return wrap(ctx, "put", u.name, err)
}

func (u *upload) create(ctx context.Context) error {
	call, cancel := u.store.deadline(ctx, 0)
	defer cancel()
	in := &s3.CreateMultipartUploadInput{Bucket: &u.store.opts.Bucket, Key: u.store.key(u.name)}
	if u.sums() {
		in.ChecksumAlgorithm, in.ChecksumType = types.ChecksumAlgorithmCrc32c, types.ChecksumTypeFullObject
	}
	out, err := u.store.client.CreateMultipartUpload(call, in)
	if err != nil {
		return err
	}
	if u.id = out.UploadId; aws.ToString(u.id) == "" {
		return &localError{kind: objstore.ErrUnavailable, err: errors.New("answered 200 without an upload id")}
	}
	return nil
}

func (u *upload) sums() bool { return u.store.opts.Checksum == ChecksumCRC32C }

func (u *upload) sendAll(ctx context.Context) error {
	count := int((u.src.size + u.partSize - 1) / u.partSize)
	u.parts, u.crcs = make([]types.CompletedPart, count), make([]uint32, count)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(objstore.PartConcurrency)
	for i := range count {
		g.Go(func() error {
			return u.store.opts.Backoff.Do(gctx, func(int) error {
				return u.step(gctx, func(ctx context.Context) error { return u.send(ctx, i) })
			})
		})
	}
	err := g.Wait()
	if err == nil {
		err = ctx.Err()
	}
	return err
}

func (u *upload) partLen(i int) int64 { return min(u.partSize, u.src.size-int64(i)*u.partSize) }

// send sends part i, numbered i+1.
func (u *upload) send(ctx context.Context, i int) error {
	off, n := int64(i)*u.partSize, u.partLen(i)
	number := aws.Int32(int32(i + 1))
	in := &s3.UploadPartInput{
		Bucket: &u.store.opts.Bucket, Key: u.store.key(u.name), UploadId: u.id, PartNumber: number,
		ContentLength: &n, Body: u.src.section(off, n),
	}
	var with []func(*s3.Options)
	if u.sums() {
		crc, err := objstore.CRC32COf(u.src.r, off, n)
		if err != nil {
			return &localError{err: err}
		}
		u.crcs[i], in.ChecksumCRC32C = crc, formatCRC(crc)
		with = append(with, unsignedPayload)
	}
	call, cancel := u.store.sending(ctx, n, (u.opts.Rate+objstore.PartConcurrency-1)/objstore.PartConcurrency)
	defer cancel()
	out, err := u.store.client.UploadPart(call, in, with...)
	if err != nil {
		return err
	}
	if err := accepted(out.ETag, out.ChecksumCRC32C, in.ChecksumCRC32C); err != nil {
		return err
	}
	u.parts[i] = types.CompletedPart{PartNumber: number, ETag: out.ETag, ChecksumCRC32C: in.ChecksumCRC32C}
	return nil
}

// complete makes the parts an object. Its reply may get lost: then the upload is gone and the
// object there, which is looked for before anything is sent again.
func (u *upload) complete(ctx context.Context) error {
	crc, err := u.checksum()
	if err != nil {
		return err
	}
	return u.store.opts.Backoff.Do(ctx, func(attempt int) error {
		err := u.step(ctx, func(ctx context.Context) error { return u.completeOnce(ctx, crc) })
		if attempt > 0 && err != nil && u.arrived(ctx, err, crc) {
			return nil
		}
		return err
	})
}

// checksum combines those of the parts and compares the result with the caller's.
func (u *upload) checksum() (*uint32, error) {
	if !u.sums() {
		return nil, u.src.check(u.opts.CRC32C)
	}
	whole := uint32(0)
	for i, crc := range u.crcs {
		whole = objstore.CombineCRC32C(whole, crc, u.partLen(i))
	}
	if want := u.opts.CRC32C; want != nil && *want != whole {
		return nil, &localError{kind: objstore.ErrChecksum, err: fmt.Errorf("read %08x, want %08x", whole, *want)}
	}
	return &whole, nil
}

func (u *upload) completeOnce(ctx context.Context, crc *uint32) error {
	in := &s3.CompleteMultipartUploadInput{
		Bucket: &u.store.opts.Bucket, Key: u.store.key(u.name), UploadId: u.id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts},
	}
	if crc != nil {
		in.ChecksumCRC32C, in.ChecksumType = formatCRC(*crc), types.ChecksumTypeFullObject
	}
	if u.opts.IfAbsent {
		in.IfNoneMatch = aws.String("*")
	}
	call, cancel := u.store.deadline(ctx, u.src.size) // the store may copy all of it
	defer cancel()
	out, err := u.store.client.CompleteMultipartUpload(call, in)
	if err != nil {
		return err
	}
	return accepted(out.ETag, nil, nil)
}

// arrived reports whether a complete that failed with err, not for the first time, had been
// carried out by an earlier try.
func (u *upload) arrived(ctx context.Context, err error, crc *uint32) bool {
	if code(err) != noSuchUpload && !errors.Is(err, objstore.ErrExist) {
		return false
	}
	info, err := u.store.Head(ctx, u.name)
	return err == nil && info.Size == u.src.size && crc != nil && info.CRC32C != nil && *info.CRC32C == *crc
}

// abort drops the parts, also if ctx has ended. Failing that, the bucket's lifecycle rule
// for incomplete uploads has to.
func (u *upload) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	u.store.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: &u.store.opts.Bucket, Key: u.store.key(u.name), UploadId: u.id,
	})
}
