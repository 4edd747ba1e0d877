// Package wire is the Kafka protocol as Varve speaks it, and the vocabulary
// that all packages share: UUID, FileRange, requests and responses.
package wire
