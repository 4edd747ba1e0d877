package record

import (
	"encoding/binary"
	"fmt"
)

// ControlType is the type in a control record's key.
type ControlType int16

// Control records that end a transaction, and one for those this package only recognises.
const (
	Abort   ControlType = 0
	Commit  ControlType = 1
	Unknown ControlType = -1 // other kinds exist (KRaft's); clients skip them
)

func (t ControlType) String() string {
	switch t {
	case Abort:
		return "abort"
	case Commit:
		return "commit"
	}
	return fmt.Sprintf("control(%d)", int16(t))
}

// Marker is the batch that ends a transaction of one producer on a partition.
type Marker struct {
	Type             ControlType
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32
	Timestamp        int64
	BaseOffset       int64
	LeaderEpoch      int32
}

// EndTxnMarker encodes a commit or abort marker.
func EndTxnMarker(m Marker) Batch {
	key := binary.BigEndian.AppendUint16(nil, 0)
	key = binary.BigEndian.AppendUint16(key, uint16(m.Type))
	value := binary.BigEndian.AppendUint16(nil, 0)
	value = binary.BigEndian.AppendUint32(value, uint32(m.CoordinatorEpoch))
	b := NewBuilder(Options{
		BaseOffset: m.BaseOffset, LeaderEpoch: m.LeaderEpoch, Transactional: true, Control: true,
		ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch, BaseSequence: -1,
	})
	b.Append(m.Timestamp, key, value)
	return b.uncompressed()
}

// ParseMarker reads the control record of a control batch. A type other than commit and abort is
// returned as it is, without a coordinator epoch.
func ParseMarker(b Batch) (Marker, error) {
	if !b.IsControl() {
		return Marker{}, fmt.Errorf("%w: not a control batch", ErrInvalid)
	}
	m := Marker{
		Type: Unknown, ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), CoordinatorEpoch: -1,
		Timestamp: b.MaxTimestamp(), BaseOffset: b.BaseOffset(), LeaderEpoch: b.LeaderEpoch(),
	}
	seen := false
	err := b.Each(maxControlSize, func(r Record) (bool, error) {
		if len(r.Key) < 4 {
			return false, fmt.Errorf("%w: control key of %d bytes", ErrInvalid, len(r.Key))
		}
		if version := int16(binary.BigEndian.Uint16(r.Key)); version < 0 {
			return false, fmt.Errorf("%w: control key version %d", ErrInvalid, version)
		}
		seen = true
		m.Type, m.Timestamp = ControlType(binary.BigEndian.Uint16(r.Key[2:])), r.Timestamp
		if m.Type != Abort && m.Type != Commit {
			return false, nil
		}
		if len(r.Value) < 6 {
			return false, fmt.Errorf("%w: control value of %d bytes", ErrInvalid, len(r.Value))
		}
		m.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
		return false, nil
	})
	if err == nil && !seen {
		err = fmt.Errorf("%w: control batch without a record", ErrInvalid)
	}
	return m, err
}

// maxControlSize bounds what a control batch may decompress to; real ones are never compressed.
const maxControlSize = 64 << 10
