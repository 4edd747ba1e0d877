// Package check says whether what clients saw of the service can be: a history
// of sends, polls and transactions goes in, a count of every kind of anomaly
// comes out. The kinds and their rules follow the Kafka workload of Jepsen
// (jepsen.tests.kafka), without its search for cycles.
//
// A test gives every record a Value of its own and writes Payload(value, size),
// every client of it adds what it did to a History, and once all is healed
// somebody reads every partition from its first record to its end. Then
// Check(history.Ops()) reports:
//
//	lost          acknowledged (or of unknown outcome and once seen), at or below the last offset read, not read
//	unseen        acknowledged, beyond the last offset read, not read: a lost tail
//	duplicate     one value at several offsets
//	inconsistent  one offset with several values
//	backwards     successive acknowledged sends of one process at descending offsets
//	nonmonotonic  successive polls of one process go back
//	skipped       successive polls of one process jump over a committed record
//	aborted       a record read whose send or transaction failed
//	torn          a transaction of which one part was read and another was not
//	phantom       a value read where nobody sent it
//	changed       a payload that is not what was written
//
// Only what surely did not happen is Fail: a refusal before the append, an
// abort that was answered. Whatever may have happened is Info: a lost
// connection, a timeout, NOT_LEADER_OR_FOLLOWER.
//
// A Checker takes operations one at a time and keeps some 50 bytes a record, so
// a long run need not keep its history in memory: Decode reads it back from the
// file.
//
// # The payload of a record
//
//	 0  u32  CRC-32C of everything behind it
//	 4  u32  length of the payload, these 16 bytes included
//	 8  u64  value: run (16 bits), process (16), sequence (32)
//	16       bytes that follow from the value
//
// Integers are big endian.
//
// Linearizable judges registers instead of logs: metadata that is written,
// read and swapped.
package check
