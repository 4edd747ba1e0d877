// Command demo shows the main job on real input, and checks it: it starts a
// node with a directory for an object store, writes the sources of the Go
// toolchain that built it as records, waits until nearly all of it is in the
// store alone, empties the cache, reads everything back from the beginning and
// from a point in time, and compares checksums.
//
// It needs nothing but bin/varve, leaves nothing behind, and ends with 0 only
// if every byte came back.
package main
