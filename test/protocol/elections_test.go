package protocol

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Elections and reassignments reach the controller through any broker, in every version.
func TestElectionsAndReassignments(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.create("t", 1)
	for v := int16(0); v <= 2; v++ {
		req := kmsg.NewPtrElectLeadersRequest()
		req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{0, 1}}}
		resp := do[*kmsg.ElectLeadersResponse](c, v, req)
		if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 2 ||
			resp.Topics[0].Partitions[0].ErrorCode != kerr.ElectionNotNeeded.Code || resp.Topics[0].Partitions[1].ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("v%d: %+v", v, resp)
		}
		req.Topics = nil // all that need one: none
		if resp := do[*kmsg.ElectLeadersResponse](c, v, req); resp.ErrorCode != 0 || len(resp.Topics) != 0 {
			t.Errorf("v%d: %+v", v, resp)
		}
		if req.ElectionType = 9; v > 0 {
			if resp := do[*kmsg.ElectLeadersResponse](c, v, req); resp.ErrorCode != kerr.InvalidRequest.Code {
				t.Errorf("v%d: %+v", v, resp)
			}
		}
	}
	for v := int16(0); v <= 1; v++ {
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		ask := func(replicas []int32) *kerr.Error {
			req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "t", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Replicas: replicas}}}}
			resp := do[*kmsg.AlterPartitionAssignmentsResponse](c, v, req)
			if resp.ErrorCode != 0 {
				t.Fatalf("v%d: %+v", v, resp)
			}
			return kerr.TypedErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
		}
		replicas := c.metadata(9, "t").Topics[0].Partitions[0].Replicas
		if got := ask(replicas); got != nil {
			t.Errorf("v%d: as it is: %v", v, got)
		}
		if got := ask([]int32{}); got != kerr.InvalidReplicaAssignment {
			t.Errorf("v%d: to nobody: %v", v, got)
		}
		if got := ask(nil); got != kerr.NoReassignmentInProgress {
			t.Errorf("v%d: cancelled: %v", v, got)
		}
		if got := ask([]int32{replicas[0], 77}); got != kerr.InvalidReplicaAssignment {
			t.Errorf("v%d: to a broker that is not there: %v", v, got)
		}
	}
	list := kmsg.NewPtrListPartitionReassignmentsRequest()
	if resp := do[*kmsg.ListPartitionReassignmentsResponse](c, 0, list); resp.ErrorCode != 0 || len(resp.Topics) != 0 {
		t.Errorf("%+v", resp)
	}
	forget := kmsg.NewPtrUnregisterBrokerRequest()
	forget.BrokerID = 77
	if resp := do[*kmsg.UnregisterBrokerResponse](c, 0, forget); resp.ErrorCode != kerr.BrokerIDNotRegistered.Code || resp.ErrorMessage == nil {
		t.Errorf("%+v", resp)
	}
}
