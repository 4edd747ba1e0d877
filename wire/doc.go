// Package wire is the Kafka protocol as Varve speaks it, and the vocabulary
// that all packages share: UUID, FileRange, requests and responses.
//
// Message types and their codecs are those of franz-go's kmsg, but for the two
// that carry records: Produce is decoded in place, its record sets being
// sub-slices of the buffer they arrived in, and Fetch is encoded as bytes with
// file ranges in between, which are never copied into the process if the socket
// allows that. All integers are big-endian.
//
// # Frames
//
//	length int32 (of all that follows) | header | body
//
// A request's header; the tags are there in flexible versions (KIP-482), where
// the client id nevertheless keeps its 16-bit length:
//
//	key int16 | version int16 | correlation id int32 | client id nullable string | tags
//
// A response's header; tags as above, but never for ApiVersions (KIP-511):
//
//	correlation id int32 | tags
//
// # Varve's own messages
//
// FetchMetadata (key 10000) and SubmitCommands (10001) go from broker to
// controller, Introduce (10002) from controller to controller. They are flexible in every
// version; strings, bytes and arrays are compact. Version 0:
//
//	FetchMetadata request
//	  broker id int32 | broker epoch int64 | cluster id string | index int64 | term int64 | max wait ms int32 | tags
//	FetchMetadata response
//	  error int16 | message nullable string | controller epoch int32 | controller id int32 | committed index int64 |
//	  leader ms int32 | snapshot nullable bytes | snapshot index int64 | snapshot term int64 |
//	  entries [ previous index int64 | index int64 | term int64 | records bytes | tags ] | tags
//	SubmitCommands request
//	  broker id int32 | broker epoch int64 | cluster id string | timeout ms int32 | commands [ bytes ] | tags
//	SubmitCommands response
//	  error int16 | message nullable string | controller epoch int32 | index int64 |
//	  results [ error int16 | message nullable string | data nullable bytes | tags ] | tags
//	Introduce request
//	  introduction | tags
//	Introduce response
//	  error int16 | message nullable string | introduction | tags
//	introduction
//	  node id int32 | member id string | cluster id string | address string | state int8 | log end int64 |
//	  voters [ node id int32 | member id string | address string | tags ] | tags
//
// A connection whose first eight bytes are PrefaceMagic is not Kafka's: it is
// handed to ServerConfig.Preface, which is how controllers reach each other.
//
// # Limits
//
// What arrives is not believed: a length is compared with what its API may have
// and memory follows the bytes that came, arrays are refused when the message
// cannot hold them, unknown tags are skipped. Every wait of the server for its
// peer has a deadline. ServerConfig names the limits.
package wire
