// Command varve is the one binary of Varve: the server and the tools that talk
// to it.
//
//	varve server          run a node
//	varve dev             run a node of one's own, for trying things out
//	varve topic ...       create, list, describe, delete, offsets, reassign, elect
//	varve produce         write lines as records
//	varve consume         read records from an offset or a point in time
//	varve tier ...        what is where: local disk and object store
//	varve cluster ...     the cluster: controllers, brokers; decommission one, accept a loss
//	varve version
//
// Data goes to standard output, everything else to standard error. Every
// command that reads takes -o table|wide|json|yaml.
//
// Exit codes: 0 done (also a server or a following consumer that was asked to
// stop), 1 failed, 2 the command line is wrong, 130 interrupted before it was
// done.
package main
