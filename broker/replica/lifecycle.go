package replica

import (
	"context"
	"errors"
	"math"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/tier"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
	"github.com/varve-io/varve/wire/record"
)

// lifecycle opens, follows and deletes one partition. Its work may take as long as the disk or the store does, so it runs in the
// manager's opener, one task a partition at a time, always towards the latest row of the image.
type lifecycle struct {
	disk    atomic.Pointer[disk]
	stopped atomic.Bool // deleted, or the broker is shutting down

	mu      sync.Mutex
	target  *metadata.Partition // nil: delete it
	running bool
	again   bool
	waiting []func() // called once target was reached
}

func (c *lifecycle) syncs() *pool {
	if d := c.disk.Load(); d != nil {
		return &d.syncs
	}
	return &pool{closed: true}
}

// aim sets what the partition shall become and has it done. done is called when it is, or was tried.
func (p *Partition) aim(target *metadata.Partition, done func()) {
	c := &p.life
	c.mu.Lock()
	defer c.mu.Unlock()
	c.target = target
	c.waiting = append(c.waiting, done)
	if c.running {
		c.again = true
		return
	}
	c.running = p.m.opener.submit(p.reconcile)
	if !c.running {
		c.waiting = nil
		done()
	}
}

// reconcile works towards the target until it stands still.
func (p *Partition) reconcile() {
	c := &p.life
	for {
		c.mu.Lock()
		target := c.target
		c.again = false
		c.mu.Unlock()
		if target == nil {
			p.remove()
		} else {
			p.follow(target)
		}
		c.mu.Lock()
		if !c.again {
			c.running = false
			waiting := c.waiting
			c.waiting = nil
			c.mu.Unlock()
			for _, done := range waiting {
				done()
			}
			return
		}
		c.mu.Unlock()
	}
}

// follow brings the partition to where the image says it is.
func (p *Partition) follow(row *metadata.Partition) {
	if p.life.stopped.Load() {
		return
	}
	l := p.log.Load()
	if l == nil {
		if p.broken.Load() != nil {
			return
		}
		var err error
		if l, err = p.open(row); errors.Is(err, log.ErrOtherTopic) {
			// The topic of that name before is still on its way out.
			time.AfterFunc(rejoinPause, p.retarget)
			return
		} else if err != nil {
			p.broken.Store(&brokenLog{err})
			p.m.logger.Error("partition cannot be opened", "topic", p.topic, "partition", p.index, "error", err)
			return
		}
	}
	if row.Leader != p.m.cfg.NodeID {
		p.resign(row)
		p.startFollowing(l, row)
		return
	}
	lead := p.lead.Load()
	if lead == nil || !lead.here || lead.epoch != row.LeaderEpoch {
		p.becomeLeader(l, row, lead)
		return
	}
	p.setLead(newLeadership(row, true, lead.epochStart))
	p.followStart(l, row)
	if p.durable(p.lead.Load()) {
		p.wantSync(true)
	}
	p.advance()
}

// resign makes the partition one that another broker leads, or none.
func (p *Partition) resign(row *metadata.Partition) {
	p.setLead(newLeadership(row, false, -1))
	p.release(refuse(kerr.NotLeaderForPartition, "the leader of %s-%d is broker %d", p.topic, p.index, row.Leader))
}

// startFollowing has the partition fetched from its leader. A log without records begins where the store ends: what lies there need not
// cross the network again.
func (p *Partition) startFollowing(l *log.Log, row *metadata.Partition) {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	p.followStart(l, row)
	if p.m.cfg.Peer == nil || row.Leader == metadata.NoLeader {
		p.m.fetchers.remove(p)
		return
	}
	if remoteEnd, any := row.RemoteEnd.Offset(); any && (p.rejoins.Load() || l.Size() == 0 && l.EndOffset() < remoteEnd) {
		p.m.fetchers.remove(p)
		if err := p.startAtTier(l, row); err != nil {
			p.m.logger.Warn("replica waits for the store before it can follow", "topic", p.topic, "partition", p.index, "error", err)
			time.AfterFunc(rejoinPause, p.retarget)
			return
		}
	}
	p.rejoins.Store(false)
	p.m.fetchers.assign(p, p.lead.Load())
}

// becomeLeader begins a leader epoch. A log that does not reach the remote end, or the log start, has lost what others
// may have read, as has one in which other records stand before the remote end: the tier wins, and the log begins anew
// where that ends.
func (p *Partition) becomeLeader(l *log.Log, row *metadata.Partition, before *leadership) {
	p.m.fetchers.remove(p)
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if err := p.rejoinTier(l, row, before); err != nil {
		p.m.logger.Warn("partition waits for the store before it can be led", "topic", p.topic, "partition", p.index, "error", err)
		time.AfterFunc(rejoinPause, p.retarget)
		return
	}
	p.rejoins.Store(false)
	l.AssignEpoch(row.LeaderEpoch)
	p.setLead(newLeadership(row, true, l.EndOffset()))
	p.followStart(l, row)
	p.wantSync(true) // what recovery found may not be on the disk yet
	p.advance()
}

// rejoinPause is how long a partition that cannot be opened or led yet waits before it tries again.
const rejoinPause = 2 * time.Second

// retarget tries again to become what was wanted last.
func (p *Partition) retarget() {
	p.life.mu.Lock()
	target := p.life.target
	p.life.mu.Unlock()
	if target != nil && !p.life.stopped.Load() {
		p.aim(target, func() {})
	}
}

// rejoinTier starts the log anew at the remote end, or at the log start, if it ends below, or if it has left the lineage of the store.
func (p *Partition) rejoinTier(l *log.Log, row *metadata.Partition, before *leadership) error {
	remoteEnd, tiered := row.RemoteEnd.Offset()
	switch {
	case tiered && l.EndOffset() < remoteEnd:
		return p.startAtTier(l, row)
	case tiered && p.strays(l, row, remoteEnd, before):
		state, err := p.loadTier()
		if err != nil || sameLineage(l, state) {
			return err
		}
		return p.startAt(l, row, state)
	case l.EndOffset() < row.LogStart:
		p.m.logger.Warn("log ends below the log start and begins anew there", "topic", p.topic, "partition", p.index,
			"end", l.EndOffset(), "logStart", row.LogStart)
		return p.restart(l, row.LogStart, nil, l.ActiveProducers())
	}
	return nil
}

// strays tells whether the log may hold other records than the store before the remote end: only a leader that was elected although
// it was not in sync can, which leaves him alone in the ISR. The same epoch at the same offset is the same record.
func (p *Partition) strays(l *log.Log, row *metadata.Partition, remoteEnd int64, before *leadership) bool {
	if len(row.Replicas) < 2 || len(row.ISR) > 1 || remoteEnd == 0 {
		return false
	}
	if me := p.m.cfg.NodeID; before != nil && (slices.Contains(before.row.ISR, me) || slices.Contains(before.row.ELR, me)) {
		return false
	}
	last := p.m.Image().LastSegment(p.id, p.index)
	return last == nil || l.EpochForOffset(remoteEnd-1) != last.Epoch
}

// sameLineage compares the epochs of the last object with those of the log, as far as both know them.
func sameLineage(l *log.Log, state tier.State) bool {
	for i, e := range state.Epochs {
		end := state.End
		if i+1 < len(state.Epochs) {
			end = state.Epochs[i+1].StartOffset
		}
		if l.EpochForOffset(end-1) != e.Epoch && end > l.LocalStart() {
			return false
		}
	}
	return true
}

// startAtTier begins the log anew at the remote end.
func (p *Partition) startAtTier(l *log.Log, row *metadata.Partition) error {
	state, err := p.loadTier()
	if err != nil {
		return err
	}
	return p.startAt(l, row, state)
}

func (p *Partition) loadTier() (tier.State, error) {
	if p.m.tier == nil {
		return tier.State{}, errors.New("its newest records are only in the store, and varve.store.url is not set")
	}
	return p.m.tier.LoadState(p.m.life, p.id, p.index)
}

func (p *Partition) startAt(l *log.Log, row *metadata.Partition, state tier.State) error {
	start := max(state.End, row.LogStart)
	p.m.logger.Warn("log begins anew at the remote end", "topic", p.topic, "partition", p.index, "end", l.EndOffset(), "remoteEnd", start)
	return p.restart(l, start, state.Epochs, state.Producers)
}

func (p *Partition) restart(l *log.Log, at int64, epochs []record.EpochStart, producers []record.ProducerEntry) error {
	if err := l.TruncateFullyAndStartAt(at, epochs, producers); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hw.Store(at)
	l.SetHighWatermark(at)
	p.mu.marks.marks = p.mu.marks.marks[:0]
	return nil
}

// followStart raises the log start to what the controller has committed. The local start follows by maintenance. What a crash has
// kept from being noted is made up for: nothing lies before the first local segment of a partition that has nothing in the store.
func (p *Partition) followStart(l *log.Log, row *metadata.Partition) {
	start := row.LogStart
	if local := l.LocalStart(); row.RemoteEnd == metadata.RemoteNone && local > max(start, l.LogStart()) {
		p.m.logger.Warn("there is nothing before the first local segment: the log start advances", "topic", p.topic, "partition", p.index,
			"from", max(start, l.LogStart()), "to", local)
		start = local
	}
	if start <= l.LogStart() {
		return
	}
	if err := l.SetLogStart(min(start, l.EndOffset())); err != nil {
		p.m.logger.Warn("log start cannot follow", "topic", p.topic, "partition", p.index, "logStart", start, "error", err)
	}
}

// open opens the partition's log: the one found at start, or a new one in the directory that the image names or that has
// the fewest.
func (p *Partition) open(row *metadata.Partition) (*log.Log, error) {
	key := metadata.PartitionKey{TopicID: p.id, Partition: p.index}
	m := p.m
	m.mu.Lock()
	found, ok := m.found[key]
	m.mu.Unlock()
	d, dir := found.disk, found.dir.Path
	if !ok {
		var err error
		if d, err = m.place(row); err != nil {
			return nil, err
		}
		dir = path.Join(d.Path(), log.TopicPartition{Topic: p.topic, Partition: p.index}.String())
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	tp := log.TopicPartition{Topic: p.topic, Partition: p.index}
	options := log.Options{
		FS: m.cfg.FS, Dir: dir, Topic: p.topic, TopicID: p.id, Partition: p.index, Config: p.m.logConfig(p.config.Load()), LogDir: d.Dir,
		Clean: ok && d.Clean(), PageCacheSurvived: d.PageCacheSurvived(), LogStart: row.LogStart, Logger: m.logger, Metrics: m.cfg.LogMetrics,
	}
	if ok {
		options.RecoveryPoint = d.RecoveryPoint(tp)
		options.LogStart = max(row.LogStart, d.LogStart(tp))
	}
	l, err := log.Open(options)
	if errors.Is(err, log.ErrCorrupt) && len(row.Replicas) < 2 {
		// With no other copy what is whole is still worth reading.
		m.logger.Error("log is corrupt and has no other replica: open for reading up to the damage", "topic", p.topic, "partition", p.index, "error", err)
		options.AcceptDamage = true
		l, err = log.Open(options)
	}
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	delete(m.found, key)
	m.mu.Unlock()
	d.count.Add(1)
	p.life.disk.Store(d)
	p.hw.Store(min(max(0, d.HighWatermark(tp)), l.EndOffset()))
	p.hw.Store(max(p.hw.Load(), l.LogStart()))
	p.log.Store(l)
	return l, nil
}

// place picks the directory of a new replica.
func (m *Manager) place(row *metadata.Partition) (*disk, error) {
	var best *disk
	for i, id := range row.Replicas {
		if id != m.cfg.NodeID || i >= len(row.Dirs) || row.Dirs[i].IsZero() {
			continue
		}
		for _, d := range m.disks {
			if d.ID() == row.Dirs[i] {
				return d, d.Err()
			}
		}
	}
	for _, d := range m.disks {
		if d.Err() == nil && (best == nil || d.count.Load() < best.count.Load()) {
			best = d
		}
	}
	if best == nil {
		return nil, errors.New("every log directory is offline")
	}
	return best, nil
}

// remove deletes the partition from the disk.
func (p *Partition) remove() {
	p.life.stopped.Store(true)
	p.m.fetchers.remove(p)
	p.setLead(nil)
	p.release(refuse(kerr.UnknownTopicOrPartition, "%s-%d was deleted", p.topic, p.index))
	l := p.log.Swap(nil)
	if l == nil {
		p.m.setAsideUnopened(metadata.PartitionKey{TopicID: p.id, Partition: p.index})
		return
	}
	if d := p.life.disk.Load(); d != nil {
		d.count.Add(-1)
	}
	if err := l.Delete(); err != nil {
		p.m.logger.Warn("partition cannot be deleted from the disk", "topic", p.topic, "partition", p.index, "error", err)
	}
}

// maxMs is the longest time that a time.Duration can tell, in ms.
const maxMs = math.MaxInt64 / int64(time.Millisecond)

// logConfig is what of a topic's configuration, and of the broker's, concerns its logs.
func (m *Manager) logConfig(c *config.Topic) log.Config {
	out := log.Config{
		SegmentBytes: c.SegmentBytes, SegmentMs: min(c.SegmentMs, maxMs), SegmentJitterMs: min(c.SegmentJitterMs, maxMs),
		IndexIntervalBytes: c.IndexIntervalBytes, SegmentIndexBytes: c.SegmentIndexBytes, MaxMessageBytes: c.MaxMessageBytes,
		LogAppendTime: c.LogAppendTime, TimestampBeforeMaxMs: c.TimestampBeforeMaxMs, TimestampAfterMaxMs: c.TimestampAfterMaxMs,
		Compact: c.CleanupCompact, ProducerIDExpirationMs: m.cfg.ProducerIDExpiration.Milliseconds(),
	}
	codec, err := record.ParseCodec(c.CompressionType)
	out.Compression, out.KeepCompression = codec, err != nil // "producer" names no codec
	return out
}

// Open lists what is on the disks. The logs themselves are opened by the first Apply, which knows their configuration.
func (m *Manager) Open(context.Context) error {
	for _, d := range m.disks {
		list, err := d.Partitions()
		if err != nil {
			return err
		}
		for _, dir := range list {
			m.found[metadata.PartitionKey{TopicID: dir.TopicID, Partition: dir.Partition}] = foundLog{d, dir}
		}
	}
	return nil
}

// Apply carries out what changed. It is called with one delta after the other, the first being the difference to an empty
// image, and returns when the logs of new partitions are open, for openWait at most (the first: without bound).
func (m *Manager) Apply(d *metadata.Delta) {
	img := d.New
	var todo []*Partition
	var gone []*Partition
	placed := false // a replica came to this broker
	m.mu.Lock()
	first := !m.opened
	m.opened = true
	for _, id := range d.Topics {
		if img.TopicByID(id) == nil {
			gone = append(gone, m.dropTopic(id)...)
		}
	}
	changed := partitionsOf(d)
	for _, key := range changed {
		row := img.Partition(key.TopicID, key.Partition)
		switch p := m.partitions[key]; {
		case row == nil || !holds(row, m.cfg.NodeID):
			if p != nil {
				delete(m.partitions, key)
				gone = append(gone, p)
			}
		case p == nil:
			p = m.newPartition(img, row)
			m.partitions[key] = p
			todo, placed = append(todo, p), true
		default:
			todo = append(todo, p)
		}
	}
	m.mu.Unlock()
	// Configurations before leaderships: what a partition does next must obey them.
	m.applyConfigs(d)
	m.image.Store(img)
	if first {
		m.sortFound(img)
	}
	// What goes, goes first: a topic of the same name may come.
	m.carryOut(gone, func(*Partition) *metadata.Partition { return nil }, false)
	m.carryOut(todo, func(p *Partition) *metadata.Partition { return img.Partition(p.id, p.index) }, first)
	if first {
		m.recovered()
	}
	if placed {
		m.assignDirs()
	}
	if m.asked(d, changed) {
		m.reportEnds()
	}
	for _, key := range d.Segments {
		if p := m.lookup(key.TopicID, key.Partition); p != nil {
			p.kick()
		}
	}
}

// partitionsOf are the partitions named by the delta, those of new topics among them.
func partitionsOf(d *metadata.Delta) []metadata.PartitionKey {
	keys := d.Partitions
	seen := make(map[metadata.PartitionKey]bool, len(keys))
	for _, k := range keys {
		seen[k] = true
	}
	for _, id := range d.Topics {
		for row := range d.New.Partitions(id) {
			if k := (metadata.PartitionKey{TopicID: id, Partition: row.Index}); !seen[k] {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

func holds(row *metadata.Partition, node int32) bool {
	for _, r := range row.Replicas {
		if r == node {
			return true
		}
	}
	return false
}

// dropTopic takes the partitions of a topic out of the map. The caller holds m.mu.
func (m *Manager) dropTopic(id wire.UUID) (gone []*Partition) {
	for key, p := range m.partitions {
		if key.TopicID == id {
			delete(m.partitions, key)
			gone = append(gone, p)
		}
	}
	return gone
}

func (m *Manager) newPartition(img *metadata.Image, row *metadata.Partition) *Partition {
	topic := img.TopicByID(row.TopicID)
	p := &Partition{m: m, topic: topic.Name, id: row.TopicID, index: row.Index, turn: make(chan struct{}, 1)}
	p.configure(img, topic)
	return p
}

// configure reads the topic's configuration. One that this version cannot read leaves the old one in force.
func (p *Partition) configure(img *metadata.Image, topic *metadata.Topic) {
	c, err := img.TopicConfig(topic, p.m.cfg.NodeID, p.m.cfg.Static)
	if err != nil {
		p.m.logger.Error("configuration of a topic is invalid", "topic", topic.Name, "error", err)
		if p.config.Load() != nil {
			return
		}
	}
	p.config.Store(&c)
	if l := p.log.Load(); l != nil {
		l.SetConfig(p.m.logConfig(&c))
	}
}

func (m *Manager) applyConfigs(d *metadata.Delta) {
	topics := map[wire.UUID]bool{}
	everything := false
	for _, key := range d.Configs {
		switch key.Type {
		case metadata.ResourceBroker:
			everything = true
		case metadata.ResourceTopic:
			if t := d.New.Topic(key.Name); t != nil {
				topics[t.ID] = true
			}
		}
	}
	if !everything && len(topics) == 0 {
		return
	}
	for _, p := range m.list() {
		if t := d.New.TopicByID(p.id); t != nil && (everything || topics[p.id]) {
			p.configure(d.New, t)
			p.kick()
		}
	}
}

// carryOut aims the partitions and waits for openWait, or without bound.
func (m *Manager) carryOut(list []*Partition, target func(*Partition) *metadata.Partition, unbounded bool) {
	if len(list) == 0 {
		return
	}
	var pending sync.WaitGroup
	for _, p := range list {
		pending.Add(1)
		p.aim(target(p), pending.Done)
	}
	done := make(chan struct{})
	go func() { pending.Wait(); close(done) }()
	if unbounded {
		<-done
		return
	}
	timer := time.NewTimer(openWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		m.logger.Warn("log directories are slow: metadata goes on before all partitions are open or deleted")
	}
}

// sortFound claims the directories found at start for the partitions of the image, and sets the others aside. A directory without a
// topic id, as early versions of Kafka wrote it, goes by its name.
func (m *Manager) sortFound(img *metadata.Image) {
	m.mu.Lock()
	strays := map[metadata.PartitionKey]foundLog{}
	for key, f := range m.found {
		claim := key
		if t := img.Topic(f.dir.Topic); key.TopicID.IsZero() && t != nil {
			claim.TopicID = t.ID
		}
		_, taken := m.found[claim]
		switch {
		case m.partitions[claim] == nil, claim != key && taken:
			strays[key] = f
			delete(m.found, key)
		case claim != key:
			delete(m.found, key)
			m.found[claim] = f
		}
	}
	m.mu.Unlock()
	for key, f := range strays {
		m.setAside(key, f)
	}
}

// recovered is called when all logs of the start are open, as far as they can be. A directory with one that cannot is not
// recovered: whatever kept it from being opened may pass, and it must be looked through then.
func (m *Manager) recovered() {
	m.mu.Lock()
	unopened := map[*disk]bool{}
	for _, f := range m.found {
		unopened[f.disk] = true
	}
	m.mu.Unlock()
	for _, d := range m.disks {
		if d.Err() != nil || unopened[d] {
			continue
		}
		if err := d.Recovered(); err != nil {
			m.logger.Warn("log directory cannot note that it is recovered", "path", d.Path(), "error", err)
		}
	}
}

// strayed marks directories of partitions that the image does not place here. They get another name rather than being
// deleted: should the image be wrong, the records are still there.
const strayed = "-stray"

// setAsideUnopened makes room for a topic of the same name, where a log that could not be opened is to be deleted.
func (m *Manager) setAsideUnopened(key metadata.PartitionKey) {
	m.mu.Lock()
	f, ok := m.found[key]
	delete(m.found, key)
	m.mu.Unlock()
	if ok {
		m.setAside(key, f)
	}
}

func (m *Manager) setAside(key metadata.PartitionKey, s foundLog) {
	aside := path.Join(s.disk.Path(), s.dir.TopicPartition.String()+"."+key.TopicID.String()+strayed)
	if err := m.cfg.FS.Rename(s.dir.Path, aside); err != nil {
		m.logger.Warn("stray partition directory cannot be set aside", "path", s.dir.Path, "error", err)
		return
	}
	m.logger.Warn("partition is not in the cluster's metadata or not on this broker, its directory is set aside; remove it by hand",
		"path", aside, "topic", s.dir.Topic, "partition", s.dir.Partition)
}
