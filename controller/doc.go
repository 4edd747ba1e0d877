// Package controller keeps the cluster's metadata: it replicates commands in a
// quorum, applies them to the image of package metadata, and serves brokers
// and administrators on the CONTROLLER listener.
//
// A command's way:
//
//	listener -> plan (leader's image, properties) -> Quorum.Propose(entry)
//	         -> committed -> machine.Apply -> image, records, results
//	                                       -> feed -> FetchMetadata of every broker
//
// Every node of the quorum applies what is committed and feeds brokers; only
// the leader of the quorum, once it has passed a barrier in its term, plans
// and proposes. All others answer NOT_CONTROLLER.
//
// Brokers are not members of the quorum. What the leader knows of them beyond
// the image (when it heard from them, over which connection) are its sessions:
// they live in memory, begin anew with every term, and become entries only as
// commands that fence.
//
// # Outcomes
//
// A proposal has one of three ends: applied, with a result for every command;
// surely not done (ErrNotLeader); unknown (ErrUnknown). The wire says them as
// no error, NOT_CONTROLLER and REQUEST_TIMED_OUT. Commands carry preconditions,
// so whoever does not know the outcome may look at a later image and ask again.
//
// # Forming
//
// A node that is the sole entry of controller.quorum.voters founds its cluster
// by itself. Several introduce themselves to each other (key 10002) until all
// have answered and none holds anything; then the one with the lowest id decides
// on the cluster id and the members, writes them down and begins the log, from
// which the others get it. See join.
//
// A member is a node id with the UUID of its directory (KIP-853). A node whose
// directory is empty is another member: it waits to be added, votes nowhere and does
// not answer as a cluster. Connections of the quorum say whom they are for, so that
// it gets none that were meant for the one that it was.
//
// # Files
//
// The directory of a node holds:
//
//	quorum.properties   who this is: cluster.id, node.id, member.id, formed, voters (while founding)
//	raft.db             the log and the votes (bbolt)
//	snapshots/          the image at some index (metadata.EncodeSnapshot)
package controller
