//go:build !linux

package wire

import "syscall"

// Other systems read and write.
const canSendfile = false

type sysWriter struct{}

func (*sysWriter) send(syscall.RawConn, []byte) (int, error) { panic("unreachable") }

func (w *sliceWriter) sendfile(c *Conn, r *FileRange) error { return w.copyRange(c, r) }

func resident(*FileRange) bool { return true }

func readNow(int, []byte, int64) (done, cold bool) { return false, false }

func willNeed(int, int64, int64) {}
