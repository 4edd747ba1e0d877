package broker

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
)

// describeLogDirs answers DescribeLogDirs.
func (h *handler) describeLogDirs(r *wire.Request, req *kmsg.DescribeLogDirsRequest) {
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	wanted := func(topic string, partition int32) bool { return true } // null: all
	if req.Topics != nil {
		wanted = func(topic string, partition int32) bool {
			return slices.ContainsFunc(req.Topics, func(t kmsg.DescribeLogDirsRequestTopic) bool {
				return t.Topic == topic && slices.Contains(t.Partitions, partition)
			})
		}
	}
	for _, d := range h.replicas.LogDirs() {
		out := kmsg.NewDescribeLogDirsResponseDir()
		out.Dir, out.TotalBytes, out.UsableBytes = d.Path, d.Total, d.Usable
		if d.Err != nil {
			out.ErrorCode = kerr.KafkaStorageError.Code
			resp.Dirs = append(resp.Dirs, out)
			continue
		}
		byTopic := map[string]int{}
		for _, p := range d.Partitions {
			if !wanted(p.Topic, p.Partition) {
				continue
			}
			i, ok := byTopic[p.Topic]
			if !ok {
				i = len(out.Topics)
				byTopic[p.Topic] = i
				out.Topics = append(out.Topics, kmsg.DescribeLogDirsResponseDirTopic{Topic: p.Topic})
			}
			out.Topics[i].Partitions = append(out.Topics[i].Partitions, kmsg.DescribeLogDirsResponseDirTopicPartition{
				Partition: p.Partition, Size: p.Size, OffsetLag: p.Lag})
		}
		resp.Dirs = append(resp.Dirs, out)
	}
	r.Reply(resp)
}
