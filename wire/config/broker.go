package config

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Broker is what a node runs with, broker and controller alike.
type Broker struct {
	NodeID       int32
	ClusterID    string // "": as the log directories say, or made when they are formatted
	Rack         string
	IsBroker     bool
	IsController bool

	Listeners           []Listener // client listeners
	ControllerListeners []Listener
	Advertised          []Listener // Host "" where listeners has no address: the caller knows its host's name
	Voters              []Voter    // controllers; Port 0 and Host as listened on for a lone node

	LogDirs     []string // the first holds the metadata log too, unless MetadataDir
	MetadataDir string

	NumPartitions     int
	ReplicationFactor int
	AutoCreateTopics  bool
	DeleteTopics      bool

	Net         Net
	Fetch       Fetch
	Replication Replication
	Log         Log
	Session     Session
	Balance     Balance
	Store       Store
	Tier        Tier

	AdminListener   string // host:port, "": none
	LogFormat       string // "text" or "json"
	LogLevel        string // "debug", "info", "warn", "error"
	ShutdownTimeout time.Duration
}

// Net bounds the wire.
type Net struct {
	MaxRequestBytes        int
	SendBuffer, RecvBuffer int // bytes; -1: the system's default
	IdleTimeout            time.Duration
	MaxConnections         int
	MaxConnectionsPerIP    int
	RequestMemory          int64 // bytes of requests in flight; -1: the server's default
}

// Fetch bounds reads.
type Fetch struct {
	MaxBytes             int
	MaxSessions          int
	MaxRequestPartitions int
	ListOffsetsTimeout   time.Duration
}

// Replication is how a broker follows others, and how it judges who follows it.
type Replication struct {
	Listener      string        // of other brokers that is dialled; "": the first plaintext one of each
	LagTime       time.Duration // behind for longer is out of sync
	Fetchers      int           // connections to each leader
	FetchBytes    int           // of one partition in one answer
	ResponseBytes int
	MinBytes      int
	FetchWait     time.Duration // how long a leader may hold a fetch
	Backoff       time.Duration // after a failure
	SocketTimeout time.Duration
	RackAware     bool // consumers are sent to a replica in their rack (KIP-392)
}

// Log is the upkeep of local logs.
type Log struct {
	RetentionCheckInterval time.Duration
	ProducerIDExpiration   time.Duration
	ReserveBytes           int64
	WriteTimeout           time.Duration
}

// Session is how a broker lives with its controller, and the controllers with
// each other.
type Session struct {
	Heartbeat              time.Duration
	Timeout                time.Duration
	RequestTimeout         time.Duration
	ControllerWriteTimeout time.Duration
	ElectionTimeout        time.Duration // of the controllers
}

// Balance is how the controller brings leaderships back to preferred replicas.
type Balance struct {
	Interval time.Duration // 0: never
	Percent  int           // of the partitions that a broker is preferred for may be led by others
}

// Store says where the object store is. An empty URL is none.
type Store struct {
	URL              string
	Endpoint         string
	Region           string
	PathStyle        bool
	Checksum         string // "crc32c" or "none"
	AccessKeyFile    string // empty: the AWS default chain
	SecretKeyFile    string
	SessionTokenFile string
	Concurrency      int
	Retries          int
	Timeout          time.Duration
}

// Tier is how sealed segments move and are read back.
type Tier struct {
	MaxLag            time.Duration
	Reservation       time.Duration
	DeleteGrace       time.Duration
	Interval          time.Duration // between looks for work
	CacheDir          string
	CacheBytes        int64
	IndexCacheBytes   int64
	ChunkBytes        int
	ReadAheadBytes    int64
	ReadMemoryBytes   int64
	UploadConcurrency int
	UploadRate        int64 // bytes a second
	ReadRate          int64
}

// ForBroker turns server.properties into typed values and checks the rules
// between them. Unknown names are no error (Unknown).
func ForBroker(static map[string]string) (Broker, error) {
	b, _, err := readBroker(static)
	return b, err
}

func readBroker(static map[string]string) (Broker, map[string]bool, error) {
	r := newReader(BrokerScope, Layers{Static: static})
	b := Broker{
		NodeID:            int32(r.nodeID()),
		ClusterID:         r.str("varve.cluster.id"),
		Rack:              r.str("broker.rack"),
		NumPartitions:     r.int("num.partitions"),
		ReplicationFactor: r.int("default.replication.factor"),
		AutoCreateTopics:  r.bool("auto.create.topics.enable"),
		DeleteTopics:      r.bool("delete.topic.enable"),
		Net:               r.net(),
		Fetch:             r.fetch(),
		Replication:       r.replication(),
		Log:               r.log(),
		Session:           r.session(),
		Balance:           r.balance(),
		Store:             r.store(),
		AdminListener:     r.str("varve.admin.listener"),
		LogFormat:         r.str("varve.log.format"),
		LogLevel:          r.str("varve.log.level"),
		ShutdownTimeout:   r.ms("varve.shutdown.timeout.ms"),
	}
	if len(b.ClusterID) > maxClusterID || strings.ContainsAny(b.ClusterID, "/\n\r") {
		r.failValue("varve.cluster.id", b.ClusterID, "must be one line of at most %d bytes without a slash", maxClusterID)
	}
	r.dirs(&b)
	r.listeners(&b)
	r.voters(&b)
	b.Tier = r.tier(b.LogDirs)
	if _, _, err := splitHostPort(b.AdminListener); err != nil && b.AdminListener != "" {
		r.failValue("varve.admin.listener", b.AdminListener, "%v", err)
	}
	r.topicDefaults(static)
	return b, r.asked, r.err
}

// maxClusterID bounds an id that stands in every object's name.
const maxClusterID = 100

// nodeID takes node.id, or broker.id as it was called before KRaft.
func (r *reader) nodeID() int64 {
	r.asked["node.id"], r.asked["broker.id"] = true, true
	for _, name := range brokerSynonyms("node.id") {
		if _, set := r.layers.Static[name]; set {
			return r.long("node.id")
		}
	}
	r.failValue("node.id", "null", "required: a number that no other node of the cluster has")
	return -1
}

func (r *reader) dirs(b *Broker) {
	b.LogDirs = r.list("log.dirs")
	r.asked["log.dir"] = true
	if len(b.LogDirs) == 0 {
		r.failValue("log.dirs", "null", "required: the directory, or several, that this node keeps its data in")
		return
	}
	clean := map[string]bool{}
	for _, dir := range b.LogDirs {
		if c := filepath.Clean(dir); clean[c] {
			r.failValue("log.dirs", strings.Join(b.LogDirs, ","), "%s stands in the list twice", c)
		} else {
			clean[c] = true
		}
	}
	if b.MetadataDir = r.str("metadata.log.dir"); b.MetadataDir == "" {
		b.MetadataDir = b.LogDirs[0]
	}
}

func (r *reader) net() Net {
	return Net{
		MaxRequestBytes:     r.int("socket.request.max.bytes"),
		SendBuffer:          r.int("socket.send.buffer.bytes"),
		RecvBuffer:          r.int("socket.receive.buffer.bytes"),
		IdleTimeout:         r.ms("connections.max.idle.ms"),
		MaxConnections:      r.int("max.connections"),
		MaxConnectionsPerIP: r.int("max.connections.per.ip"),
		RequestMemory:       r.long("queued.max.request.bytes"),
	}
}

func (r *reader) fetch() Fetch {
	return Fetch{
		MaxBytes:             r.int("fetch.max.bytes"),
		MaxSessions:          r.int("max.incremental.fetch.session.cache.slots"),
		MaxRequestPartitions: r.int("max.request.partition.size.limit"),
		ListOffsetsTimeout:   r.ms("remote.list.offsets.request.timeout.ms"),
	}
}

// The replica selectors that Kafka has (KIP-392); others would be code.
const (
	leaderSelector    = "org.apache.kafka.common.replica.LeaderSelector"
	rackAwareSelector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
)

func (r *reader) replication() Replication {
	x := Replication{
		Listener:      strings.ToUpper(r.str("inter.broker.listener.name")),
		LagTime:       r.ms("replica.lag.time.max.ms"),
		Fetchers:      r.int("num.replica.fetchers"),
		FetchBytes:    r.int("replica.fetch.max.bytes"),
		ResponseBytes: r.int("replica.fetch.response.max.bytes"),
		MinBytes:      r.int("replica.fetch.min.bytes"),
		FetchWait:     r.ms("replica.fetch.wait.max.ms"),
		Backoff:       r.ms("replica.fetch.backoff.ms"),
		SocketTimeout: r.ms("replica.socket.timeout.ms"),
	}
	switch class := r.str("replica.selector.class"); class {
	case "", leaderSelector:
	case rackAwareSelector:
		x.RackAware = true
	default:
		r.failValue("replica.selector.class", class, "must be %s or %s", leaderSelector, rackAwareSelector)
	}
	if x.LagTime <= x.FetchWait {
		r.failValue("replica.lag.time.max.ms", x.LagTime.String(), "must be longer than replica.fetch.wait.max.ms (%v)", x.FetchWait)
	}
	return x
}

func (r *reader) log() Log {
	return Log{
		RetentionCheckInterval: r.ms("log.retention.check.interval.ms"),
		ProducerIDExpiration:   r.ms("producer.id.expiration.ms"),
		ReserveBytes:           r.long("varve.log.dir.reserve.bytes"),
		WriteTimeout:           r.ms("varve.log.dir.write.timeout.ms"),
	}
}

func (r *reader) session() Session {
	s := Session{
		Heartbeat:              r.ms("broker.heartbeat.interval.ms"),
		Timeout:                r.ms("broker.session.timeout.ms"),
		RequestTimeout:         r.ms("request.timeout.ms"),
		ControllerWriteTimeout: r.ms("varve.controller.write.timeout.ms"),
		ElectionTimeout:        r.ms("varve.controller.election.timeout.ms"),
	}
	if s.Heartbeat <= 0 || s.Timeout < 2*s.Heartbeat {
		r.failValue("broker.session.timeout.ms", s.Timeout.String(), "must be at least twice broker.heartbeat.interval.ms (%v), which must be positive", s.Heartbeat)
	}
	return s
}

func (r *reader) balance() Balance {
	b := Balance{Interval: time.Duration(r.long("leader.imbalance.check.interval.seconds")) * time.Second, Percent: r.int("leader.imbalance.per.broker.percentage")}
	if !r.bool("auto.leader.rebalance.enable") {
		b.Interval = 0
	}
	return b
}

func (r *reader) store() Store {
	s := Store{
		URL:              r.str("varve.store.url"),
		Endpoint:         r.str("varve.store.s3.endpoint"),
		Region:           r.str("varve.store.s3.region"),
		Checksum:         r.str("varve.store.s3.checksum"),
		AccessKeyFile:    r.str("varve.store.s3.access.key.file"),
		SecretKeyFile:    r.str("varve.store.s3.secret.key.file"),
		SessionTokenFile: r.str("varve.store.s3.session.token.file"),
		Concurrency:      r.int("varve.store.concurrency"),
		Retries:          r.int("varve.store.retries"),
		Timeout:          r.ms("varve.store.timeout.ms"),
	}
	s.PathStyle = s.Endpoint != ""
	if _, set := r.text("varve.store.s3.path.style"); set {
		s.PathStyle = r.bool("varve.store.s3.path.style")
	}
	if (s.AccessKeyFile == "") != (s.SecretKeyFile == "") {
		r.failValue("varve.store.s3.access.key.file", s.AccessKeyFile, "goes together with varve.store.s3.secret.key.file: set both or none")
	}
	if s.URL != "" && !validStoreURL(s.URL) {
		r.failValue("varve.store.url", s.URL, "must be s3://bucket/prefix, file:///directory or mem:")
	}
	return s
}

func validStoreURL(url string) bool {
	bucket, isS3 := strings.CutPrefix(url, "s3://")
	if isS3 {
		return bucket != "" && !strings.HasPrefix(bucket, "/")
	}
	dir, isFile := strings.CutPrefix(url, "file://")
	return isFile && strings.HasPrefix(dir, "/") || strings.HasPrefix(url, "mem:")
}

// chunkUnit divides varve.tier.chunk.bytes: objects carry a checksum for every
// MiB.
const chunkUnit = 1 << 20

func (r *reader) tier(logDirs []string) Tier {
	t := Tier{
		MaxLag:            r.ms("varve.tier.max.lag.ms"),
		Reservation:       r.ms("varve.tier.reservation.ms"),
		DeleteGrace:       r.ms("varve.tier.delete.grace.ms"),
		Interval:          r.ms("remote.log.manager.task.interval.ms"),
		CacheDir:          r.str("varve.tier.cache.dir"),
		CacheBytes:        r.long("varve.tier.cache.bytes"),
		IndexCacheBytes:   r.long("remote.log.index.file.cache.total.size.bytes"),
		ChunkBytes:        r.int("varve.tier.chunk.bytes"),
		ReadAheadBytes:    r.long("varve.tier.read.ahead.bytes"),
		ReadMemoryBytes:   r.long("varve.tier.read.memory.bytes"),
		UploadConcurrency: r.int("remote.log.manager.copier.thread.pool.size"),
		UploadRate:        r.long("remote.log.manager.copy.max.bytes.per.second"),
		ReadRate:          r.long("remote.log.manager.fetch.max.bytes.per.second"),
	}
	if t.CacheDir == "" && len(logDirs) > 0 {
		t.CacheDir = filepath.Join(logDirs[0], "tier-cache")
	}
	if t.ChunkBytes%chunkUnit != 0 {
		r.failValue("varve.tier.chunk.bytes", r.str("varve.tier.chunk.bytes"), "must be a multiple of %d", chunkUnit)
	}
	if t.CacheBytes < 2*int64(t.ChunkBytes) {
		r.failValue("varve.tier.cache.bytes", r.str("varve.tier.cache.bytes"), "must hold at least two chunks of varve.tier.chunk.bytes (%d)", t.ChunkBytes)
	}
	return t
}

// listeners reads roles and listeners. A node with both roles listens on
// Kafka's usual ports unless told otherwise.
func (r *reader) listeners(b *Broker) {
	roles := r.list("process.roles")
	b.IsBroker, b.IsController = slices.Contains(roles, "broker"), slices.Contains(roles, "controller")
	if len(roles) == 0 {
		r.failValue("process.roles", "", "must be broker, controller or broker,controller")
	}
	names := r.list("controller.listener.names")
	protocolOf, err := parseProtocolMap(r.protocolMap(), names)
	if err != nil {
		r.failValue("listener.security.protocol.map", r.str("listener.security.protocol.map"), "%v", err)
	}
	for _, l := range r.parseListeners("listeners", r.listenersText(b, names), protocolOf) {
		if slices.Contains(names, l.Name) {
			b.ControllerListeners = append(b.ControllerListeners, l)
		} else {
			b.Listeners = append(b.Listeners, l)
		}
	}
	r.checkListeners(b, names)
	b.Advertised = r.advertised(b, names, protocolOf)
}

// protocolMap returns what is set; Kafka's default maps every protocol to
// itself, as parseListener does.
func (r *reader) protocolMap() []string {
	r.asked["listener.security.protocol.map"] = true
	return splitList(r.layers.Static["listener.security.protocol.map"])
}

const (
	defaultClientListener     = "PLAINTEXT://:9092"
	defaultControllerListener = "://:9093"
)

func (r *reader) listenersText(b *Broker, controllers []string) []string {
	if set := r.list("listeners"); len(set) > 0 {
		return set
	}
	var all []string
	if b.IsBroker {
		all = append(all, defaultClientListener)
	}
	if b.IsController && len(controllers) > 0 {
		all = append(all, controllers[0]+defaultControllerListener)
	}
	return all
}

func (r *reader) parseListeners(property string, all []string, protocolOf map[string]string) []Listener {
	var parsed []Listener
	for _, text := range all {
		l, err := parseListener(text, protocolOf)
		if err != nil {
			r.failValue(property, strings.Join(all, ","), "%v", err)
			return nil
		}
		for _, other := range parsed {
			if other.Name == l.Name {
				r.failValue(property, strings.Join(all, ","), "two listeners are called %s", l.Name)
			}
			if property == "listeners" && other.Port == l.Port && l.Port != 0 {
				r.failValue(property, strings.Join(all, ","), "%s and %s have the same port", other.Name, l.Name)
			}
		}
		parsed = append(parsed, l)
	}
	return parsed
}

func (r *reader) checkListeners(b *Broker, controllers []string) {
	text := r.str("listeners")
	names := strings.Join(controllers, ", ")
	switch {
	case r.err != nil:
	case b.IsBroker && len(b.Listeners) == 0:
		r.failValue("listeners", text, "a broker needs a listener for clients besides %s, such as PLAINTEXT://:9092", names)
	case b.IsController && len(b.ControllerListeners) == 0:
		r.failValue("listeners", text, "a controller needs a listener that controller.listener.names names: add %s://host:9093", controllers[0])
	case !b.IsBroker && len(b.Listeners) > 0:
		r.failValue("listeners", text, "%s is for clients, but process.roles has no broker", b.Listeners[0].Name)
	case !b.IsController && len(b.ControllerListeners) > 0:
		r.failValue("listeners", text, "%s is for controllers, but process.roles has no controller", b.ControllerListeners[0].Name)
	}
}

func (r *reader) advertised(b *Broker, controllers []string, protocolOf map[string]string) []Listener {
	if name := r.str("inter.broker.listener.name"); name != "" && b.IsBroker &&
		!slices.ContainsFunc(b.Listeners, func(l Listener) bool { return l.Name == strings.ToUpper(name) }) {
		r.failValue("inter.broker.listener.name", name, "is no listener of this node")
	}
	set := r.list("advertised.listeners")
	if len(set) == 0 {
		all := slices.Clone(b.Listeners)
		for i := range all {
			if all[i].Host == "0.0.0.0" || all[i].Host == "::" {
				all[i].Host = ""
			}
		}
		return all
	}
	var all []Listener
	for _, l := range r.parseListeners("advertised.listeners", set, protocolOf) {
		switch {
		case slices.Contains(controllers, l.Name):
			continue // Kafka 4 allows them here; voters name them for us
		case !slices.ContainsFunc(b.Listeners, func(o Listener) bool { return o.Name == l.Name }):
			r.failValue("advertised.listeners", strings.Join(set, ","), "%s is no listener of this node", l.Name)
		case l.Host == "" || l.Host == "0.0.0.0" || l.Host == "::":
			r.failValue("advertised.listeners", strings.Join(set, ","), "%s needs an address that clients can reach", l.Name)
		}
		all = append(all, l)
	}
	return all
}

// voters reads who the controllers are. A controller that names none is the
// only one.
func (r *reader) voters(b *Broker) {
	for _, text := range r.list("controller.quorum.voters") {
		v, err := parseVoter(text)
		if err != nil {
			r.failValue("controller.quorum.voters", r.str("controller.quorum.voters"), "%v", err)
			return
		}
		for _, other := range b.Voters {
			if other.ID == v.ID || other.Addr() == v.Addr() {
				r.failValue("controller.quorum.voters", r.str("controller.quorum.voters"), "%d@%s and %d@%s: every controller has an id and an address of its own", other.ID, other.Addr(), v.ID, v.Addr())
				return
			}
		}
		b.Voters = append(b.Voters, v)
	}
	bootstrap := r.list("controller.quorum.bootstrap.servers")
	if len(b.Voters) > 0 || r.err != nil {
		return
	}
	if b.IsController {
		l := b.ControllerListeners[0]
		b.Voters = []Voter{{ID: b.NodeID, Host: l.Host, Port: l.Port}}
		return
	}
	for _, addr := range bootstrap {
		host, port, err := splitHostPort(addr)
		if err != nil {
			r.failValue("controller.quorum.bootstrap.servers", addr, "%v", err)
			return
		}
		b.Voters = append(b.Voters, Voter{ID: -1, Host: host, Port: port})
	}
	if len(b.Voters) == 0 {
		r.failValue("controller.quorum.voters", "null", "required of a broker without the controller role: id@host:port of every controller")
	}
}

// Lone reports whether the node is its cluster's only controller, so that it
// may found the cluster by itself.
func (b *Broker) Lone() bool {
	return b.IsController && len(b.Voters) == 1 && b.Voters[0].ID == b.NodeID
}

// topicDefaults checks what topics would inherit from this file.
func (r *reader) topicDefaults(static map[string]string) {
	layers := Layers{Static: static}
	t, err := ForTopic(layers)
	if err != nil {
		r.fail(inFile(err, static))
		return
	}
	if on := r.bool("varve.log.remote.storage.enable"); on && r.str("varve.store.url") == "" {
		r.failValue("varve.log.remote.storage.enable", "true", "needs varve.store.url")
	}
	r.str("varve.log.durability")
	if !t.CleanupCompact {
		if err := checkTiered(t); err != nil && t.RemoteStorageEnable {
			r.fail(err)
		}
	}
	if err := checkCompaction(layers); err != nil {
		r.fail(err)
	}
}

// inFile names the property as it stands in the file, where a topic's has another name.
func inFile(err error, static map[string]string) error {
	var wrong *ValueError
	if !errors.As(err, &wrong) {
		return err
	}
	property, ok := Lookup(TopicScope, wrong.Name)
	if !ok {
		return err
	}
	for _, name := range property.Synonyms {
		if value, set := static[name]; set {
			return &ValueError{Name: name, Value: value, Reason: wrong.Reason}
		}
	}
	return err
}
