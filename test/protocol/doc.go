// Package protocol speaks raw Kafka protocol to a whole node in this process:
// one test for each thing that a client somewhere depends on. Gn is the number
// of a gotcha in the list that the project keeps of them, Pn of a report.
package protocol
