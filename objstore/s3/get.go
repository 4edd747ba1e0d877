package s3

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/varve-io/varve/objstore"
)

// Get implements objstore.Store: one ranged GET whose body is read straight into p.
func (s *Store) Get(ctx context.Context, name string, off int64, p []byte) (int, error) {
	if err := s.check(ctx, "get", name); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, &objstore.Error{Op: "get", Name: name, Err: fmt.Errorf("negative offset %d", off)}
	}
	if len(p) == 0 {
		return 0, nil
	}
	call, cancel := s.deadline(ctx, int64(len(p)))
	defer cancel()
	n, err := s.getRange(call, name, off, p)
	if pastEnd(err) {
		err = &localError{err: io.ErrUnexpectedEOF}
	}
	return n, wrap(ctx, "get", name, err)
}

func (s *Store) getRange(ctx context.Context, name string, off int64, p []byte) (n int, err error) {
	last := off + int64(len(p)) - 1
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.opts.Bucket, Key: s.key(name), Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, last)),
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Body.Close()) }()
	// A store, or a proxy before it, that ignores ranges or answers 200 with an error must not
	// have its bytes taken for the object's.
	size, ends, err := rangeSize(aws.ToString(out.ContentRange), off, last)
	if err != nil {
		return 0, &localError{kind: objstore.ErrUnavailable, err: err}
	}
	n, err = io.ReadFull(out.Body, p[:size])
	switch {
	case errors.Is(err, io.EOF): // none of the bytes announced
		err = io.ErrUnexpectedEOF
	case err == nil && ends:
		err = &localError{err: io.ErrUnexpectedEOF}
	}
	return n, err
}

// rangeSize checks a Content-Range against the bytes off to last that were asked for: how many
// are on their way, and whether the object ends before the last.
func rangeSize(header string, off, last int64) (size int64, ends bool, err error) {
	var first, end, total int64
	if _, err := fmt.Sscanf(header, "bytes %d-%d/%d", &first, &end, &total); err != nil {
		return 0, false, fmt.Errorf("asked for bytes %d-%d, answered with Content-Range %.64q", off, last, header)
	}
	if first != off || end < off || end > last || end != min(last, total-1) {
		return 0, false, fmt.Errorf("asked for bytes %d-%d, answered with %d-%d of %d", off, last, first, end, total)
	}
	return end - off + 1, end < last, nil
}

// Head implements objstore.Store.
func (s *Store) Head(ctx context.Context, name string) (objstore.Info, error) {
	if err := s.check(ctx, "head", name); err != nil {
		return objstore.Info{}, err
	}
	call, cancel := s.deadline(ctx, 0)
	defer cancel()
	out, err := s.client.HeadObject(call, &s3.HeadObjectInput{
		Bucket: &s.opts.Bucket, Key: s.key(name), ChecksumMode: types.ChecksumModeEnabled,
	})
	if err != nil {
		return objstore.Info{}, wrap(ctx, "head", name, s.explain(call, name, err))
	}
	if aws.ToString(out.ETag) == "" || out.LastModified == nil { // a 200 that does not speak of an object
		err := &localError{kind: objstore.ErrUnavailable, err: errors.New("answered 200 without an ETag or a time")}
		return objstore.Info{}, wrap(ctx, "head", name, err)
	}
	return objstore.Info{
		Name: name, Size: aws.ToInt64(out.ContentLength), CRC32C: parseCRC(out.ChecksumCRC32C, out.ChecksumType),
		ETag: strings.Trim(aws.ToString(out.ETag), `"`), Modified: aws.ToTime(out.LastModified),
	}, nil
}

// explain finds out what a failed HEAD means. Its answer has no body, so that an absent bucket looks like an
// absent object and a wrong key like a missing permission; a listing of one name does tell.
func (s *Store) explain(ctx context.Context, name string, headErr error) error {
	_, kind := classify(headErr)
	if kind != objstore.ErrNotExist && kind != objstore.ErrDenied && kind != objstore.ErrRegion && kind != nil {
		return headErr
	}
	_, err := s.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &s.opts.Bucket, Prefix: s.key(name), MaxKeys: aws.Int32(1)})
	if err == nil {
		return headErr // the bucket is there
	}
	if _, kind := classify(err); kind == objstore.ErrDenied {
		return headErr // we may not list
	}
	return err
}

// parseCRC is the checksum of a whole object; nil if the store has none, or one of parts.
func parseCRC(value *string, kind types.ChecksumType) *uint32 {
	if value == nil || kind == types.ChecksumTypeComposite {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(*value)
	if err != nil || len(b) != 4 {
		return nil
	}
	crc := binary.BigEndian.Uint32(b)
	return &crc
}

func formatCRC(crc uint32) *string {
	return aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc)))
}
