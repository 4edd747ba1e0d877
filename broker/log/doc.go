// Package log keeps the local log of a partition: an ordered sequence of record batches in segment files, the indexes that find
// one by offset or time, the state of idempotent and transactional producers, and the leader epochs. It knows
// neither replication nor the tier; who uses it decides who may append, what is committed and what may go.
//
// Log is one partition, Dir one log directory with the partitions of a node in it. All files are Apache Kafka's,
// byte for byte, so that its DumpLogSegments reads them and Open takes a partition directory that Kafka wrote.
// Integers are big endian.
//
// # A partition directory: <topic>-<partition>/
//
// <base offset, 20 digits>.log: record batches as wire/record draws them, one behind the other. The base offset is that of the
// first batch; offsets ascend, without gaps unless the topic is or was compacted.
//
// <base offset>.index, one entry for a batch every index.interval.bytes:
//
//	+-----------------+----------+
//	| relative offset | position |   relative offset: last offset of the batch - base offset
//	| int32           | int32    |   position: where in the .log the batch begins
//	+-----------------+----------+
//
// <base offset>.timeindex, an entry with each of the above if the largest timestamp grew since the last, and one at the end:
//
//	+-----------+-----------------+
//	| timestamp | relative offset |   timestamp: largest of the segment so far, in ms
//	| int64     | int32           |   relative offset: last offset of the first batch that has it - base offset
//	+-----------+-----------------+
//
// <base offset>.txnindex, an entry for each abort marker in the segment; there is no file without one:
//
//	+---------+-------------+--------------+-------------+--------------------+
//	| version | producer id | first offset | last offset | last stable offset |   version: 0
//	| int16   | int64       | int64        | int64       | int64              |   last offset: of the marker
//	+---------+-------------+--------------+-------------+--------------------+
//
// <offset>.snapshot, the producers as the batches below the offset leave them. There is one for each segment's base, and after a
// clean shutdown one at the end:
//
//	+---------+--------+-------+-------------------+
//	| version | CRC    | count | entry ...         |   version: 1
//	| int16   | uint32 | int32 | 46 bytes each     |   CRC: CRC-32C of all that follows it
//	+---------+--------+-------+-------------------+
//	entry:
//	+-------------+----------------+---------------+-------------+--------------+-----------+-------------------+--------------------------+
//	| producer id | producer epoch | last sequence | last offset | offset delta | timestamp | coordinator epoch | current txn first offset |
//	| int64       | int16          | int32         | int64       | int32        | int64     | int32             | int64, -1 none           |
//	+-------------+----------------+---------------+-------------+--------------+-----------+-------------------+--------------------------+
//
// Kafka keeps one batch of a producer there; the last five, by which repeated ones are recognised, are completed from the headers of the
// tail.
//
// leader-epoch-checkpoint, text: a line "0", a line with the number of lines that follow, then "<epoch> <first offset>" each, both
// ascending.
//
// partition.metadata, text: "version: 0" and "topic_id: <base64>".
//
// Varve's own, which Kafka ignores: <offset>.cut and <offset>.cut.<n> are what recovery cut off the end of the log there, kept for
// a human; <base offset>.log.kept is the unfinished new file of a truncation; damage is there, and tells where, as long as
// the log is corrupt.
//
// # A log directory
//
// meta.properties: version=1, cluster.id, node.id, directory.id as in Kafka, and varve.version=1. A directory without the last is a
// whole Kafka log.dirs and is refused.
//
// recovery-point-offset-checkpoint, log-start-offset-checkpoint, replication-offset-checkpoint, text: a line "0", a line with the
// number of lines that follow, then "<topic> <partition> <offset>" each.
//
// .kafka_cleanshutdown: {"version":0,"brokerEpoch":n}, written last and removed at the next start before anything is appended.
// .lock is locked while a process uses the directory. .varve_mount names boot and mount since which no write can have been lost,
// and in its second line the broker epoch of the life that wrote last.
//
// # What is trusted
//
// Data is durable up to the recovery point and is believed there, as far as the CRC says. Indexes, snapshots and epochs are derived
// from it: they are checked when they are read, and built anew if anything is off.
package log
