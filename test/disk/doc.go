// Package disk makes file systems that fail: an ext4 in an image file, mounted
// over a loop device, that loses power, freezes or is full when a test wants
// it. What the program under test keeps there it keeps on a real disk.
//
// Cut is what a power loss is to a disk: everything that no fsync asked for is
// gone, and from then on every write fails. It uses the ioctl
// EXT4_IOC_SHUTDOWN, without flushing the journal. The order of a power loss
// of a node is: stop the process (SIGSTOP, until no thread runs), Cut, kill it,
// Remount, start it again. A process that runs on while Cut is under way may be
// told by the kernel that a sync succeeded whose bytes are then gone (seen on
// Linux 6.18 with a program that does nothing but write and fdatasync: 15 times
// in 60 cuts, each after Cut began); without power it could have told nobody.
//
// A Disk needs root, mkfs.ext4, mount and umount. What is missing is an error;
// nothing is skipped, since a rig that did not run has shown nothing.
//
// Close leaves nothing behind. What a rig left that was killed itself is found
// by Sweep, which Make calls: a loop device over an image of this package that
// no living process holds a lock on. A frozen file system is thawed first in
// every case, because umount of one succeeds and keeps it for ever.
package disk
