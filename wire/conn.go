package wire

import "net"

// Conn is the server's side of one client connection.
type Conn struct {
	ID                    uint64 // unique in the process
	Listener              string
	RemoteAddr, LocalAddr net.Addr
	Principal             Principal
	// What the client said in ApiVersions; set before any request that follows it.
	ClientSoftwareName, ClientSoftwareVersion string
}
