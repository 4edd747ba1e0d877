// Package interop holds Varve against programs that were not made for it:
// kcat, franz-go, confluent-kafka-go and Apache Kafka's own tools produce,
// consume and administer; Kafka reads Varve's files and Varve Kafka's; and the
// part of franz-go's test suite that meets a broker runs against a node.
//
// The node stores in a MinIO, with segments and a local retention so small that
// everything that is read crosses the object store, the local log and the seam
// between them.
//
// It is a module of its own, so that a client in C does not enter the
// product's. `make interop` installs what it needs and runs it. The suite
// itself is proved right against Apache Kafka:
//
//	go test . -args -target kafka           # start one
//	go test . -args -target 127.0.0.1:9092  # one that runs, without tiering
package interop
