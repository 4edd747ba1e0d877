// Package chaos breaks a cluster while it serves, heals it, and says whether
// what clients saw can be: `make chaos`, or for some seconds `go test`.
//
// The cluster is the real program as three processes, each broker and
// controller at once, on hosts of package lan and disks of package disk, with a
// MinIO behind a proxy as their store. Topics have three replicas and min.insync.replicas=2:
// some acknowledge what is in memory of all in sync, some what is on their
// disks, some offload small segments and keep next to nothing local, so that
// uploads, local deletion and reads from the store go on across failovers.
//
// The clients are franz-go's, for the whole run: idempotent producers with
// acks=all write values of package test/check, consumers follow the ends, one
// reads whole partitions again and again. They never give up by themselves.
//
// The nemesis strikes one node at a time, which min.insync.replicas 2 of 3 has
// to survive. A seed chooses kinds, victims and moments. Kinds come in rounds
// of random order. Half of the faults look for the node that leads most,
// and so does the first of a kind. After most faults it waits until all replicas
// are in sync, and now and then elects the preferred leaders; one of four faults
// follows at once, and then a node may be struck while another is behind. Kinds:
//
//	kill        SIGKILL, and a start later
//	pause       SIGSTOP for longer than broker.session.timeout.ms, SIGCONT
//	controller  SIGKILL of the active controller
//	partition   no packet passes between a node and the others; clients and
//	            store still reach it in half of the cases
//	oneway      a node hears none of the others, or none hears it
//	loss        a fifth of the packets to a node are lost
//	slow        a node sends 1 Mbit/s at most
//	power       a node stops and its disk forgets what was not synced; only
//	            while all replicas are in sync, since that is the promise
//	full        no block of a node's disk is free
//	hang        every write of a node hangs
//	store       connections to the store are refused, hang or crawl
//
// A node whose disk is full or hangs may end by itself, and is started again
// when it has healed; in all other cases that is a failure.
//
// In the end all is healed and has to become whole within the patience: every
// node serves, every replica is in sync, every record that was sent has an
// answer. New clients read every partition from its first offset to its end,
// and test/check judges all that was ever sent and read: nothing lost, nothing
// changed, nothing twice, no offset with two values, no reader that goes back
// or jumps over what is committed.
//
// A run that did too little fails with ErrFloor: less than 95 % of the records
// with a known outcome, a kind of fault that struck too rarely or never a
// leader, no failover though nodes were taken away, no record that was only in
// the store.
//
// It needs root and what packages lan and disk need; what is missing is an
// error, nothing is skipped. A run ends cleanly by SIGINT and SIGTERM. What one
// left that was killed itself is swept by the next: frozen and mounted disks,
// loop devices, namespaces, bridges; processes die with it.
package chaos
