package log

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/record"
)

const (
	txnEntrySize = 34
	txnVersion   = 0
)

// txnIndex is the .txnindex of a segment: the transactions whose abort marker lies in it, in the order of the
// markers. There are few, so all are in memory; the file is made with the first.
type txnIndex struct {
	fs   vfs.FS
	name string

	mem  []record.AbortedTxn // guarded by Log.mu
	file vfs.File            // owned by the append turn
}

// write puts entries behind those in the file; publish follows under Log.mu.
func (x *txnIndex) write(entries []record.AbortedTxn) error {
	if x.file == nil {
		f, err := x.fs.OpenOrCreate(x.name)
		if err != nil {
			return err
		}
		x.file = f
	}
	var p []byte
	for _, e := range entries {
		p = appendAborted(p, e)
	}
	_, err := x.file.WriteAt(p, int64(len(x.mem)*txnEntrySize))
	return err
}

func (x *txnIndex) close() error {
	if x.file == nil {
		return nil
	}
	return x.file.Close()
}

func appendAborted(p []byte, e record.AbortedTxn) []byte {
	p = binary.BigEndian.AppendUint16(p, txnVersion)
	p = binary.BigEndian.AppendUint64(p, uint64(e.ProducerID))
	p = binary.BigEndian.AppendUint64(p, uint64(e.FirstOffset))
	p = binary.BigEndian.AppendUint64(p, uint64(e.LastOffset))
	return binary.BigEndian.AppendUint64(p, uint64(e.LastStableOffset))
}

func encodeTxnIndex(entries []record.AbortedTxn) []byte {
	p := make([]byte, 0, len(entries)*txnEntrySize)
	for _, e := range entries {
		p = appendAborted(p, e)
	}
	return p
}

// decodeTxnIndex reads a whole .txnindex of the segment [base, next).
func decodeTxnIndex(p []byte, base, next int64) ([]record.AbortedTxn, error) {
	if len(p)%txnEntrySize != 0 {
		return nil, fmt.Errorf("%w: transaction index of %d bytes", ErrFormat, len(p))
	}
	entries := make([]record.AbortedTxn, 0, len(p)/txnEntrySize)
	last := base - 1
	for ; len(p) > 0; p = p[txnEntrySize:] {
		if v := binary.BigEndian.Uint16(p); v != txnVersion {
			return nil, fmt.Errorf("%w: transaction index version %d", ErrFormat, v)
		}
		e := record.AbortedTxn{
			ProducerID:       int64(binary.BigEndian.Uint64(p[2:])),
			FirstOffset:      int64(binary.BigEndian.Uint64(p[10:])),
			LastOffset:       int64(binary.BigEndian.Uint64(p[18:])),
			LastStableOffset: int64(binary.BigEndian.Uint64(p[26:])),
		}
		if e.FirstOffset < 0 || e.FirstOffset > e.LastOffset || e.LastOffset <= last || e.LastOffset >= next ||
			e.LastStableOffset < 0 || e.LastStableOffset > e.LastOffset+1 {
			return nil, fmt.Errorf("%w: aborted transaction %+v in segment %d to %d", ErrFormat, e, base, next)
		}
		last = e.LastOffset
		entries = append(entries, e)
	}
	return entries, nil
}

func sortAborted(list []record.AbortedTxn) []record.AbortedTxn {
	slices.SortFunc(list, func(a, b record.AbortedTxn) int { return cmpInt(a.FirstOffset, b.FirstOffset) })
	return list
}
