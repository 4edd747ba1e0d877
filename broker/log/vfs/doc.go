// Package vfs is the disk: the only package that touches local files.
//
// FS and File say what the log, the tier's cache and the checkpoints need of
// a disk and nothing more, so that three implementations can stand behind
// them:
//
//   - OS is the operating system's.
//   - Mem is a disk in memory that remembers what was not yet synced, bytes
//     and directory entries apart, and can say what a power cut would have
//     left of it (Mem.CrashClone).
//   - Fault passes everything on to another FS, except where an Injector
//     says otherwise: errors, short writes, operations that hang. It writes
//     down what was done to the disk, as text that a test can compare.
//
// # What is durable
//
// The contract is POSIX's at its strictest, because file systems differ:
//
//   - Bytes, and the size of a file, are durable once File.Sync returned.
//   - A name (created, renamed, removed) is durable once SyncDir of the
//     directory that holds it returned. Syncing the file does not make its
//     name durable.
//   - Rename replaces an existing file atomically: after a crash the name
//     means the old file or the new one, never none.
//   - A failed Sync says that bytes are lost, perhaps others than the last.
//     A second Sync that succeeds proves nothing: the kernel reports such an
//     error once and then forgets it. Callers must treat the first as final.
//
// # Names
//
// Names are slash-separated paths; OS takes them relative to the working
// directory unless they are absolute. Errors wrap fs.ErrNotExist, fs.ErrExist
// and fs.ErrClosed where these apply, and the syscall.Errno otherwise
// (errors.Is(err, syscall.ENOSPC) is how "disk full" is recognised).
package vfs
