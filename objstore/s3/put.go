package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/varve-io/varve/objstore"
)

// Put implements objstore.Store. Every attempt reads r afresh: a body that a failed attempt has
// consumed is never sent again.
func (s *Store) Put(ctx context.Context, name string, r io.ReaderAt, size int64, opts objstore.PutOptions) error {
	if err := s.check(ctx, "put", name); err != nil {
		return err
	}
	if size < 0 {
		return &objstore.Error{Op: "put", Name: name, Err: fmt.Errorf("negative size %d", size)}
	}
	if opts.IfAbsent && !s.ifAbsent.Load() {
		if err := s.wantAbsent(ctx, name); err != nil {
			return err
		}
		opts.IfAbsent = false
	}
	put := s.putWhole
	if size > s.opts.PartSize*objstore.PartConcurrency {
		put = s.putParts
	}
	err := wrap(ctx, "put", name, put(ctx, name, r, size, opts))
	if opts.IfAbsent && unsupported(err) {
		s.ifAbsent.Store(false)
		return s.Put(ctx, name, r, size, opts)
	}
	return err
}

// putWhole sends an object in one request.
func (s *Store) putWhole(ctx context.Context, name string, r io.ReaderAt, size int64, opts objstore.PutOptions) error {
	body := &source{r: r, size: size}
	in := &s3.PutObjectInput{Bucket: &s.opts.Bucket, Key: s.key(name), ContentLength: &size, Body: body.section(0, size)}
	if opts.IfAbsent {
		in.IfNoneMatch = aws.String("*")
	}
	var with []func(*s3.Options)
	if s.opts.Checksum == ChecksumCRC32C {
		crc := opts.CRC32C
		if crc == nil {
			sum, err := objstore.CRC32COf(r, 0, size)
			if err != nil {
				return &localError{err: err}
			}
			crc = &sum
		}
		in.ChecksumCRC32C = formatCRC(*crc)
		with = append(with, unsignedPayload)
	} else if err := body.check(opts.CRC32C); err != nil {
		return err
	}
	call, cancel := s.sending(ctx, size, opts.Rate)
	defer cancel()
	out, err := s.client.PutObject(call, in, with...)
	if cause := body.failed(); cause != nil && err != nil {
		return &localError{err: cause}
	}
	if err != nil {
		return err
	}
	return accepted(out.ETag, out.ChecksumCRC32C, in.ChecksumCRC32C)
}

// accepted looks at a 200: a store or proxy that answers 200 with an error in its body sends
// no ETag, and one that echoes the checksum must echo ours.
func accepted(etag, crc, sent *string) error {
	if aws.ToString(etag) == "" {
		return &localError{kind: objstore.ErrUnavailable, err: errors.New("answered 200 without an ETag")}
	}
	if crc != nil && sent != nil && *crc != *sent {
		return &localError{kind: objstore.ErrChecksum, err: fmt.Errorf("the store computed %s, sent was %s", *crc, *sent)}
	}
	return nil
}

// wantAbsent looks whether name exists, for stores without conditional writes.
func (s *Store) wantAbsent(ctx context.Context, name string) error {
	switch _, err := s.Head(ctx, name); {
	case errors.Is(err, objstore.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return &objstore.Error{Op: "put", Name: name, Kind: objstore.ErrExist}
}

// unsupported reports whether err says that the store does not know the If-None-Match header.
func unsupported(err error) bool {
	var c *cause
	return errors.As(err, &c) && (c.code == "NotImplemented" || c.status == http.StatusNotImplemented)
}
