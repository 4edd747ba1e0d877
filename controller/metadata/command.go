package metadata

import (
	"encoding/binary"
	"fmt"

	"github.com/varve-io/varve/wire"
)

// Command asks for a change. It carries every precondition that it depends on
// (epochs, expected ends, versions); Apply refuses it if one does not hold.
// One command either happens as a whole or not at all; several may share an
// entry, each with its own result.
type Command interface {
	fields(*coder)
	commandKind() uint64
	// apply returns the records that the command amounts to, or why it is
	// refused. It only reads the image. data is the answer to the proposer.
	apply(m *Image, at Meta) (recs []Record, data []byte, err error)
}

// Formation.
type (
	// FormCluster is the first entry of a cluster.
	FormCluster struct {
		ClusterID string
		Features  []Feature
	}
	// SetFeature finalises a level; levels only rise.
	SetFeature struct{ Feature Feature }
)

// Brokers.
type (
	// RegisterBroker admits one life of a broker, fenced; its epoch is the
	// index of the entry. Another life that is still unfenced must be fenced
	// first (DUPLICATE_BROKER_REGISTRATION). The same incarnation, registered
	// again, keeps its epoch and stays in service: its answer was lost, or its
	// listeners changed.
	RegisterBroker struct {
		ID          int32
		ClusterID   string
		Incarnation wire.UUID
		Rack        string
		Listeners   []Listener
		LogDirs     []wire.UUID
		// PreviousEpoch is the broker epoch of the last life of which
		// nothing that was written is lost: it ended cleanly (KIP-966), or
		// its page cache survived it. -1 if that is not known.
		PreviousEpoch int64
	}
	// FenceBroker takes a broker out of service: it leads nothing and leaves
	// every ISR (KIP-841), also as the last member (KIP-966).
	FenceBroker struct {
		ID    int32
		Epoch int64
	}
	// UnfenceBroker puts it into service: it is elected wherever nobody leads
	// and it is eligible.
	UnfenceBroker struct {
		ID    int32
		Epoch int64
	}
	// ShutdownBroker begins a controlled shutdown: what others can lead, they lead.
	ShutdownBroker struct {
		ID    int32
		Epoch int64
	}
	// FailDirs says that log directories of a broker failed: what lies there
	// leads no more and is not in sync, as if the broker was fenced, until it
	// is registered anew. Where that is not fsynced, it may lack records.
	FailDirs struct {
		ID    int32
		Epoch int64
		Dirs  []wire.UUID
	}
	// UnregisterBroker forgets a fenced broker that holds no replica.
	UnregisterBroker struct{ ID int32 }
	// AssignDirs says in which log directory each replica of a broker lies.
	AssignDirs struct {
		BrokerID    int32
		BrokerEpoch int64
		Dirs        []DirAssignment
	}
	DirAssignment struct {
		TopicID   wire.UUID
		Partition int32
		Dir       wire.UUID
	}
	// AllocateProducerIDs hands a broker the next block of producer ids.
	// The result's data is a ProducerIDBlock.
	AllocateProducerIDs struct {
		BrokerID    int32
		BrokerEpoch int64
		Count       int32
	}
)

// Topics. PlanCreateTopic and its neighbours in plan.go make these from what a
// client asked for.
type (
	// CreateTopic is refused if the name is taken; Assignments holds the
	// replicas of every partition.
	CreateTopic struct {
		ID          wire.UUID
		Name        string
		Assignments [][]int32
		Configs     map[string]string
		Durability  string
		MinInSync   int32
	}
	// DeleteTopic leaves a PurgeTopic task if the topic may have objects.
	DeleteTopic struct{ ID wire.UUID }
	// CreatePartitions appends partitions; Existing is the number it expects.
	CreatePartitions struct {
		TopicID     wire.UUID
		Existing    int32
		Assignments [][]int32
	}
	// AlterConfig replaces the configuration of one resource, if it has not
	// changed since Version (Image.ConfigVersion).
	AlterConfig struct {
		Type    ResourceType
		Name    string
		Version uint64
		Entries map[string]string
	}
	// AlterPartition is the leader's proposal of a new ISR (KIP-497), with
	// the broker epoch of each member (KIP-903).
	AlterPartition struct {
		BrokerID       int32
		BrokerEpoch    int64
		TopicID        wire.UUID
		Partition      int32
		LeaderEpoch    int32
		PartitionEpoch int32
		ISR            []ISRMember
	}
	ISRMember struct {
		BrokerID    int32
		BrokerEpoch int64 // -1: not known
	}
	// ReportEnd is a replica's answer to a row that has nobody eligible: how
	// far its log goes. Once all that must have answered, the best leads. It
	// is harmless where a leader was found meanwhile.
	ReportEnd struct {
		BrokerID    int32
		BrokerEpoch int64
		TopicID     wire.UUID
		Partition   int32
		LastEpoch   int32
		End         int64
	}
	// ElectLeader elects the preferred replica or, if Unclean, any replica
	// that lives, the best that is known, where nobody leads: acknowledged
	// records may be lost (Partition.LossEpoch).
	ElectLeader struct {
		TopicID   wire.UUID
		Partition int32
		Unclean   bool
	}
	// AlterReassignment begins, changes or cancels the move of a partition to
	// other replicas (KIP-455).
	AlterReassignment struct {
		TopicID    wire.UUID
		Partition  int32
		Target     []int32
		Cancel     bool
		KeepFactor bool // refuse a change of the number of replicas
	}
)

// Remote segments. All are the leader's to propose: a stale leader epoch is
// answered FENCED_LEADER_EPOCH.
type (
	// ReserveObject announces an object before it is put, for at most
	// LifetimeMs of the controller's time.
	ReserveObject struct {
		BrokerID    int32
		BrokerEpoch int64
		TopicID     wire.UUID
		Partition   int32
		LeaderEpoch int32
		Object      wire.UUID
		LifetimeMs  int64
	}
	// CommitSegment makes a row of an object that is in the store, verified.
	// It is accepted iff its reservation lives, Segment.Epoch is the leader's and
	// remoteEnd <= Base <= next < End with next = max(remoteEnd, logStart);
	// otherwise RESOURCE_NOT_FOUND, FENCED_LEADER_EPOCH and
	// INVALID_UPDATE_VERSION. Committing the same object again succeeds.
	CommitSegment struct {
		BrokerID    int32
		BrokerEpoch int64
		Segment     Segment
	}
	// ReleaseReservation gives a reservation up: the object was deleted or never put.
	ReleaseReservation struct{ Object wire.UUID }
	// AdvanceLogStart moves the log start of both tiers; a lower or equal
	// one succeeds and changes nothing.
	AdvanceLogStart struct {
		BrokerID    int32
		BrokerEpoch int64
		TopicID     wire.UUID
		Partition   int32
		LeaderEpoch int32
		LogStart    int64
	}
	// DeleteSegmentsUpTo allows the deletion of objects that end at or below
	// UpTo, which the log start must have passed, after a grace from now.
	// While rows of the former one remain, it is refused
	// (OPERATION_NOT_ATTEMPTED): else the grace would begin anew for ever.
	DeleteSegmentsUpTo struct {
		BrokerID    int32
		BrokerEpoch int64
		TopicID     wire.UUID
		Partition   int32
		LeaderEpoch int32
		UpTo        int64
	}
	// ForgetSegments removes the rows of objects that were deleted from the
	// store; rows that are gone already do no harm.
	ForgetSegments struct {
		BrokerID    int32
		BrokerEpoch int64
		TopicID     wire.UUID
		Partition   int32
		LeaderEpoch int32
		Objects     []wire.UUID
	}
	// ExpireReservations removes those whose time is over.
	ExpireReservations struct{}
	// CompleteTask ends a task. PurgeTopic is refused
	// (OPERATION_NOT_ATTEMPTED) while the topic has reservations: their
	// objects could still appear.
	CompleteTask struct {
		ID          uint64
		Epoch       int32
		BrokerID    int32
		BrokerEpoch int64
	}
)

// ProducerIDBlock is the result data of AllocateProducerIDs: the ids
// [First, First+Count).
type ProducerIDBlock struct {
	First int64
	Count int32
}

func (b *ProducerIDBlock) fields(c *coder) {
	num(c, &b.First)
	num(c, &b.Count)
}

// DecodeProducerIDBlock reads the data of an AllocateProducerIDs result.
func DecodeProducerIDBlock(data []byte) (ProducerIDBlock, error) {
	var b ProducerIDBlock
	c := coder{reading: true, b: data}
	b.fields(&c)
	return b, c.err
}

// Entry is what the quorum's log holds at one index.
type Entry struct {
	TimeMs   int64 // the leader's time when it proposed
	Commands []Command
}

// entryFormat is the first byte of an entry.
const entryFormat = 1

// MaxCommands bounds the commands of one entry.
const MaxCommands = 10_000

// EncodeEntry frames an entry.
func EncodeEntry(e Entry) []byte {
	b := binary.AppendUvarint(nil, entryFormat)
	b = binary.AppendVarint(b, e.TimeMs)
	b = binary.AppendUvarint(b, uint64(len(e.Commands)))
	for _, cmd := range e.Commands {
		b = append(b, EncodeCommand(cmd)...)
	}
	return b
}

// DecodeEntry reads what EncodeEntry wrote.
func DecodeEntry(b []byte) (Entry, error) {
	var e Entry
	var format uint64
	c := coder{reading: true, b: b}
	c.present().uvarint(&format)
	num(c.present(), &e.TimeMs)
	n := c.present().length(0, MaxCommands)
	if c.err == nil && format != entryFormat {
		return e, fmt.Errorf("%w: entry of format %d", ErrUnsupported, format)
	}
	for range n {
		cmd, rest, err := cutCommand(c.b)
		if err != nil {
			return e, fmt.Errorf("command %d: %w", len(e.Commands), err)
		}
		e.Commands, c.b = append(e.Commands, cmd), rest
	}
	if c.err == nil && len(c.b) > 0 {
		c.fail("%d bytes after the last command", len(c.b))
	}
	return e, c.err
}

// EncodeCommand frames one command.
func EncodeCommand(cmd Command) []byte { return appendFramed(nil, cmd.commandKind(), cmd.fields) }

// DecodeCommand reads what EncodeCommand wrote. The command owns its memory.
func DecodeCommand(b []byte) (Command, error) {
	cmd, rest, err := cutCommand(b)
	if err == nil && len(rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after the command", ErrCorrupt, len(rest))
	}
	return cmd, err
}

func cutCommand(b []byte) (Command, []byte, error) {
	kind, body, rest, err := cutFramed(b)
	if err != nil {
		return nil, nil, err
	}
	cmd := newCommand(kind)
	if cmd == nil {
		return nil, nil, unknownKind("command", kind)
	}
	c := coder{reading: true, b: body}
	if cmd.fields(&c); c.err != nil {
		return nil, nil, fmt.Errorf("%T: %w", cmd, c.err)
	}
	return cmd, rest, nil
}
