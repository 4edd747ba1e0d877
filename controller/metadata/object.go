package metadata

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/varve-io/varve/wire"
)

// ObjectName is where a segment lies in the store:
//
//	<cluster>/<hash of topic id and partition>/<topic id>/<partition>/<base>-<end>-<epoch>-<object id>
//
// The hash spreads partitions over a store's prefixes; offsets have twenty
// digits, so that names sort as offsets do. A name is never used twice, since
// the object id is new with every attempt.
func ObjectName(clusterID string, s *Segment) string {
	return fmt.Sprintf("%s%020d-%020d-%d-%s", PartitionPrefix(clusterID, s.TopicID, s.Partition), s.Base, s.End, s.Epoch, s.Object)
}

// PartitionPrefix is what the names of all objects of a partition begin with.
func PartitionPrefix(clusterID string, topicID wire.UUID, partition int32) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", topicID, partition)
	return fmt.Sprintf("%s/%04x/%s/%d/", clusterID, h.Sum32()&0xffff, topicID, partition)
}

var errObjectName = errors.New("not the name of a segment object")

// ParseObjectName reads what ObjectName wrote: the fields of a Segment that
// its name holds.
func ParseObjectName(name string) (clusterID string, s Segment, err error) {
	parts := strings.Split(name, "/")
	if len(parts) != 5 {
		return "", s, errObjectName
	}
	last := strings.SplitN(parts[4], "-", 4)
	if len(last) != 4 {
		return "", s, errObjectName
	}
	partition, err1 := strconv.ParseInt(parts[3], 10, 32)
	base, err2 := strconv.ParseInt(last[0], 10, 64)
	end, err3 := strconv.ParseInt(last[1], 10, 64)
	epoch, err4 := strconv.ParseInt(last[2], 10, 32)
	topicID, err5 := wire.ParseUUID(parts[2])
	object, err6 := wire.ParseUUID(last[3])
	if errors.Join(err1, err2, err3, err4, err5, err6) != nil {
		return "", s, errObjectName
	}
	s = Segment{TopicID: topicID, Partition: int32(partition), Base: base, End: end, Epoch: int32(epoch), Object: object}
	if ObjectName(parts[0], &s) != name {
		return "", Segment{}, errObjectName
	}
	return parts[0], s, nil
}
