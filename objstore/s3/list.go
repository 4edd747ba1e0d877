package s3

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/varve-io/varve/objstore"
)

// List implements objstore.Store, a page of at most 1000 objects at a time.
func (s *Store) List(ctx context.Context, prefix, after string, fn func(objstore.Info) error) error {
	in := &s3.ListObjectsV2Input{Bucket: &s.opts.Bucket, Prefix: s.key(prefix)}
	if after != "" {
		in.StartAfter = s.key(after)
	}
	for {
		out, err := s.listPage(ctx, in)
		if err != nil {
			return wrap(ctx, "list", prefix, err)
		}
		for i := range out.Contents {
			info := s.describe(&out.Contents[i])
			if info.Name <= after {
				continue // a store that does not know StartAfter
			}
			if err := fn(info); err != nil {
				if errors.Is(err, fs.SkipAll) {
					return nil
				}
				return err
			}
		}
		if !aws.ToBool(out.IsTruncated) || aws.ToString(out.NextContinuationToken) == "" {
			return nil
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}

func (s *Store) listPage(ctx context.Context, in *s3.ListObjectsV2Input) (*s3.ListObjectsV2Output, error) {
	call, cancel := s.deadline(ctx, 0)
	defer cancel()
	out, err := s.client.ListObjectsV2(call, in)
	if err == nil && out.KeyCount == nil && out.Name == nil {
		// 200 with something else in the body. Taken for an empty listing it would make every
		// object look deleted.
		err = &localError{kind: objstore.ErrUnavailable, err: errors.New("answered 200 without a listing")}
	}
	return out, err
}

func (s *Store) describe(o *types.Object) objstore.Info {
	name := aws.ToString(o.Key)
	if s.opts.Prefix != "" {
		name = strings.TrimPrefix(name, s.opts.Prefix+"/")
	}
	return objstore.Info{
		Name: name, Size: aws.ToInt64(o.Size),
		ETag: strings.Trim(aws.ToString(o.ETag), `"`), Modified: aws.ToTime(o.LastModified),
	}
}
