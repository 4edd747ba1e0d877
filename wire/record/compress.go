package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// maxZstdWindow is the largest window a frame may ask for: zstd's own limit for everyday use (--long=27).
// The window itself is not allocated: history is the output, which has the caller's limit.
const maxZstdWindow = 128 << 20

// Compress appends src, compressed, to dst.
func Compress(c Codec, dst, src []byte) ([]byte, error) {
	switch c {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return compressGzip(dst, src)
	case Snappy:
		return compressXerial(dst, src), nil
	case LZ4:
		return compressLZ4(dst, src)
	case Zstd:
		encoder := zstdEncoders.Get().(*zstd.Encoder)
		defer zstdEncoders.Put(encoder)
		return encoder.EncodeAll(src, dst), nil
	}
	return dst, fmt.Errorf("%w: %d", ErrCodec, int8(c))
}

// Decompress appends the plain form of src to dst, at most limit bytes of it: more is ErrTooLarge, found from the
// declared length where the format declares one, and never after having held much more than limit. What is not a
// stream of the codec wraps ErrCorrupt. On error dst is returned with what it had, its contents beyond undefined.
func Decompress(c Codec, dst, src []byte, limit int) ([]byte, error) {
	var out []byte
	var err error
	switch c {
	case None:
		if len(src) > limit {
			return dst, ErrTooLarge
		}
		return append(dst, src...), nil
	case Gzip:
		out, err = decompressGzip(dst, src, limit)
	case Snappy:
		out, err = decompressSnappy(dst, src, limit)
	case LZ4:
		out, err = decompressLZ4(dst, src, limit)
	case Zstd:
		out, err = decompressZstd(dst, src, limit)
	default:
		return dst, fmt.Errorf("%w: %d", ErrCodec, int8(c))
	}
	if err == nil {
		return out, nil
	}
	if errors.Is(err, ErrTooLarge) {
		return dst, ErrTooLarge
	}
	return dst, fmt.Errorf("%w: %v: %v", ErrCorrupt, c, err)
}

// Encoders and decoders hold tens of KiB to MiB each, so they are pooled. Nothing of one batch's data can be seen
// through them by the next.
var (
	gzipWriters  = sync.Pool{New: func() any { return gzip.NewWriter(io.Discard) }}
	gzipReaders  = sync.Pool{New: func() any { return new(gzip.Reader) }}
	lz4Writers   = sync.Pool{New: func() any { return lz4.NewWriter(io.Discard) }}
	zstdEncoders = sync.Pool{New: func() any {
		e, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)) // these options cannot fail
		return e
	}}
	zstdDecoders = sync.Pool{New: func() any {
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
		return d
	}}
)

func compressGzip(dst, src []byte) ([]byte, error) {
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	out := appender{dst}
	w.Reset(&out)
	if _, err := w.Write(src); err != nil {
		return dst, fmt.Errorf("gzip: %w", err)
	}
	if err := w.Close(); err != nil {
		return dst, fmt.Errorf("gzip: %w", err)
	}
	return out.p, nil
}

func decompressGzip(dst, src []byte, limit int) ([]byte, error) {
	r := gzipReaders.Get().(*gzip.Reader)
	defer gzipReaders.Put(r)
	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return dst, err
	}
	return readLimited(dst, r, limit)
}

func compressLZ4(dst, src []byte) ([]byte, error) {
	w := lz4Writers.Get().(*lz4.Writer)
	defer lz4Writers.Put(w)
	out := appender{dst}
	w.Reset(&out)
	// 64 KiB blocks, as Kafka's clients write.
	if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1)); err != nil {
		return dst, fmt.Errorf("lz4: %w", err)
	}
	if _, err := w.Write(src); err != nil {
		return dst, fmt.Errorf("lz4: %w", err)
	}
	if err := w.Close(); err != nil {
		return dst, fmt.Errorf("lz4: %w", err)
	}
	return out.p, nil
}

// decompressLZ4 makes a reader each time: a reused one would offer the batch before as dictionary to a
// frame of dependent blocks. Its large buffers come from the library's pool.
func decompressLZ4(dst, src []byte, limit int) ([]byte, error) {
	if size, ok := lz4ContentSize(src); ok && size > uint64(limit) {
		return dst, ErrTooLarge
	}
	r := lz4.NewReader(bytes.NewReader(src))
	if err := r.Apply(lz4.ConcurrencyOption(1)); err != nil {
		return dst, err
	}
	return readLimited(dst, r, limit)
}

// lz4ContentSize reads the content size that a frame may declare: magic (4), flags (1), block
// descriptor (1), size (8, little-endian) if flag bit 3 is set.
func lz4ContentSize(src []byte) (uint64, bool) {
	if len(src) < 14 || binary.LittleEndian.Uint32(src) != lz4Magic || src[4]&0x08 == 0 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(src[6:]), true
}

const lz4Magic = 0x184d2204

// decompressZstd decodes into the room it gives the decoder, which never exceeds it. A frame that tells its size gets
// that much; for one that does not (Java's producers write such) the room is guessed and doubled until it suffices.
func decompressZstd(dst, src []byte, limit int) ([]byte, error) {
	room := int64(len(src)) * zstdGuess
	var header zstd.Header
	if header.Decode(src) == nil && header.HasFCS {
		if header.FrameContentSize > uint64(limit) {
			return dst, ErrTooLarge
		}
		room = min(int64(header.FrameContentSize), int64(len(src))*maxZstdRatio)
	}
	decoder := zstdDecoders.Get().(*zstd.Decoder)
	defer zstdDecoders.Put(decoder)
	start := len(dst)
	for room = max(room, minRoom); ; room *= 2 {
		room = min(room, int64(limit))
		dst = slices.Grow(dst, int(room)+zstdSlack)
		out, err := decoder.DecodeAll(src, dst[start:start:start+int(room)+zstdSlack])
		full := len(out) > int(room) || errors.Is(err, zstd.ErrDecoderSizeExceeded)
		switch {
		case full && room < int64(limit):
			continue
		case full || errors.Is(err, zstd.ErrWindowSizeExceeded):
			return dst, ErrTooLarge
		case err != nil:
			return dst, err
		}
		return dst[:start+len(out)], nil
	}
}

const (
	zstdGuess = 8 // compression ratio at which the first attempt suffices; log lines reach 4 to 6
	minRoom   = 4 << 10
	// maxZstdRatio is 4 bytes for a block of 128 KiB: more than this is a lie, and not worth the memory.
	maxZstdRatio = 128 << 10 / 4
	// zstdSlack is room for two more blocks of the format's maximum: what fails for lack of room has then certainly
	// passed the limit, whatever the error, and what fails before is broken.
	zstdSlack = 2 * 128 << 10
)

// readLimited appends what r gives to dst until its end, at most limit bytes.
func readLimited(dst []byte, r io.Reader, limit int) ([]byte, error) {
	const step = minRoom
	start := len(dst)
	for {
		if cap(dst)-len(dst) < step {
			dst = append(dst, make([]byte, max(step, len(dst)-start))...)[:len(dst)]
		}
		room := min(cap(dst)-len(dst), limit-(len(dst)-start)+1)
		n, err := r.Read(dst[len(dst) : len(dst)+room])
		dst = dst[:len(dst)+n]
		if len(dst)-start > limit {
			return dst, ErrTooLarge
		}
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// appender is an io.Writer that appends to a slice.
type appender struct{ p []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.p = append(a.p, p...)
	return len(p), nil
}
