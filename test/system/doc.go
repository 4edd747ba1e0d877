// Package system tests a whole node from outside: the real binary as a process,
// real clients, a real disk and a real store behind proxies that misbehave.
package system
