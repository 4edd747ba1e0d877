// Package record reads and writes Kafka's record batches (magic 2, KIP-98): views over bytes that
// arrived or lie on disk, their validation, iteration, construction and compression.
//
// # One batch, byte by byte
//
// All integers are big-endian. A log file, a Produce record set and a Fetch record set are batches
// one after the other, without gaps.
//
//	 0        8 baseOffset            offset of the first record; the leader assigns it
//	 8        4 batchLength           bytes after this field: size of the batch - 12
//	12        4 partitionLeaderEpoch  the leader assigns it
//	16        1 magic                 2
//	17        4 crc                   CRC-32C (Castagnoli) of bytes 21..end
//	21        2 attributes            see below
//	23        4 lastOffsetDelta       offset of the last record - baseOffset; compaction may leave count <= delta
//	27        8 baseTimestamp         ms; record timestamps are deltas to it
//	35        8 maxTimestamp          ms; of the records, or the append time (attribute bit 3)
//	43        8 producerId            -1 none
//	51        2 producerEpoch         -1 none
//	53        4 baseSequence          -1 none; counts up by one a record, wraps from 2^31-1 to 0
//	57        4 records count
//	61        records, compressed as a whole by the codec
//
//	attributes  bits 0-2  codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
//	            bit  3    timestamp type: 0 create time, 1 log append time (then every record has maxTimestamp)
//	            bit  4    transactional
//	            bit  5    control (commit and abort markers); one record a batch, never compressed
//	            bit  6    baseTimestamp is the delete horizon of a compacted batch
//
// baseOffset and partitionLeaderEpoch lie before the part under the CRC so that a leader patches
// them in the buffer in which the batch arrived. For the same reason the CRC does not protect them.
//
// One record (varint and varlong are zigzag, as in protocol buffers):
//
//	varint  length           bytes after this field
//	int8    attributes       unused
//	varlong timestampDelta
//	varint  offsetDelta
//	varint  key length       -1 null
//	        key
//	varint  value length     -1 null
//	        value
//	varint  headers count
//	        for each: varint key length, key, varint value length (-1 null), value
//
// A control record's key is {int16 version 0, int16 type: 0 abort, 1 commit}, its value
// {int16 version 0, int32 coordinatorEpoch}.
//
// # Compression
//
// gzip and zstd are their usual streams; lz4 is the frame format; snappy is read both as one raw
// block and in the framing of xerial's snappy-java (written so, as Kafka does):
//
//	 0  8  0x82 'S' 'N' 'A' 'P' 'P' 'Y' 0
//	 8  4  version 1
//	12  4  compatible version 1
//	16     chunks: int32 size of the block, raw snappy block of at most 32 KiB of data
//
// Nothing here allocates on behalf of a declared length alone: every decompression has a limit and
// ends with ErrTooLarge beyond it.
package record
