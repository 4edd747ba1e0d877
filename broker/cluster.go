package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
)

// Kinds of endpoints of DescribeCluster (KIP-919).
const (
	brokerEndpoints     = 1
	controllerEndpoints = 2
)

// describeCluster answers DescribeCluster.
func (h *handler) describeCluster(r *wire.Request, req *kmsg.DescribeClusterRequest) {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.EndpointType = brokerEndpoints
	if r.Version >= 1 && req.EndpointType != brokerEndpoints {
		err := fmt.Errorf("endpoint type %d: %w", req.EndpointType, kerr.UnsupportedEndpointType)
		if req.EndpointType == controllerEndpoints {
			err = fmt.Errorf("this listener is a broker's: %w", kerr.MismatchedEndpointType)
		}
		resp.EndpointType, resp.ErrorCode, resp.ErrorMessage = req.EndpointType, code(err), message(err)
		r.Reply(resp)
		return
	}
	view := h.view(r.Version)
	resp.ClusterID = view.img.ClusterID()
	resp.ControllerID = view.anyBroker()
	for b := range view.img.Brokers() {
		l, ok := b.Listener(h.listener)
		if !ok || b.Fenced && !req.IncludeFencedBrokers {
			continue
		}
		resp.Brokers = append(resp.Brokers, kmsg.DescribeClusterResponseBroker{NodeID: b.ID, Host: l.Host, Port: l.Port, Rack: rack(b), IsFenced: b.Fenced})
	}
	resp.ClusterAuthorizedOperations = -2147483648
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	r.Reply(resp)
}

// Kinds of keys of FindCoordinator.
const (
	groupCoordinator       = 0
	transactionCoordinator = 1
)

// findCoordinator answers that there is none, and as in Kafka the first question
// for a group's has the topic of offsets created. librdkafka asks even when it only
// reads assigned partitions, and before 2.11.1 does not compress with lz4 unless
// the API is there from version 0.
func (h *handler) findCoordinator(r *wire.Request, req *kmsg.FindCoordinatorRequest) {
	err := fmt.Errorf("no coordinators are served: %w", kerr.CoordinatorNotAvailable)
	if req.CoordinatorType != groupCoordinator {
		what := "transactions are"
		if req.CoordinatorType != transactionCoordinator {
			what = fmt.Sprintf("coordinator type %d is", req.CoordinatorType)
		}
		err = fmt.Errorf("%s not served: %w", what, kerr.InvalidRequest)
	}
	if req.CoordinatorType == groupCoordinator && h.follower.Image().Topic(offsetsTopic) == nil {
		h.creating.start([]string{offsetsTopic})
	}
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.NodeID, resp.Port = -1, -1
	if r.Version < 4 {
		resp.ErrorCode, resp.ErrorMessage = code(err), message(err)
	}
	for _, k := range req.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, kmsg.FindCoordinatorResponseCoordinator{
			Key: k, NodeID: -1, Port: -1, ErrorCode: code(err), ErrorMessage: message(err)})
	}
	r.Reply(resp)
}
