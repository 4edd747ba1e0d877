// Package arch keeps the structure of Varve true: which package may import
// which, that every package says what it is for, and that nothing is left
// half done. The rules are data (layers.go); the tests walk the source tree.
package arch
