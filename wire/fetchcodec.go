package wire

import "github.com/twmb/franz-go/pkg/kbin"

// First flexible version of Fetch, and the first that names topics by id.
const (
	fetchFlexible = 12
	fetchTopicIDs = 13
)

// cut says that ranges follow the bytes of a message up to pos.
type cut struct {
	pos    int
	ranges []FileRange
}

// appendTo appends the body of the response at version to dst and to cuts where
// file ranges go in between.
func (r *FetchResponse) appendTo(dst []byte, cuts []cut, version int16) ([]byte, []cut) {
	flex := version >= fetchFlexible
	dst = kbin.AppendInt32(dst, r.ThrottleMillis)
	if version >= 7 {
		dst = kbin.AppendInt16(dst, r.ErrorCode)
		dst = kbin.AppendInt32(dst, r.SessionID)
	}
	dst = appendArrayLen(dst, len(r.Topics), flex)
	for i := range r.Topics {
		t := &r.Topics[i]
		if version >= fetchTopicIDs {
			dst = append(dst, t.TopicID[:]...)
		} else {
			dst = appendString(dst, t.Topic, flex)
		}
		dst = appendArrayLen(dst, len(t.Partitions), flex)
		for j := range t.Partitions {
			dst, cuts = t.Partitions[j].appendTo(dst, cuts, version, flex)
		}
		dst = appendTags(dst, flex)
	}
	switch {
	case version >= 16:
		dst = appendEndpoints(dst, r.NodeEndpoints)
	case flex:
		dst = append(dst, 0)
	}
	return dst, cuts
}

func (p *FetchPartition) appendTo(dst []byte, cuts []cut, version int16, flex bool) ([]byte, []cut) {
	dst = kbin.AppendInt32(dst, p.Partition)
	dst = kbin.AppendInt16(dst, p.ErrorCode)
	dst = kbin.AppendInt64(dst, p.HighWatermark)
	dst = kbin.AppendInt64(dst, p.LastStableOffset)
	if version >= 5 {
		dst = kbin.AppendInt64(dst, p.LogStartOffset)
	}
	switch {
	case p.AbortedTransactions != nil:
		dst = appendArrayLen(dst, len(p.AbortedTransactions), flex)
	case flex:
		dst = append(dst, 0)
	default:
		dst = kbin.AppendInt32(dst, -1)
	}
	for _, a := range p.AbortedTransactions {
		dst = kbin.AppendInt64(dst, a.ProducerID)
		dst = kbin.AppendInt64(dst, a.FirstOffset)
		dst = appendTags(dst, flex)
	}
	if version >= 11 {
		dst = kbin.AppendInt32(dst, p.PreferredReadReplica)
	}
	size := RangesSize(p.Records)
	dst = appendBytesLen(dst, int(size), flex)
	if size > 0 {
		cuts = append(cuts, cut{len(dst), p.Records})
	}
	if flex {
		dst = p.appendTags(dst)
	}
	return dst, cuts
}

func (p *FetchPartition) appendTags(dst []byte) []byte {
	var n byte
	if p.DivergingEpoch != nil {
		n++
	}
	if p.CurrentLeader != nil {
		n++
	}
	dst = append(dst, n)
	if e := p.DivergingEpoch; e != nil {
		dst = append(dst, 0, 4+8+1)
		dst = kbin.AppendInt32(dst, e.Epoch)
		dst = kbin.AppendInt64(dst, e.EndOffset)
		dst = append(dst, 0)
	}
	if p.CurrentLeader != nil {
		dst = appendLeader(dst, 1, p.CurrentLeader)
	}
	return dst
}
