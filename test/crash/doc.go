// Package crash ends a node by SIGKILL in the middle of what it does, again and again, and looks whether every
// promise was kept. `make crash` is 100 rounds; TestKill is a few of them.
//
// # What runs
//
// One real node (varve server, RF 1, so that an acknowledgement waits for fdatasync) on one folder for all its lives, and
// a real MinIO that lives through all of them. Three topics of small segments offload everything and keep next to
// nothing locally: one keeps all of it, one is trimmed by DeleteRecords, one by retention.bytes. Two idempotent
// producers, one of which compresses, go on over every crash with what they have in flight; each value says which record
// it is and has a checksum over all its bytes.
//
// # Where it fell
//
// At debug level a node logs where a step begins and where it ends:
//
//	index write   msg=index step=begin|end       a segment is sealed: .index, .timeindex, .snapshot, the next segment's file
//	reserve       msg=upload step=reserve        each step of an upload ends with the next line of the same object
//	PUT           msg=upload step=put
//	verify        msg=upload step=check
//	commit        msg=upload step=commit
//	local delete  msg=delete step=begin|end      snapshot synced, segment unlinked, directory synced, indexes unlinked
//	checkpoint    msg=checkpoint step=begin|end  one of the three *-checkpoint files
//
// The rig reads the lines as they are written. It aims each round at the step that fewest rounds have hit, sends
// SIGSTOP some way into the next one and waits for what was logged before that. If the end of the step is among it, the node
// goes on and the rig waits for the next; if not, SIGKILL. What counts is all that the node ever logged: a
// step fell if its beginning is there and its end is not. So it is known from the node itself and never guessed. Now and then
// the node is killed once more while it starts.
//
// # What is checked
//
// Every few rounds, and in the end, the load pauses until all it has sent is acknowledged. Then
//
//   - everything is read from the log start to the end by a plain consumer: no record lost, changed, twice or elsewhere
//     than acknowledged, nothing that was never sent, no hole between offsets
//   - the log start is 0, or exactly where a DeleteRecords wanted it and not before one that was answered, or
//     where retention.bytes may put it; it never goes back, in no answer between crashes either
//   - the segments of both tiers cover every partition without gap, rows without overlap, and no row lacks its object
//   - no sealed segment stays local, no row below the log start stays in the image
//   - at times the node then lives long enough to collect orphans: soon after the end of their reservations the bucket
//     holds nothing but what rows name
package crash
