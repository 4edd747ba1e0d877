// Command bench compares Varve with Apache Kafka on one machine.
//
// It starts both, each a single combined node with an empty folder, and drives
// them in turn with the same lean client: its own TCP connections, batches
// built beforehand, answers read and dropped. So nearly all that is measured
// is the broker. A figure is the median of several runs, a ratio the median of
// the ratios of neighbouring runs; the sides alternate in who goes first.
//
// Both brokers are warmed by real load first (a JVM that has not compiled its
// hot paths costs three times as much). On virtual machines three more things
// distort such figures, and each has its switch: halted CPUs that wake slowly
// (-spin keeps them busy at idle priority), memory that is touched for the
// first time (-touch writes and unlinks a file of that size), and page cache
// that the host takes back (a log is read once, and its checksums verified,
// right before fetches from it are measured).
//
// Equal durability comes in two pairs, both with acks=1 and one replica:
//
//	pagecache  Kafka as it comes                 Varve varve.durability=replicated
//	fsync      Kafka flush.messages=1            Varve varve.durability=fsync
//
// The settings in force are read back from both brokers and printed.
//
//	bin/bench                                  everything
//	bin/bench -workloads produce-16k -runs 3   one row
//	bin/bench -only varve                      one side
//
// The replay of what lies in the object store alone is measured by
// test/bench/cold. Only processes that the command started are ended.
package main
