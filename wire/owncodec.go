package wire

import (
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Keys of Varve's own APIs. They live on the controller's listener, are
// flexible in every version and carry versions like all others.
const (
	KeyFetchMetadata  int16 = 10000
	KeySubmitCommands int16 = 10001
	KeyIntroduce      int16 = 10002
)

// Key implements kmsg.Request.
func (*FetchMetadataRequest) Key() int16 { return KeyFetchMetadata }

// MaxVersion implements kmsg.Request.
func (*FetchMetadataRequest) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Request.
func (r *FetchMetadataRequest) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Request.
func (r *FetchMetadataRequest) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Request.
func (*FetchMetadataRequest) IsFlexible() bool { return true }

// ResponseKind implements kmsg.Request.
func (r *FetchMetadataRequest) ResponseKind() kmsg.Response {
	return &FetchMetadataResponse{Version: r.Version}
}

// AppendTo implements kmsg.Request.
func (r *FetchMetadataRequest) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt32(dst, r.BrokerID)
	dst = kbin.AppendInt64(dst, r.BrokerEpoch)
	dst = kbin.AppendCompactString(dst, r.ClusterID)
	dst = kbin.AppendInt64(dst, int64(r.Index))
	dst = kbin.AppendInt64(dst, int64(r.Term))
	dst = kbin.AppendInt32(dst, r.MaxWaitMillis)
	return append(dst, 0)
}

// ReadFrom implements kmsg.Request.
func (r *FetchMetadataRequest) ReadFrom(src []byte) error {
	b := kbin.Reader{Src: src}
	r.BrokerID = b.Int32()
	r.BrokerEpoch = b.Int64()
	r.ClusterID = b.CompactString()
	r.Index = uint64(b.Int64())
	r.Term = uint64(b.Int64())
	r.MaxWaitMillis = b.Int32()
	return finish(&b)
}

// Key implements kmsg.Response.
func (*FetchMetadataResponse) Key() int16 { return KeyFetchMetadata }

// MaxVersion implements kmsg.Response.
func (*FetchMetadataResponse) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Response.
func (r *FetchMetadataResponse) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Response.
func (r *FetchMetadataResponse) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Response.
func (*FetchMetadataResponse) IsFlexible() bool { return true }

// RequestKind implements kmsg.Response.
func (r *FetchMetadataResponse) RequestKind() kmsg.Request {
	return &FetchMetadataRequest{Version: r.Version}
}

// AppendTo implements kmsg.Response.
func (r *FetchMetadataResponse) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt16(dst, r.ErrorCode)
	dst = kbin.AppendCompactNullableString(dst, r.ErrorMessage)
	dst = kbin.AppendInt32(dst, r.ControllerEpoch)
	dst = kbin.AppendInt32(dst, r.ControllerID)
	dst = kbin.AppendInt64(dst, int64(r.CommittedIndex))
	dst = kbin.AppendInt32(dst, r.LeaderMillis)
	dst = kbin.AppendCompactNullableBytes(dst, r.Snapshot)
	dst = kbin.AppendInt64(dst, int64(r.SnapshotIndex))
	dst = kbin.AppendInt64(dst, int64(r.SnapshotTerm))
	dst = kbin.AppendCompactArrayLen(dst, len(r.Entries))
	for i := range r.Entries {
		e := &r.Entries[i]
		dst = kbin.AppendInt64(dst, int64(e.PrevIndex))
		dst = kbin.AppendInt64(dst, int64(e.Index))
		dst = kbin.AppendInt64(dst, int64(e.Term))
		dst = kbin.AppendCompactBytes(dst, e.Records)
		dst = append(dst, 0)
	}
	return append(dst, 0)
}

// ReadFrom implements kmsg.Response. Snapshot and Records are sub-slices of src.
func (r *FetchMetadataResponse) ReadFrom(src []byte) error {
	b := kbin.Reader{Src: src}
	r.ErrorCode = b.Int16()
	r.ErrorMessage = b.CompactNullableString()
	r.ControllerEpoch = b.Int32()
	r.ControllerID = b.Int32()
	r.CommittedIndex = uint64(b.Int64())
	r.LeaderMillis = b.Int32()
	r.Snapshot = b.CompactNullableBytes()
	r.SnapshotIndex = uint64(b.Int64())
	r.SnapshotTerm = uint64(b.Int64())
	const minEntry = 3*8 + 1 + 1
	n := arrayLen(&b, minEntry)
	r.Entries = nil
	if n > 0 {
		r.Entries = make([]MetadataEntry, n)
	}
	for i := range r.Entries {
		e := &r.Entries[i]
		e.PrevIndex = uint64(b.Int64())
		e.Index = uint64(b.Int64())
		e.Term = uint64(b.Int64())
		e.Records = b.CompactBytes()
		skipTags(&b)
	}
	return finish(&b)
}

// Key implements kmsg.Request.
func (*SubmitCommandsRequest) Key() int16 { return KeySubmitCommands }

// MaxVersion implements kmsg.Request.
func (*SubmitCommandsRequest) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Request.
func (r *SubmitCommandsRequest) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Request.
func (r *SubmitCommandsRequest) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Request.
func (*SubmitCommandsRequest) IsFlexible() bool { return true }

// ResponseKind implements kmsg.Request.
func (r *SubmitCommandsRequest) ResponseKind() kmsg.Response {
	return &SubmitCommandsResponse{Version: r.Version}
}

// AppendTo implements kmsg.Request.
func (r *SubmitCommandsRequest) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt32(dst, r.BrokerID)
	dst = kbin.AppendInt64(dst, r.BrokerEpoch)
	dst = kbin.AppendCompactString(dst, r.ClusterID)
	dst = kbin.AppendInt32(dst, r.TimeoutMillis)
	dst = kbin.AppendCompactArrayLen(dst, len(r.Commands))
	for _, c := range r.Commands {
		dst = kbin.AppendCompactBytes(dst, c)
	}
	return append(dst, 0)
}

// ReadFrom implements kmsg.Request. Commands are sub-slices of src.
func (r *SubmitCommandsRequest) ReadFrom(src []byte) error {
	b := kbin.Reader{Src: src}
	r.BrokerID = b.Int32()
	r.BrokerEpoch = b.Int64()
	r.ClusterID = b.CompactString()
	r.TimeoutMillis = b.Int32()
	n := arrayLen(&b, 1)
	r.Commands = nil
	if n > 0 {
		r.Commands = make([][]byte, n)
	}
	for i := range r.Commands {
		r.Commands[i] = b.CompactBytes()
	}
	return finish(&b)
}

// Key implements kmsg.Response.
func (*SubmitCommandsResponse) Key() int16 { return KeySubmitCommands }

// MaxVersion implements kmsg.Response.
func (*SubmitCommandsResponse) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Response.
func (r *SubmitCommandsResponse) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Response.
func (r *SubmitCommandsResponse) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Response.
func (*SubmitCommandsResponse) IsFlexible() bool { return true }

// RequestKind implements kmsg.Response.
func (r *SubmitCommandsResponse) RequestKind() kmsg.Request {
	return &SubmitCommandsRequest{Version: r.Version}
}

// AppendTo implements kmsg.Response.
func (r *SubmitCommandsResponse) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt16(dst, r.ErrorCode)
	dst = kbin.AppendCompactNullableString(dst, r.ErrorMessage)
	dst = kbin.AppendInt32(dst, r.ControllerEpoch)
	dst = kbin.AppendInt64(dst, int64(r.Index))
	dst = kbin.AppendCompactArrayLen(dst, len(r.Results))
	for i := range r.Results {
		c := &r.Results[i]
		dst = kbin.AppendInt16(dst, c.ErrorCode)
		dst = kbin.AppendCompactNullableString(dst, c.ErrorMessage)
		dst = kbin.AppendCompactNullableBytes(dst, c.Data)
		dst = append(dst, 0)
	}
	return append(dst, 0)
}

// ReadFrom implements kmsg.Response. Data are sub-slices of src.
func (r *SubmitCommandsResponse) ReadFrom(src []byte) error {
	b := kbin.Reader{Src: src}
	r.ErrorCode = b.Int16()
	r.ErrorMessage = b.CompactNullableString()
	r.ControllerEpoch = b.Int32()
	r.Index = uint64(b.Int64())
	const minResult = 2 + 1 + 1 + 1
	n := arrayLen(&b, minResult)
	r.Results = nil
	if n > 0 {
		r.Results = make([]CommandResult, n)
	}
	for i := range r.Results {
		c := &r.Results[i]
		c.ErrorCode = b.Int16()
		c.ErrorMessage = b.CompactNullableString()
		c.Data = b.CompactNullableBytes()
		skipTags(&b)
	}
	return finish(&b)
}

// Key implements kmsg.Request.
func (*IntroduceRequest) Key() int16 { return KeyIntroduce }

// MaxVersion implements kmsg.Request.
func (*IntroduceRequest) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Request.
func (r *IntroduceRequest) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Request.
func (r *IntroduceRequest) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Request.
func (*IntroduceRequest) IsFlexible() bool { return true }

// ResponseKind implements kmsg.Request.
func (r *IntroduceRequest) ResponseKind() kmsg.Response {
	return &IntroduceResponse{Version: r.Version}
}

// AppendTo implements kmsg.Request.
func (r *IntroduceRequest) AppendTo(dst []byte) []byte {
	return append(r.From.appendTo(dst), 0)
}

// ReadFrom implements kmsg.Request.
func (r *IntroduceRequest) ReadFrom(src []byte) error {
	b := kbin.Reader{Src: src}
	r.From.readFrom(&b)
	return finish(&b)
}

// Key implements kmsg.Response.
func (*IntroduceResponse) Key() int16 { return KeyIntroduce }

// MaxVersion implements kmsg.Response.
func (*IntroduceResponse) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Response.
func (r *IntroduceResponse) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Response.
func (r *IntroduceResponse) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Response.
func (*IntroduceResponse) IsFlexible() bool { return true }

// RequestKind implements kmsg.Response.
func (r *IntroduceResponse) RequestKind() kmsg.Request {
	return &IntroduceRequest{Version: r.Version}
}

// AppendTo implements kmsg.Response.
func (r *IntroduceResponse) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt16(dst, r.ErrorCode)
	dst = kbin.AppendCompactNullableString(dst, r.ErrorMessage)
	return append(r.From.appendTo(dst), 0)
}

// ReadFrom implements kmsg.Response.
func (r *IntroduceResponse) ReadFrom(src []byte) error {
	b := kbin.Reader{Src: src}
	r.ErrorCode = b.Int16()
	r.ErrorMessage = b.CompactNullableString()
	r.From.readFrom(&b)
	return finish(&b)
}

func (i *Introduction) appendTo(dst []byte) []byte {
	dst = kbin.AppendInt32(dst, i.NodeID)
	dst = kbin.AppendCompactString(dst, i.MemberID)
	dst = kbin.AppendCompactString(dst, i.ClusterID)
	dst = kbin.AppendCompactString(dst, i.Address)
	dst = kbin.AppendInt8(dst, int8(i.State))
	dst = kbin.AppendInt64(dst, int64(i.LogEnd))
	dst = kbin.AppendCompactArrayLen(dst, len(i.Voters))
	for _, v := range i.Voters {
		dst = kbin.AppendInt32(dst, v.NodeID)
		dst = kbin.AppendCompactString(dst, v.MemberID)
		dst = kbin.AppendCompactString(dst, v.Address)
		dst = append(dst, 0)
	}
	return append(dst, 0)
}

func (i *Introduction) readFrom(b *kbin.Reader) {
	i.NodeID = b.Int32()
	i.MemberID = b.CompactString()
	i.ClusterID = b.CompactString()
	i.Address = b.CompactString()
	i.State = VoterState(b.Int8())
	i.LogEnd = uint64(b.Int64())
	const minVoter = 4 + 1 + 1 + 1
	n := arrayLen(b, minVoter)
	i.Voters = nil
	if n > 0 {
		i.Voters = make([]Voter, n)
	}
	for j := range i.Voters {
		v := &i.Voters[j]
		v.NodeID = b.Int32()
		v.MemberID = b.CompactString()
		v.Address = b.CompactString()
		skipTags(b)
	}
	skipTags(b)
}

// arrayLen reads a compact array length and refuses one that the rest of the
// message cannot hold, each element taking at least min bytes.
func arrayLen(b *kbin.Reader, min int) int {
	n := int(b.CompactArrayLen())
	if n > len(b.Src)/min {
		b.Span(len(b.Src) + 1) // mark the reader bad
		return 0
	}
	return n
}

// maxTags is how many tagged fields one tag section may hold.
const maxTags = 64

// skipTags reads a tag section without keeping anything of it.
func skipTags(b *kbin.Reader) {
	n := b.Uvarint()
	if n > maxTags {
		b.Span(len(b.Src) + 1)
		return
	}
	for ; n > 0 && b.Ok(); n-- {
		b.Uvarint()
		b.Span(int(b.Uvarint()))
	}
}

// finish reads the last tag section of a message and refuses trailing bytes.
func finish(b *kbin.Reader) error {
	skipTags(b)
	if err := b.Complete(); err != nil {
		return err
	}
	if len(b.Src) != 0 {
		return errTrailing
	}
	return nil
}
