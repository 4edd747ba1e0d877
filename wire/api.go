package wire

import "github.com/twmb/franz-go/pkg/kmsg"

// Role is which of a node's two faces a listener shows. Bits.
type Role uint8

// The roles of KRaft's process.roles.
const (
	Broker     Role = 1 << iota // client listeners
	Controller                  // the CONTROLLER listener
)

// Permission is what a request must be authorised for before its handler sees
// it. Finer checks (which topic, which group) are the handler's.
type Permission uint8

// Permissions.
const (
	Anyone          Permission = iota // allowed before authentication
	Authenticated                     // any principal; the handler checks resources
	ClusterAction                     // ClusterAction on the cluster: nodes of ours
	ClusterDescribe                   // Describe on the cluster
	ClusterAlter                      // Alter on the cluster: administrators
)

// API is one row of the table of what is served.
type API struct {
	Key      int16
	Name     string
	Min, Max int16 // versions served
	// AdvertiseMin is the lowest version told in ApiVersions: Min, but for Produce,
	// which librdkafka before 2.11.1 must see from 0 lest it sends uncompressed (KAFKA-18659).
	AdvertiseMin int16
	Roles        Role
	Need         Permission
	MaxFrame     int   // bytes of one request, 0: the listener's limit
	ThrottleFrom int16 // from this version on the client itself waits when throttled (KIP-219)

	// NewRequest makes an empty body to decode into; nil for Produce, which has its own codec.
	NewRequest func() kmsg.Request

	slot int // index in the table
}

// Frame caps. A decoded message may weigh 24 times (arrays) to 40 times
// (unknown tags) its frame, so all but record-carrying requests are kept small.
const (
	smallFrame = 64 << 10 // a handful of fields
	listFrame  = 1 << 20  // lists of topics, partitions, configs
)

// maxPreAuthFrame caps every frame until the connection is authenticated.
const maxPreAuthFrame = 64 << 10

const keyApiVersions int16 = 18

// apis is the one list. ApiVersions, version checks, frame caps and the
// permission of every request derive from it; a key that is not here is unknown.
var apis = []API{
	{Key: 0, Name: "Produce", Min: 3, Max: 13, AdvertiseMin: 0, Roles: Broker, Need: Authenticated, ThrottleFrom: 6},
	{Key: 1, Name: "Fetch", Min: 4, Max: 18, AdvertiseMin: 4, Roles: Broker, Need: Authenticated, ThrottleFrom: 8, MaxFrame: listFrame, NewRequest: body[kmsg.FetchRequest]},
	{Key: 2, Name: "ListOffsets", Min: 1, Max: 11, AdvertiseMin: 1, Roles: Broker, Need: Authenticated, ThrottleFrom: 3, MaxFrame: listFrame, NewRequest: body[kmsg.ListOffsetsRequest]},
	{Key: 3, Name: "Metadata", Min: 0, Max: 13, AdvertiseMin: 0, Roles: Broker, Need: Authenticated, ThrottleFrom: 6, MaxFrame: listFrame, NewRequest: body[kmsg.MetadataRequest]},
	{Key: 10, Name: "FindCoordinator", Min: 0, Max: 6, AdvertiseMin: 0, Roles: Broker, Need: Authenticated, ThrottleFrom: 2, MaxFrame: listFrame, NewRequest: body[kmsg.FindCoordinatorRequest]},
	{Key: 18, Name: "ApiVersions", Min: 0, Max: 5, AdvertiseMin: 0, Roles: Broker | Controller, Need: Anyone, ThrottleFrom: 2, MaxFrame: smallFrame, NewRequest: body[kmsg.ApiVersionsRequest]},
	{Key: 19, Name: "CreateTopics", Min: 2, Max: 7, AdvertiseMin: 2, Roles: Broker | Controller, Need: Authenticated, ThrottleFrom: 3, MaxFrame: listFrame, NewRequest: body[kmsg.CreateTopicsRequest]},
	{Key: 20, Name: "DeleteTopics", Min: 1, Max: 6, AdvertiseMin: 1, Roles: Broker | Controller, Need: Authenticated, ThrottleFrom: 2, MaxFrame: listFrame, NewRequest: body[kmsg.DeleteTopicsRequest]},
	{Key: 21, Name: "DeleteRecords", Min: 0, Max: 2, AdvertiseMin: 0, Roles: Broker, Need: Authenticated, ThrottleFrom: 1, MaxFrame: listFrame, NewRequest: body[kmsg.DeleteRecordsRequest]},
	{Key: 22, Name: "InitProducerId", Min: 0, Max: 5, AdvertiseMin: 0, Roles: Broker, Need: Authenticated, ThrottleFrom: 1, MaxFrame: smallFrame, NewRequest: body[kmsg.InitProducerIDRequest]},
	{Key: 23, Name: "OffsetForLeaderEpoch", Min: 2, Max: 4, AdvertiseMin: 2, Roles: Broker, Need: Authenticated, MaxFrame: listFrame, NewRequest: body[kmsg.OffsetForLeaderEpochRequest]},
	{Key: 32, Name: "DescribeConfigs", Min: 1, Max: 4, AdvertiseMin: 1, Roles: Broker, Need: Authenticated, ThrottleFrom: 2, MaxFrame: listFrame, NewRequest: body[kmsg.DescribeConfigsRequest]},
	{Key: 33, Name: "AlterConfigs", Min: 0, Max: 2, AdvertiseMin: 0, Roles: Broker | Controller, Need: Authenticated, ThrottleFrom: 1, MaxFrame: listFrame, NewRequest: body[kmsg.AlterConfigsRequest]},
	{Key: 35, Name: "DescribeLogDirs", Min: 1, Max: 5, AdvertiseMin: 1, Roles: Broker, Need: Authenticated, ThrottleFrom: 1, MaxFrame: listFrame, NewRequest: body[kmsg.DescribeLogDirsRequest]},
	{Key: 37, Name: "CreatePartitions", Min: 0, Max: 3, AdvertiseMin: 0, Roles: Broker | Controller, Need: Authenticated, ThrottleFrom: 1, MaxFrame: listFrame, NewRequest: body[kmsg.CreatePartitionsRequest]},
	{Key: 43, Name: "ElectLeaders", Min: 0, Max: 2, AdvertiseMin: 0, Roles: Broker | Controller, Need: ClusterAlter, MaxFrame: listFrame, NewRequest: body[kmsg.ElectLeadersRequest]},
	{Key: 44, Name: "IncrementalAlterConfigs", Min: 0, Max: 1, AdvertiseMin: 0, Roles: Broker | Controller, Need: Authenticated, MaxFrame: listFrame, NewRequest: body[kmsg.IncrementalAlterConfigsRequest]},
	{Key: 45, Name: "AlterPartitionReassignments", Min: 0, Max: 1, AdvertiseMin: 0, Roles: Broker | Controller, Need: ClusterAlter, MaxFrame: listFrame, NewRequest: body[kmsg.AlterPartitionAssignmentsRequest]},
	{Key: 46, Name: "ListPartitionReassignments", Min: 0, Max: 0, AdvertiseMin: 0, Roles: Broker | Controller, Need: ClusterDescribe, MaxFrame: listFrame, NewRequest: body[kmsg.ListPartitionReassignmentsRequest]},
	{Key: 55, Name: "DescribeQuorum", Min: 0, Max: 2, AdvertiseMin: 0, Roles: Broker | Controller, Need: ClusterDescribe, MaxFrame: smallFrame, NewRequest: body[kmsg.DescribeQuorumRequest]},
	{Key: 60, Name: "DescribeCluster", Min: 0, Max: 2, AdvertiseMin: 0, Roles: Broker | Controller, Need: Authenticated, MaxFrame: smallFrame, NewRequest: body[kmsg.DescribeClusterRequest]},
	{Key: 62, Name: "BrokerRegistration", Min: 0, Max: 4, AdvertiseMin: 0, Roles: Controller, Need: ClusterAction, MaxFrame: listFrame, NewRequest: body[kmsg.BrokerRegistrationRequest]},
	{Key: 63, Name: "BrokerHeartbeat", Min: 0, Max: 2, AdvertiseMin: 0, Roles: Controller, Need: ClusterAction, MaxFrame: listFrame, NewRequest: body[kmsg.BrokerHeartbeatRequest]},
	{Key: 64, Name: "UnregisterBroker", Min: 0, Max: 0, AdvertiseMin: 0, Roles: Broker | Controller, Need: ClusterAlter, MaxFrame: smallFrame, NewRequest: body[kmsg.UnregisterBrokerRequest]},
	{Key: 67, Name: "AllocateProducerIds", Min: 0, Max: 0, AdvertiseMin: 0, Roles: Controller, Need: ClusterAction, MaxFrame: smallFrame, NewRequest: body[kmsg.AllocateProducerIDsRequest]},
	{Key: 75, Name: "DescribeTopicPartitions", Min: 0, Max: 0, AdvertiseMin: 0, Roles: Broker, Need: Authenticated, MaxFrame: listFrame, NewRequest: body[kmsg.DescribeTopicPartitionsRequest]},
	{Key: 80, Name: "AddRaftVoter", Min: 0, Max: 1, AdvertiseMin: 0, Roles: Broker | Controller, Need: ClusterAlter, MaxFrame: smallFrame, NewRequest: body[kmsg.AddRaftVoterRequest]},
	{Key: 81, Name: "RemoveRaftVoter", Min: 0, Max: 0, AdvertiseMin: 0, Roles: Broker | Controller, Need: ClusterAlter, MaxFrame: smallFrame, NewRequest: body[kmsg.RemoveRaftVoterRequest]},
	{Key: KeyFetchMetadata, Name: "FetchMetadata", Min: 0, Max: 0, AdvertiseMin: 0, Roles: Controller, Need: ClusterAction, MaxFrame: smallFrame, NewRequest: body[FetchMetadataRequest]},
	{Key: KeySubmitCommands, Name: "SubmitCommands", Min: 0, Max: 0, AdvertiseMin: 0, Roles: Controller, Need: ClusterAction, MaxFrame: 16 << 20, NewRequest: body[SubmitCommandsRequest]},
	{Key: KeyIntroduce, Name: "Introduce", Min: 0, Max: 0, AdvertiseMin: 0, Roles: Controller, Need: ClusterAction, MaxFrame: smallFrame, NewRequest: body[IntroduceRequest]},
}

func init() {
	for i := range apis {
		apis[i].slot = i
	}
}

// body returns an empty request of type T with Kafka's defaults.
func body[T any, P interface {
	*T
	kmsg.Request
}]() kmsg.Request {
	p := P(new(T))
	if d, ok := kmsg.Request(p).(interface{ Default() }); ok {
		d.Default()
	}
	return p
}

// APIs returns what the given role serves, ascending by key.
func APIs(role Role) []API {
	var out []API
	for _, a := range apis {
		if a.Roles&role != 0 {
			out = append(out, a)
		}
	}
	return out
}

// LookupAPI finds the row of key if role serves it.
func LookupAPI(role Role, key int16) (*API, bool) {
	for i := range apis {
		if apis[i].Key == key {
			return &apis[i], apis[i].Roles&role != 0
		}
	}
	return nil, false
}
