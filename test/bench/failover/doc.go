// Command failover measures how long writes stand still when the leader of partitions fails, in a cluster of three
// nodes, each broker and controller at once: Varve, Apache Kafka, or one after the other.
//
//	make build && go run ./test/bench/failover -side both -rounds 10
//
// One topic has three replicas and min.insync.replicas 2. Every partition has a writer of its own that
// writes small batches with acks=all, one at a time. A round fails the node that leads some of them; rounds take turns
// between the active controller and another one. The round's figures are the times from the fault to the
// first acknowledged write that began after it: of the first of the node's partitions that writes again, and of the last. The
// node is then started again, or goes on, and once every replica is in sync and every preferred
// leader leads, the next round begins.
//
// The lean client asks for metadata every 50 ms as long as it has no answer, so nearly all that is measured is the
// cluster; -client franz shows what an ordinary client makes of it.
//
// Only processes that the command started are failed or ended.
package main
