// Package lan makes a network of its own for the processes of a test, and
// breaks it: a bridge with hosts, each a network namespace, in which packets are
// dropped, lost or slowed down as they are between machines. What a proxy does
// to bytes of one connection this does to packets of all, handshakes and
// retransmissions included.
//
// The host numbered i has the address 10.213.N.(i+1), the calling process is
// 10.213.N.254 outside of all of them. N is a slot, so that several tests may run at a time;
// whoever uses one holds a lock on /run/varve-lan-N.lock.
//
// A Lan needs root, ip and tc (iproute2), nft (nftables) and nsenter
// (util-linux). What is missing is an error; nothing is skipped, since a rig that
// did not run has shown nothing. netem is not needed, which not every kernel has.
//
// Close leaves nothing behind but the lock file. What a process left that was
// killed itself is swept by the next Make of the slot, and by Sweep.
package lan
