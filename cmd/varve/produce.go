package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// maxLine bounds a line that becomes a record; a broker's max.message.bytes is
// usually less.
const maxLine = 64 << 20

type produce struct {
	keySeparator string
	compression  string
	partition    int32
	acks         string
	headers      []string
	progress     *progress
}

func newProduce(a *app) *cobra.Command {
	var p produce
	cmd := &cobra.Command{
		Use:     "produce TOPIC [FILE...]",
		Short:   "Write the lines of standard input or of files as records",
		Example: "  varve produce orders < lines.txt\n  varve produce orders -K : --compression zstd a.txt b.txt",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.run(cmd.Context(), a, args[0], args[1:])
		},
	}
	cmd.Flags().StringVarP(&p.keySeparator, "key-separator", "K", "", "what separates key and value in a line; without it records have no key")
	cmd.Flags().StringVarP(&p.compression, "compression", "z", "none", "none, gzip, snappy, lz4 or zstd")
	cmd.Flags().Int32VarP(&p.partition, "partition", "p", -1, "partition to write to (-1: by key, or any)")
	cmd.Flags().StringVar(&p.acks, "acks", "all", "all, 1 or 0")
	cmd.Flags().StringArrayVarP(&p.headers, "header", "H", nil, "header of every record as name=value, repeatable")
	a.clientFlags(cmd)
	return cmd
}

func (p *produce) run(ctx context.Context, a *app, topic string, files []string) error {
	opts, err := p.options(topic)
	if err != nil {
		return err
	}
	template, err := p.template()
	if err != nil {
		return err
	}
	client, err := a.connect(ctx, opts...)
	if err != nil {
		return err
	}
	defer client.Close()
	p.progress = newProgress(a.err, "produced")
	defer p.progress.done()
	sink := &sink{client: client, progress: p.progress}
	err = p.readAll(ctx, a, files, func(r kgo.Record) error {
		r.Headers = template
		return sink.send(ctx, &r)
	})
	if flushErr := client.Flush(ctx); err == nil {
		err = flushErr
	}
	if failed := sink.failure(); failed != nil {
		err = failed
	}
	var p2 *problem
	if err != nil && !errors.As(err, &p2) {
		err = a.explain("topic "+topic, err)
	}
	return err
}

func (p *produce) options(topic string) ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.DefaultProduceTopic(topic), kgo.UnknownTopicRetries(1)}
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[p.compression]
	if !ok {
		return nil, badFlag("--compression "+p.compression, errors.New("is none of none, gzip, snappy, lz4, zstd"))
	}
	opts = append(opts, kgo.ProducerBatchCompression(codec))
	switch p.acks {
	case "all", "-1":
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, badFlag("--acks "+p.acks, errors.New("is none of all, 1, 0"))
	}
	if p.partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	return opts, nil
}

func (p *produce) template() ([]kgo.RecordHeader, error) {
	var headers []kgo.RecordHeader
	for _, pair := range p.headers {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, badFlag("--header "+pair, errors.New("is not name=value"))
		}
		headers = append(headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return headers, nil
}

// readAll makes a record of every line of the files, or of standard input.
func (p *produce) readAll(ctx context.Context, a *app, files []string, send func(kgo.Record) error) error {
	if len(files) == 0 {
		files = []string{"-"}
	}
	for _, name := range files {
		if name == "-" {
			if err := p.readLines(ctx, "standard input", a.in, send); err != nil {
				return err
			}
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return &problem{"file " + name, innermost(err), ""}
		}
		err = p.readLines(ctx, name, f, send)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (p *produce) readLines(ctx context.Context, name string, in io.Reader, send func(kgo.Record) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	lines.Split(scanRawLines)
	for n := 1; lines.Scan() && ctx.Err() == nil; n++ {
		line := bytes.Clone(lines.Bytes())
		r := kgo.Record{Value: line, Partition: p.partition}
		if p.keySeparator != "" {
			key, value, ok := bytes.Cut(line, []byte(p.keySeparator))
			if !ok {
				return &problem{fmt.Sprintf("%s line %d", name, n), fmt.Errorf("has no key separator %q", p.keySeparator), "leave out --key-separator to write lines without keys"}
			}
			r.Key, r.Value = key, value
		}
		if r.Value == nil {
			r.Value = []byte{} // an empty line is an empty record, not a tombstone
		}
		if err := send(r); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return &problem{name, fmt.Errorf("has a line of more than %s", size(maxLine)), ""}
	}
	return errors.Join(lines.Err(), ctx.Err())
}

// scanRawLines is bufio.ScanLines, but keeps a carriage return: records are
// bytes.
func scanRawLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// sink hands records to a client and keeps the first failure, after which it
// takes no more.
type sink struct {
	client   *kgo.Client
	progress *progress

	mu  sync.Mutex
	err error
}

func (s *sink) send(ctx context.Context, r *kgo.Record) error {
	if err := s.failure(); err != nil {
		return err
	}
	s.client.Produce(ctx, r, func(r *kgo.Record, err error) {
		if err == nil {
			s.progress.add(1, int64(len(r.Key)+len(r.Value)))
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err == nil {
			s.err = err
		}
	})
	return nil
}

func (s *sink) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
