package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func loneNode() map[string]string {
	return pairs("node.id=1 listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093 log.dirs=/d varve.store.url=file:///s")
}

func TestForBrokerLoneNode(t *testing.T) {
	b, err := ForBroker(loneNode())
	if err != nil {
		t.Fatal(err)
	}
	if !b.IsBroker || !b.IsController || !b.Lone() || b.NodeID != 1 {
		t.Errorf("roles: %+v", b)
	}
	if got := fmt.Sprint(b.Listeners, b.ControllerListeners, b.Advertised, b.Voters); got !=
		"[PLAINTEXT://127.0.0.1:9092] [CONTROLLER://127.0.0.1:9093] [PLAINTEXT://127.0.0.1:9092] [{1 127.0.0.1 9093}]" {
		t.Errorf("listeners: %s", got)
	}
	if b.MetadataDir != "/d" || b.Tier.CacheDir != "/d/tier-cache" || b.Tier.Reservation != 15*time.Minute || b.Tier.MaxLag != time.Hour {
		t.Errorf("dirs and tier: %+v", b)
	}
	if b.Session.Heartbeat != 2*time.Second || b.Session.Timeout != 9*time.Second || b.Net.MaxRequestBytes != 100<<20 {
		t.Errorf("session and net: %+v", b)
	}
}

// TestForBrokerKafkaFile takes the server.properties that Kafka 4 ships.
func TestForBrokerKafkaFile(t *testing.T) {
	kv := pairs(`process.roles=broker,controller node.id=1 controller.quorum.bootstrap.servers=localhost:9093
		listeners=PLAINTEXT://:9092,CONTROLLER://:9093 inter.broker.listener.name=PLAINTEXT
		advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093 controller.listener.names=CONTROLLER
		listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
		num.network.threads=3 num.io.threads=8 socket.send.buffer.bytes=102400 socket.receive.buffer.bytes=102400
		socket.request.max.bytes=104857600 log.dirs=/tmp/kraft-combined-logs num.partitions=1 num.recovery.threads.per.data.dir=1
		offsets.topic.replication.factor=1 share.coordinator.state.topic.replication.factor=1 share.coordinator.state.topic.min.isr=1
		transaction.state.log.replication.factor=1 transaction.state.log.min.isr=1 log.retention.hours=168
		log.segment.bytes=1073741824 log.retention.check.interval.ms=300000`)
	b, err := ForBroker(kv)
	if err != nil {
		t.Fatal(err)
	}
	if unknown := Unknown(BrokerScope, kv); len(unknown) > 0 {
		t.Errorf("unknown: %q", unknown)
	}
	if got := fmt.Sprint(b.Advertised, b.Lone()); got != "[PLAINTEXT://localhost:9092] true" {
		t.Errorf("got %s", got)
	}
}

func TestForBrokerRules(t *testing.T) {
	const base = "node.id=1 log.dirs=/d "
	for _, test := range []struct{ set, reason string }{
		{base, ""},
		{"log.dirs=/d", "node.id: required"},
		{"node.id=1", "log.dirs: required"},
		{"broker.id=3 log.dirs=/d", ""},
		{"node.id=1 log.dir=/d", ""},
		{"node.id=x log.dirs=/d", "Not a number"},
		{base + "log.dirs=/d,/d/", "twice"},
		{base + "process.roles=broker", "required of a broker without the controller role"},
		{base + "process.roles=broker controller.quorum.voters=2@h:9093", ""},
		{base + "process.roles=broker controller.quorum.bootstrap.servers=h:9093", ""},
		{base + "process.roles=broker controller.quorum.voters=h:9093", "id@host:port"},
		{base + "varve.cluster.id=a/b", "slash"},
		{base + "varve.cluster.id=" + strings.Repeat("x", 101), "100 bytes"},
		{base + "controller.quorum.voters=1@h:9093,1@i:9093", "of its own"},
		{base + "controller.quorum.voters=1@h:9093,2@h:9093", "of its own"},
		{base + "process.roles=master", "must be one of"},
		{base + "listeners=PLAINTEXT://:9092", "add CONTROLLER://host:9093"},
		{base + "listeners=CONTROLLER://:9093", "needs a listener for clients"},
		{base + "listeners=PLAINTEXT://:1,CONTROLLER://:1", "the same port"},
		{base + "listeners=PLAINTEXT://:0,CONTROLLER://:0", ""},
		{base + "listeners=PLAINTEXT://:1,PLAINTEXT://:2,CONTROLLER://:3", "two listeners are called"},
		{base + "listeners=PUBLIC://:1,CONTROLLER://:2", "add PUBLIC:PLAINTEXT to listener.security.protocol.map"},
		{base + "listeners=PUBLIC://:1,CONTROLLER://:2 listener.security.protocol.map=PUBLIC:PLAINTEXT", ""},
		{base + "listeners=SSL://:1,CONTROLLER://:2", "does not serve"},
		{base + "listeners=nonsense", "NAME://host:port"},
		{base + "listeners=PLAINTEXT://:99999,CONTROLLER://:2", "is not a port"},
		{base + "advertised.listeners=OTHER://h:1 listener.security.protocol.map=OTHER:PLAINTEXT", "no listener of this node"},
		{base + "advertised.listeners=PLAINTEXT://0.0.0.0:9092", "address that clients can reach"},
		{base + "inter.broker.listener.name=OTHER", "no listener of this node"},
		{base + "broker.session.timeout.ms=3000", "at least twice"},
		{base + "varve.store.url=s3://bucket/prefix", ""},
		{base + "varve.store.url=s3:///prefix", "must be s3://bucket/prefix"},
		{base + "varve.store.url=file://relative", "must be s3://bucket/prefix"},
		{base + "varve.store.s3.access.key.file=/k", "set both or none"},
		{base + "varve.log.remote.storage.enable=true", "needs varve.store.url"},
		{base + "varve.log.remote.storage.enable=true varve.store.url=file:///s log.local.retention.ms=-1", "Value must not be -1"},
		{base + "varve.tier.chunk.bytes=1048577", "multiple of 1048576"},
		{base + "varve.tier.cache.bytes=16777216 varve.tier.chunk.bytes=16777216", "at least two chunks"},
		{base + "varve.admin.listener=9644", "not host:port"},
		{base + "varve.admin.listener=", ""},
		{base + "log.retention.hours=x", "Not a number"},
		{base + "some.unknown.thing=1", ""},
	} {
		err := Check(BrokerScope, pairs(test.set))
		checkReason(t, test.set, err, test.reason)
	}
}

func TestForBrokerPathStyle(t *testing.T) {
	for set, want := range map[string]bool{
		"": false, "varve.store.s3.endpoint=http://h:1": true,
		"varve.store.s3.endpoint=http://h:1 varve.store.s3.path.style=false": false,
		"varve.store.s3.path.style=true":                                     true,
	} {
		b, err := ForBroker(pairs("node.id=1 log.dirs=/d varve.store.url=s3://b " + set))
		if err != nil || b.Store.PathStyle != want {
			t.Errorf("%q: %v, %v", set, b.Store.PathStyle, err)
		}
	}
}
