package wire

// FetchMetadataRequest asks a controller for the metadata records after Index.
// It waits up to MaxWaitMillis for something newer. Key 10000, broker to controller.
type FetchMetadataRequest struct {
	Version       int16
	BrokerID      int32
	BrokerEpoch   int64
	ClusterID     string
	Index         uint64 // last index applied by the caller, 0: none
	Term          uint64 // term of that index
	MaxWaitMillis int32
}

// FetchMetadataResponse carries a snapshot (when the caller's index is unknown
// or too old to follow from), or the entries after it, or nothing when nothing
// happened in time.
type FetchMetadataResponse struct {
	Version         int16
	ErrorCode       int16
	ErrorMessage    *string
	ControllerEpoch int32
	ControllerID    int32
	CommittedIndex  uint64
	LeaderMillis    int32  // since this controller last heard from the active one, 0 if it is that, -1: never
	Snapshot        []byte // nil: none
	SnapshotIndex   uint64
	SnapshotTerm    uint64
	Entries         []MetadataEntry
}

// MetadataEntry is what one committed command changed: records of package
// controller/metadata. PrevIndex lets the follower see a gap.
type MetadataEntry struct {
	PrevIndex uint64
	Index     uint64
	Term      uint64
	Records   []byte
}

// SubmitCommandsRequest proposes commands of package controller/metadata to the
// active controller, in order, in one log entry. Key 10001, broker to controller.
type SubmitCommandsRequest struct {
	Version       int16
	BrokerID      int32
	BrokerEpoch   int64
	ClusterID     string
	TimeoutMillis int32
	Commands      [][]byte
}

// SubmitCommandsResponse answers with one result a command. A caller that must
// see its own write waits until it applied Index.
type SubmitCommandsResponse struct {
	Version         int16
	ErrorCode       int16 // of the whole request; then Results is empty
	ErrorMessage    *string
	ControllerEpoch int32
	Index           uint64
	Results         []CommandResult
}

// CommandResult is the fate of one command.
type CommandResult struct {
	ErrorCode    int16
	ErrorMessage *string
	Data         []byte // what the command returns, encoded by controller/metadata
}

// IntroduceRequest is how controllers get to know each other before they have a
// quorum, and how one that waits to be added makes itself known. Key 10002,
// controller to controller.
type IntroduceRequest struct {
	Version int16
	From    Introduction
}

// IntroduceResponse is the other one's introduction.
type IntroduceResponse struct {
	Version      int16
	ErrorCode    int16
	ErrorMessage *string
	From         Introduction
}

// VoterState says what part a controller has in a quorum.
type VoterState int8

// States of a controller.
const (
	VoterFresh   VoterState = iota // holds no log and may found a cluster with the others of its list
	VoterMember                    // is one of Voters, as far as it knows
	VoterWaiting                   // belongs to a cluster, but must be added to its quorum
)

// Introduction says who a controller is.
type Introduction struct {
	NodeID    int32
	MemberID  string // UUID of its directory
	ClusterID string // of a fresh one: that it wants, "" any
	Address   string // host:port of its CONTROLLER listener
	State     VoterState
	LogEnd    uint64  // index of its last entry, committed or not
	Voters    []Voter // of a fresh one: its controller.quorum.voters, without members
}

// Voter is a member of the controllers' quorum. Another directory of the same
// node is another member (KIP-853).
type Voter struct {
	NodeID   int32
	MemberID string // UUID of its directory
	Address  string // host:port
}
