// Package node runs servers as processes beside a test or a benchmark: Apache
// Kafka as Maven Central serves it, Varve as `make build` leaves it, and MinIO
// as `make minio` leaves it. Every server listens on free loopback ports and
// keeps its files below a folder of the caller. A Cluster is several nodes of Varve or of Apache Kafka.
//
// Only processes that this package started are ever ended, by their id; they
// also die with the process that started them.
package node
