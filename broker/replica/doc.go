// Package replica owns the partitions of one broker: it appends for their leaders, moves the high
// watermark, answers reads from both tiers, and moves sealed segments into the store.
package replica
