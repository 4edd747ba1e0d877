// Power takes the power from a node while it serves, again and again, and says
// whether anything that it acknowledged is gone: `make power`.
//
// The node is the real program as one process, with durability fsync, which is
// its default with one replica. Its log directory and the controller's are on
// an ext4 of package test/disk; bucket and output are not. Every round:
//
//	idempotent producers, acks=all, write values of package test/check to
//	    a topic with small segments, one that is offloaded, and one that
//	    DeleteRecords trims meanwhile; a consumer reads along; topics are made
//	    and deleted; in half of the rounds a neighbour syncs the file system,
//	    so that part of what nobody synced survives, in any order
//	at a random moment the node executes nothing any more, and the file system
//	    forgets what was not synced
//	the process is killed, the file system mounted again, the node started
//	in some rounds power goes again while it starts
//	half of the producers and the consumer live on, the others begin anew
//
// The node is stopped before the disk, since the disk answers on: a sync that is
// under way while the file system shuts down may succeed though nothing is
// durable, and a node without power could not tell anybody.
//
// Every few rounds and at the end the load stops, every partition is read from
// its log start to its end, and test/check judges all that was ever sent and
// read: nothing lost, nothing changed, nothing twice, no offset with another
// value than before, each log start where DeleteRecords put it, each topic there
// or gone as it was answered. A node that does not start by itself fails the
// run, and so does corruption that it finds.
//
// A run that finds nothing proves something only if it would have found
// something. So there is a control: the same program, built with an overlay in
// which the one line that calls fdatasync does nothing for segments, made from
// the source as it is. It has to lose acknowledged records, or the rig fails.
package main
