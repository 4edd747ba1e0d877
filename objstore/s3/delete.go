package s3

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/varve-io/varve/objstore"
)

const deleteConcurrency = 8 // single deletes under way where there is no multi-delete

// Delete implements objstore.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := s.check(ctx, "delete", name); err != nil {
		return err
	}
	call, cancel := s.deadline(ctx, 0)
	defer cancel()
	_, err := s.client.DeleteObject(call, &s3.DeleteObjectInput{Bucket: &s.opts.Bucket, Key: s.key(name)})
	err = wrap(ctx, "delete", name, err)
	if errors.Is(err, objstore.ErrNotExist) {
		return nil
	}
	return err
}

// DeleteMany implements objstore.Store. Multi-delete demands a checksum that older stores do
// not know, so without checksums objects are deleted one by one.
func (s *Store) DeleteMany(ctx context.Context, names []string) error {
	var errs []error
	good := make([]string, 0, len(names))
	for _, name := range names {
		if err := s.check(ctx, "delete", name); err != nil {
			errs = append(errs, err)
			continue
		}
		good = append(good, name)
	}
	for batch := range slices.Chunk(good, objstore.DeleteBatch) {
		if s.opts.Checksum == ChecksumCRC32C {
			errs = append(errs, s.deleteBatch(ctx, batch)...)
		} else {
			errs = append(errs, s.deleteEach(ctx, batch)...)
		}
	}
	return errors.Join(errs...)
}

func (s *Store) deleteBatch(ctx context.Context, names []string) []error {
	in := &s3.DeleteObjectsInput{
		Bucket: &s.opts.Bucket, ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
		Delete: &types.Delete{Objects: make([]types.ObjectIdentifier, len(names))},
	}
	byKey := make(map[string]string, len(names)) // key -> name
	for i, name := range names {
		in.Delete.Objects[i].Key = s.key(name)
		byKey[*s.key(name)] = name
	}
	call, cancel := s.deadline(ctx, 0)
	defer cancel()
	out, err := s.client.DeleteObjects(call, in)
	var errs []error
	if err != nil {
		for _, name := range names {
			errs = append(errs, wrap(ctx, "delete", name, err))
		}
		return errs
	}
	for _, d := range out.Deleted {
		delete(byKey, aws.ToString(d.Key))
	}
	for _, e := range out.Errors {
		name, asked := byKey[aws.ToString(e.Key)]
		delete(byKey, aws.ToString(e.Key))
		kind := kindOf(aws.ToString(e.Code), 0)
		if asked && kind != objstore.ErrNotExist {
			errs = append(errs, &objstore.Error{Op: "delete", Name: name, Kind: kind,
				Err: fmt.Errorf("%s: %s", aws.ToString(e.Code), aws.ToString(e.Message))})
		}
	}
	for _, name := range byKey { // a 200 that does not speak of a name proves nothing about it
		errs = append(errs, &objstore.Error{Op: "delete", Name: name, Kind: objstore.ErrUnavailable, Err: errors.New("not confirmed")})
	}
	return errs
}

func (s *Store) deleteEach(ctx context.Context, names []string) []error {
	var mu sync.Mutex
	var errs []error
	var g errgroup.Group
	g.SetLimit(deleteConcurrency)
	for _, name := range names {
		g.Go(func() error {
			if err := s.Delete(ctx, name); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
			return nil
		})
	}
	g.Wait()
	return errs
}
