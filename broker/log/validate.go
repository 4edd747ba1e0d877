package log

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire/record"
)

// RecordError names one record of a refused batch (KIP-467).
type RecordError struct {
	Index   int32 // in the batch
	Message string
}

// maxRecordErrors is how many records of a batch are named.
const maxRecordErrors = 100

// maxDecompressed bounds what one batch that must be looked into may decompress to, as a multiple of
// max.message.bytes and at least minDecompressed.
const (
	maxDecompressed = 64
	minDecompressed = 64 << 20
)

func (c *Config) decompressLimit() int {
	return max(c.MaxMessageBytes*maxDecompressed, minDecompressed)
}

// validate judges one batch by itself and brings it into the form that the topic demands, before the append
// turn is taken: the rules of Kafka's LogValidator and UnifiedLog.analyzeAndValidateRecords. Records of an
// uncompressed batch are all looked at; compressed ones only where the topic is compacted or its compression
// differs.
func (c *Config) validate(a *Append, now int64) error {
	if err := c.validateHeader(a); err != nil {
		return err
	}
	if a.Origin != OriginClient {
		return nil
	}
	err := c.validateRecords(a, now)
	if err == nil && !c.KeepCompression && a.Batch.Codec() != c.Compression {
		err = c.recompress(a)
	}
	if err == nil && c.LogAppendTime {
		a.Batch.SetLogAppendTime(now)
		a.LogAppendTime = now
	}
	return err
}

func (c *Config) validateHeader(a *Append) error {
	b := a.Batch
	switch whole, rest, err := record.Next(b); {
	case errors.Is(err, record.ErrMagic):
		return fmt.Errorf("%w: %w", err, kerr.InvalidRecord)
	case err != nil:
		return fmt.Errorf("%w: %w", err, kerr.CorruptMessage)
	case len(rest) > 0:
		return fmt.Errorf("%d bytes after a batch of %d: %w", len(rest), len(whole), kerr.InvalidRecord)
	}
	if a.Origin == OriginClient && b.BaseOffset() != 0 {
		return fmt.Errorf("base offset %d of a produced batch, want 0: %w", b.BaseOffset(), kerr.InvalidRecord)
	}
	if len(b) > c.MaxMessageBytes && a.Origin == OriginClient {
		return fmt.Errorf("batch of %d bytes, max.message.bytes is %d: %w", len(b), c.MaxMessageBytes, kerr.MessageTooLarge)
	}
	if int64(len(b)) > c.SegmentBytes {
		return fmt.Errorf("batch of %d bytes, segment.bytes is %d: %w", len(b), c.SegmentBytes, kerr.RecordListTooLarge)
	}
	if err := b.VerifyCRC(); err != nil {
		return fmt.Errorf("%w: %w", err, kerr.CorruptMessage)
	}
	if err := b.Check(); err != nil {
		return fmt.Errorf("%w: %w", err, recordErrorCode(err))
	}
	if a.Origin == OriginClient && b.IsControl() {
		return fmt.Errorf("clients may not write control records: %w", kerr.InvalidRecord)
	}
	return nil
}

func recordErrorCode(err error) error {
	switch {
	case errors.Is(err, record.ErrCodec):
		return kerr.UnsupportedCompressionType
	case errors.Is(err, record.ErrTooLarge):
		return kerr.MessageTooLarge
	}
	return kerr.InvalidRecord
}

// inspector looks at one record after the other and collects what is wrong with them.
type inspector struct {
	config  *Config
	now     int64
	a       *Append
	n       int // wrong ones, named or not
	err     error
	maximum int64
}

func (c *Config) validateRecords(a *Append, now int64) error {
	b := a.Batch
	in := inspector{config: c, now: now, a: a, maximum: record.NoTimestamp}
	if b.LogAppendTime() && c.LogAppendTime {
		return fmt.Errorf("the producer set the timestamp type to LogAppendTime: %w", kerr.InvalidTimestamp)
	}
	var err error
	switch {
	case b.Codec() == record.None:
		err = in.uncompressed(b)
	case c.Compact:
		err = b.Each(c.decompressLimit(), func(r record.Record) (bool, error) {
			in.record(int32(r.Offset-b.BaseOffset()), r.Timestamp, r.Key != nil)
			return true, nil
		})
	default:
		in.record(0, b.BaseTimestamp(), true)
		in.record(0, b.MaxTimestamp(), true)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", err, recordErrorCode(err))
	case in.n > 0:
		return fmt.Errorf("%d of %d records: %w", in.n, b.Count(), in.err)
	}
	if !c.LogAppendTime && (b.LogAppendTime() || in.maximum != b.MaxTimestamp()) {
		b.SetMaxTimestamp(in.maximum)
	}
	return nil
}

func (in *inspector) record(index int32, timestamp int64, hasKey bool) {
	in.maximum = max(in.maximum, timestamp)
	switch c := in.config; {
	case c.Compact && !hasKey:
		in.refuse(index, kerr.InvalidRecord, "Compacted topic cannot accept message without key")
	case c.LogAppendTime || timestamp == record.NoTimestamp:
	case c.TimestampAfterMaxMs > 0 && timestamp-in.now > c.TimestampAfterMaxMs,
		c.TimestampBeforeMaxMs > 0 && in.now-timestamp > c.TimestampBeforeMaxMs:
		in.refuse(index, kerr.InvalidTimestamp, fmt.Sprintf("Timestamp %d is out of range around %d", timestamp, in.now))
	}
}

func (in *inspector) refuse(index int32, code error, message string) {
	if in.n++; in.err == nil {
		in.err = fmt.Errorf("record %d: %s: %w", index, message, code)
	}
	if len(in.a.RecordErrors) < maxRecordErrors {
		in.a.RecordErrors = append(in.a.RecordErrors, RecordError{index, message})
	}
}

// uncompressed walks the records where they lie, without making anything of them: lengths, offsets one after
// the other, timestamps, keys, headers.
func (in *inspector) uncompressed(b record.Batch) error {
	p := b.Records()
	base, appendTime := b.BaseTimestamp(), b.LogAppendTime()
	count := b.Count()
	for i := range count {
		size, n := binary.Varint(p)
		if n <= 0 || size < 0 || size > int64(len(p)-n) {
			return recordFault(i, "length")
		}
		body := p[n : n+int(size)]
		p = p[n+int(size):]
		w := walker{body, false}
		w.skip(1) // attributes
		timestamp := base + w.varint()
		offset := w.varint()
		hasKey := w.bytes()
		w.bytes()
		w.headers()
		switch {
		case w.bad || len(w.p) > 0:
			return recordFault(i, "fields")
		case offset != int64(i):
			return recordFault(i, "offset")
		}
		if appendTime {
			timestamp = b.MaxTimestamp()
		}
		in.record(i, timestamp, hasKey)
	}
	if len(p) > 0 {
		return fmt.Errorf("%w: %d bytes after the last of %d records", record.ErrCorrupt, len(p), count)
	}
	return nil
}

func recordFault(i int32, what string) error {
	return fmt.Errorf("%w: %s of record %d", record.ErrCorrupt, what, i)
}

// walker takes fields off p; bad is sticky.
type walker struct {
	p   []byte
	bad bool
}

func (w *walker) varint() int64 {
	v, n := binary.Varint(w.p)
	if n <= 0 {
		w.bad = true
		return 0
	}
	w.p = w.p[n:]
	return v
}

func (w *walker) skip(n int64) {
	if n < 0 || n > int64(len(w.p)) {
		w.bad = true
		return
	}
	w.p = w.p[n:]
}

// bytes skips a nullable field and tells whether it is there.
func (w *walker) bytes() bool {
	n := w.varint()
	if n == -1 {
		return false
	}
	w.skip(n)
	return true
}

func (w *walker) headers() {
	n := w.varint()
	if n < 0 || n > int64(len(w.p)/2) {
		w.bad = w.bad || n != 0
		return
	}
	for ; n > 0 && !w.bad; n-- {
		w.skip(w.varint())
		w.bytes()
	}
}

// recompress builds the batch anew in the topic's codec.
func (c *Config) recompress(a *Append) error {
	b := a.Batch
	builder := record.NewBuilder(record.Options{
		Codec: c.Compression, ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(),
		Idempotent: b.HasProducer(), Transactional: b.IsTransactional(),
	})
	err := b.Each(c.decompressLimit(), func(r record.Record) (bool, error) {
		builder.Append(r.Timestamp, r.Key, r.Value, r.Headers...)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, recordErrorCode(err))
	}
	if int32(builder.Count()) != b.Count() {
		return fmt.Errorf("%d records in a batch that declares %d: %w", builder.Count(), b.Count(), kerr.InvalidRecord)
	}
	fresh, err := builder.Build()
	if err != nil {
		return fmt.Errorf("%w: %w", err, kerr.InvalidRecord)
	}
	if len(fresh) > c.MaxMessageBytes {
		return fmt.Errorf("batch of %d bytes in %s, max.message.bytes is %d: %w", len(fresh), c.Compression, c.MaxMessageBytes, kerr.MessageTooLarge)
	}
	a.Batch = fresh
	return nil
}
