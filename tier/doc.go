// Package tier keeps sealed stretches of partitions in the object store and reads
// them back, by offset and by time.
//
// It is given a run of sealed batches as a value and knows no log; it asks the
// metadata image which objects exist and submits commands to change that, and knows no
// controller. The image is the one truth: an object without a row is an orphan, a
// row is only committed for an object that was verified.
//
// # Object
//
// One object holds one run of batches [base, end) and all that is needed to serve
// it, or to rebuild the partition from the bucket alone. Integers are big-endian.
//
//	0          +--------------------------------------------------+
//	           | data: record batches, as they are on disk        |
//	dataSize   +--------------------------------------------------+
//	           | producers   state of idempotent producers at end |
//	           | epochs      leader epochs of [base, end)         |
//	           | aborted     aborted transactions that overlap    |
//	           | blocks      CRC-32C of every 1 MiB of data       |
//	           | offsets     sparse: offset -> position           |
//	           | times       largest timestamp by index entry     |
//	footerPos  +--------------------------------------------------+
//	           | footer      who, what, and where the sections are|
//	size - 32  +--------------------------------------------------+
//	           | trailer                                          |
//	size       +--------------------------------------------------+
//
// Readers of data need the sections from aborted on, which is why these lie next to the
// end: one ranged GET of the last bytes brings them all.
//
//	producers  n x { producerId i64, epoch i16, coordinatorEpoch i32, currentTxnFirst i64,
//	                 lastTimestamp i64, batches u8, batches x { baseSequence i32,
//	                 lastSequence i32, lastOffset i64, offsetDelta i32, timestamp i64 } }
//	epochs     n x { epoch i32, start offset i64 }
//	aborted    n x { producerId i64, first i64, last i64, lastStable i64 }
//	blocks     n x { crc u32 }                  n = dataSize / 1 MiB, rounded up
//	offsets    n x { offset - base u32, position u32 }
//	times      n x { timestamp i64 }            n as in offsets
//
// The index has one entry for the first batch that begins in each 16 KiB window
// of data, so entries ascend in offset and position, and the first entry
// at or behind a chunk's border is the first batch that begins in that chunk. A batch of
// 16 KiB or more always has an entry. times[i] is the largest timestamp in the
// batches from entry i up to entry i+1 (not a running maximum: timestamps may go
// backwards, and a search may begin inside the object).
//
//	footer     object id [16], topic id [16], partition i32, leader epoch i32,
//	           base i64, end i64, dataSize i64, batches i64, records i64,
//	           min timestamp i64, max timestamp i64, written at (Unix ms) i64,
//	           flags u32 (1: has aborted transactions, 2: offsets have gaps),
//	           cluster id (u16 length), topic name (u16 length), sections u8,
//	           sections x { kind u8, position u64, size u64, crc-32c u32 }
//	trailer    footer position u64, footer size u32, footer crc-32c u32,
//	           version u32, crc-32c of the 20 bytes before u32, "VARVESEG"
//
// A reader skips sections of a kind it does not know and refuses a version above its own.
// A batch's own CRC covers neither its offset nor its leader epoch; the block checksums do.
//
// # Chunks
//
// Data is downloaded in aligned chunks. The life of one:
//
//	admitted    the gate lends the memory, the cache reserves the room
//	downloaded  every block's checksum is verified
//	in memory   readers copy from the download's buffer, which stays admitted
//	settled     after memoryAge, or when somebody waits for memory: written to a
//	            file of the cache, the memory given back; readers use sendfile
//	evicted     least recently used, to make room; open files serve who holds them
//
// A scan is a reader who has read more than ReadAheadBytes in sequence. A chunk that only scans
// have read, one of them to its end with no other reader of the partition behind him, goes at once if it is in memory, and is
// the first to be evicted if it has a file.
package tier
