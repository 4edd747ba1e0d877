package record

import (
	"encoding/binary"
	"fmt"
	"sync"
)

// Record is one record of a batch. Its slices alias the batch, or a buffer that is reused once the
// function that got the record has returned.
type Record struct {
	Offset    int64
	Timestamp int64  // ms, -1 none
	Key       []byte // nil is null
	Value     []byte // nil is null
	Headers   []Header
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte // nil is null
}

// buffers holds decompression buffers between calls of Each; those above maxPooled go to the collector.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const maxPooled = 4 << 20

// Each calls fn with each record in order until it returns false or an error. Compressed records are
// decompressed to at most limit bytes (else ErrTooLarge); an uncompressed batch has no copy made. Records and
// their count must fill the batch exactly, or the error wraps ErrCorrupt. The CRC is not verified.
func (b Batch) Each(limit int, fn func(Record) (more bool, err error)) error {
	if len(b) < HeaderSize {
		return ErrShort
	}
	records := b.Records()
	if codec := b.Codec(); codec != None {
		buffer := buffers.Get().(*[]byte)
		plain, err := Decompress(codec, (*buffer)[:0], records, limit)
		if cap(plain) <= maxPooled {
			*buffer = plain[:0]
			defer buffers.Put(buffer)
		}
		if err != nil {
			return err
		}
		records = plain
	}
	return b.each(records, fn)
}

func (b Batch) each(records []byte, fn func(Record) (bool, error)) error {
	decoder := recordDecoder{
		baseOffset: b.BaseOffset(), baseTimestamp: b.BaseTimestamp(), lastDelta: b.LastOffsetDelta(),
		previous: -1, appendTime: NoTimestamp,
	}
	if b.LogAppendTime() {
		decoder.hasAppendTime, decoder.appendTime = true, b.MaxTimestamp()
	}
	for i, n := int32(0), b.Count(); i < n; i++ {
		var r Record
		var err error
		if r, records, err = decoder.next(records); err != nil {
			return fmt.Errorf("record %d of %d at offset %d: %w", i, n, b.BaseOffset(), err)
		}
		if more, err := fn(r); err != nil || !more {
			return err
		}
	}
	if len(records) > 0 {
		return fmt.Errorf("%w: %d bytes after the last of %d records", ErrCorrupt, len(records), b.Count())
	}
	return nil
}

// recordDecoder decodes the records of one batch; headers is reused from record to record.
type recordDecoder struct {
	baseOffset    int64
	baseTimestamp int64
	lastDelta     int32
	previous      int64 // offset delta of the record before
	hasAppendTime bool
	appendTime    int64
	headers       []Header
}

func (d *recordDecoder) next(src []byte) (r Record, rest []byte, err error) {
	f := fields{src: src}
	body := f.take(f.varint())
	if f.bad {
		return r, nil, fmt.Errorf("%w: record length", ErrCorrupt)
	}
	rest = f.src
	f.src = body
	f.take(1) // attributes
	timestampDelta := f.varint()
	offsetDelta := f.varint()
	r.Key = f.nullable()
	r.Value = f.nullable()
	r.Headers = d.readHeaders(&f)
	if f.bad || len(f.src) > 0 {
		return r, nil, fmt.Errorf("%w: record fields", ErrCorrupt)
	}
	if offsetDelta <= d.previous || offsetDelta > int64(d.lastDelta) {
		return r, nil, fmt.Errorf("%w: offset delta %d after %d, last is %d", ErrCorrupt, offsetDelta, d.previous, d.lastDelta)
	}
	d.previous = offsetDelta
	r.Offset = d.baseOffset + offsetDelta
	r.Timestamp = d.baseTimestamp + timestampDelta
	if d.hasAppendTime {
		r.Timestamp = d.appendTime
	}
	return r, rest, nil
}

func (d *recordDecoder) readHeaders(f *fields) []Header {
	n := f.varint()
	if f.bad || n == 0 {
		return nil
	}
	if n < 0 || n > int64(len(f.src)/2) { // a header has at least two bytes
		f.bad = true
		return nil
	}
	d.headers = d.headers[:0]
	for ; n > 0 && !f.bad; n-- {
		key := f.take(f.varint())
		d.headers = append(d.headers, Header{Key: string(key), Value: f.nullable()})
	}
	return d.headers
}

// fields takes one field after the other off src; bad is sticky.
type fields struct {
	src []byte
	bad bool
}

func (f *fields) varint() int64 {
	v, n := binary.Varint(f.src)
	if n <= 0 {
		f.bad = true
		return 0
	}
	f.src = f.src[n:]
	return v
}

func (f *fields) take(n int64) []byte {
	if f.bad || n < 0 || n > int64(len(f.src)) {
		f.bad = true
		return nil
	}
	p := f.src[:n:n]
	f.src = f.src[n:]
	return p
}

func (f *fields) nullable() []byte {
	n := f.varint()
	if n == -1 {
		return nil
	}
	return f.take(n)
}
