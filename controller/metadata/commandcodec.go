package metadata

// The numbers of commands in the quorum's log; they never change meaning.
func (*FormCluster) commandKind() uint64         { return 1 }
func (*SetFeature) commandKind() uint64          { return 2 }
func (*RegisterBroker) commandKind() uint64      { return 10 }
func (*FenceBroker) commandKind() uint64         { return 11 }
func (*UnfenceBroker) commandKind() uint64       { return 12 }
func (*ShutdownBroker) commandKind() uint64      { return 13 }
func (*UnregisterBroker) commandKind() uint64    { return 14 }
func (*AssignDirs) commandKind() uint64          { return 15 }
func (*AllocateProducerIDs) commandKind() uint64 { return 16 }
func (*FailDirs) commandKind() uint64            { return 17 }
func (*CreateTopic) commandKind() uint64         { return 20 }
func (*DeleteTopic) commandKind() uint64         { return 21 }
func (*CreatePartitions) commandKind() uint64    { return 22 }
func (*AlterConfig) commandKind() uint64         { return 23 }
func (*AlterPartition) commandKind() uint64      { return 24 }
func (*ReportEnd) commandKind() uint64           { return 25 }
func (*ElectLeader) commandKind() uint64         { return 26 }
func (*AlterReassignment) commandKind() uint64   { return 27 }
func (*ReserveObject) commandKind() uint64       { return 30 }
func (*CommitSegment) commandKind() uint64       { return 31 }
func (*ReleaseReservation) commandKind() uint64  { return 32 }
func (*AdvanceLogStart) commandKind() uint64     { return 33 }
func (*DeleteSegmentsUpTo) commandKind() uint64  { return 34 }
func (*ForgetSegments) commandKind() uint64      { return 35 }
func (*ExpireReservations) commandKind() uint64  { return 36 }
func (*CompleteTask) commandKind() uint64        { return 37 }

func newCommand(kind uint64) Command {
	switch kind {
	case 1:
		return new(FormCluster)
	case 2:
		return new(SetFeature)
	case 10:
		return new(RegisterBroker)
	case 11:
		return new(FenceBroker)
	case 12:
		return new(UnfenceBroker)
	case 13:
		return new(ShutdownBroker)
	case 14:
		return new(UnregisterBroker)
	case 15:
		return new(AssignDirs)
	case 16:
		return new(AllocateProducerIDs)
	case 17:
		return new(FailDirs)
	case 20:
		return new(CreateTopic)
	case 21:
		return new(DeleteTopic)
	case 22:
		return new(CreatePartitions)
	case 23:
		return new(AlterConfig)
	case 24:
		return new(AlterPartition)
	case 25:
		return new(ReportEnd)
	case 26:
		return new(ElectLeader)
	case 27:
		return new(AlterReassignment)
	case 30:
		return new(ReserveObject)
	case 31:
		return new(CommitSegment)
	case 32:
		return new(ReleaseReservation)
	case 33:
		return new(AdvanceLogStart)
	case 34:
		return new(DeleteSegmentsUpTo)
	case 35:
		return new(ForgetSegments)
	case 36:
		return new(ExpireReservations)
	case 37:
		return new(CompleteTask)
	}
	return nil
}

func (x *FormCluster) fields(c *coder) {
	c.string(&x.ClusterID)
	list(c, &x.Features, func(c *coder, f *Feature) { c.nested(f.fields) })
}

func (x *SetFeature) fields(c *coder) { x.Feature.fields(c) }

func (x *RegisterBroker) fields(c *coder) {
	num(c, &x.ID)
	c.string(&x.ClusterID)
	c.uuid(&x.Incarnation)
	c.string(&x.Rack)
	list(c, &x.Listeners, listener)
	list(c, &x.LogDirs, uuid)
	num(c, &x.PreviousEpoch)
}

func brokerAndEpoch(c *coder, id *int32, epoch *int64) {
	num(c, id)
	num(c, epoch)
}

func (x *FenceBroker) fields(c *coder)      { brokerAndEpoch(c, &x.ID, &x.Epoch) }
func (x *UnfenceBroker) fields(c *coder)    { brokerAndEpoch(c, &x.ID, &x.Epoch) }
func (x *ShutdownBroker) fields(c *coder)   { brokerAndEpoch(c, &x.ID, &x.Epoch) }
func (x *UnregisterBroker) fields(c *coder) { num(c, &x.ID) }

func (x *AssignDirs) fields(c *coder) {
	brokerAndEpoch(c, &x.BrokerID, &x.BrokerEpoch)
	list(c, &x.Dirs, func(c *coder, d *DirAssignment) {
		c.nested(func(c *coder) {
			c.uuid(&d.TopicID)
			num(c, &d.Partition)
			c.uuid(&d.Dir)
		})
	})
}

func (x *FailDirs) fields(c *coder) {
	brokerAndEpoch(c, &x.ID, &x.Epoch)
	list(c, &x.Dirs, uuid)
}

func (x *AllocateProducerIDs) fields(c *coder) {
	brokerAndEpoch(c, &x.BrokerID, &x.BrokerEpoch)
	num(c, &x.Count)
}

// assignments codes the replicas of each partition.
func assignments(c *coder, v *[][]int32) {
	list(c, v, func(c *coder, replicas *[]int32) { list(c, replicas, number32) })
}

func (x *CreateTopic) fields(c *coder) {
	c.uuid(&x.ID)
	c.string(&x.Name)
	assignments(c, &x.Assignments)
	c.strings(&x.Configs)
	c.string(&x.Durability)
	num(c, &x.MinInSync)
}

func (x *DeleteTopic) fields(c *coder) { c.uuid(&x.ID) }

func (x *CreatePartitions) fields(c *coder) {
	c.uuid(&x.TopicID)
	num(c, &x.Existing)
	assignments(c, &x.Assignments)
}

func (x *AlterConfig) fields(c *coder) {
	num(c, &x.Type)
	c.string(&x.Name)
	c.uvarint(&x.Version)
	c.strings(&x.Entries)
}

func (x *AlterPartition) fields(c *coder) {
	brokerAndEpoch(c, &x.BrokerID, &x.BrokerEpoch)
	c.uuid(&x.TopicID)
	num(c, &x.Partition)
	num(c, &x.LeaderEpoch)
	num(c, &x.PartitionEpoch)
	list(c, &x.ISR, func(c *coder, m *ISRMember) {
		c.nested(func(c *coder) { brokerAndEpoch(c, &m.BrokerID, &m.BrokerEpoch) })
	})
}

func (x *ReportEnd) fields(c *coder) {
	brokerAndEpoch(c, &x.BrokerID, &x.BrokerEpoch)
	c.uuid(&x.TopicID)
	num(c, &x.Partition)
	num(c, &x.LastEpoch)
	num(c, &x.End)
}

func (x *ElectLeader) fields(c *coder) {
	c.uuid(&x.TopicID)
	num(c, &x.Partition)
	c.bool(&x.Unclean)
}

func (x *AlterReassignment) fields(c *coder) {
	c.uuid(&x.TopicID)
	num(c, &x.Partition)
	list(c, &x.Target, number32)
	c.bool(&x.Cancel)
	c.bool(&x.KeepFactor)
}

func (x *ReserveObject) fields(c *coder) {
	brokerAndEpoch(c, &x.BrokerID, &x.BrokerEpoch)
	c.uuid(&x.TopicID)
	num(c, &x.Partition)
	num(c, &x.LeaderEpoch)
	c.uuid(&x.Object)
	num(c, &x.LifetimeMs)
}

func (x *CommitSegment) fields(c *coder) {
	brokerAndEpoch(c, &x.BrokerID, &x.BrokerEpoch)
	c.nested(x.Segment.fields)
}

func (x *ReleaseReservation) fields(c *coder) { c.uuid(&x.Object) }

func (x *AdvanceLogStart) fields(c *coder) {
	brokerAndEpoch(c, &x.BrokerID, &x.BrokerEpoch)
	c.uuid(&x.TopicID)
	num(c, &x.Partition)
	num(c, &x.LeaderEpoch)
	num(c, &x.LogStart)
}

func (x *DeleteSegmentsUpTo) fields(c *coder) {
	brokerAndEpoch(c, &x.BrokerID, &x.BrokerEpoch)
	c.uuid(&x.TopicID)
	num(c, &x.Partition)
	num(c, &x.LeaderEpoch)
	num(c, &x.UpTo)
}

func (x *ForgetSegments) fields(c *coder) {
	brokerAndEpoch(c, &x.BrokerID, &x.BrokerEpoch)
	c.uuid(&x.TopicID)
	num(c, &x.Partition)
	num(c, &x.LeaderEpoch)
	list(c, &x.Objects, uuid)
}

func (x *ExpireReservations) fields(*coder) {}

func (x *CompleteTask) fields(c *coder) {
	c.uvarint(&x.ID)
	num(c, &x.Epoch)
	brokerAndEpoch(c, &x.BrokerID, &x.BrokerEpoch)
}
