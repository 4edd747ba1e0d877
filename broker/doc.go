// Package broker is the data plane of a node: it answers clients.
//
// One file holds one API or one family of them. A Follower keeps the broker's
// copy of the cluster's metadata and is its only way to the controller, also
// when both are in one process: it follows what the controller committed,
// registers the broker and keeps it alive, submits commands, and forwards the
// writes of administrators. Partitions belong to broker/replica.
//
// Handlers run on the reader goroutine of a connection. They either answer at
// once, or give the request to someone who answers later (an append that waits
// for a disk, a long poll), or, where something must be decided before anything
// may start, hold the reader for a bounded time.
package broker
