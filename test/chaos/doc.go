// Package chaos breaks a cluster while it serves, heals it, and says whether
// what clients saw can be: `make chaos`, or for some seconds `go test`.
//
// The cluster is the real program as three processes, each broker and
// controller at once. Topics have three replicas and min.insync.replicas=2:
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
// of random order. Half of the faults look for the node that leads most. After
// most faults it waits until all replicas are in sync; one of four follows at once, and
// then a node may be struck while another is behind. Kinds:
//
//	kill        SIGKILL, and a start later
//	pause       SIGSTOP for longer than broker.session.timeout.ms, SIGCONT
//	controller  SIGKILL of the active controller
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
// leader, no failover, no record that was only in the store.
package chaos
