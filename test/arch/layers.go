package arch

// module is the path that every package of ours begins with.
const module = "github.com/varve-io/varve/"

// layer says what one package may import besides the standard library and
// prometheus/client_golang. A trailing "/*" in pkg stands for every package
// below; the longest matching row wins.
type layer struct {
	pkg        string   // below the module path
	ours       []string // packages of ours, "/*" for all below
	thirdParty []string // import path prefixes
	why        string
}

var layers = []layer{
	{pkg: "wire/config", why: "properties are vocabulary: they know nobody"},
	{pkg: "wire/record", thirdParty: []string{"github.com/klauspost/compress", "github.com/pierrec/lz4/v4"},
		why: "the batch format stands alone"},
	{pkg: "wire", ours: []string{"wire/record"},
		thirdParty: []string{"github.com/twmb/franz-go/pkg/kmsg", "github.com/twmb/franz-go/pkg/kbin", "github.com/twmb/franz-go/pkg/kerr", "golang.org/x/sys", "golang.org/x/sync"},
		why:        "the protocol knows bytes, not what they mean"},
	{pkg: "objstore", why: "a store is only an interface and its errors"},
	{pkg: "objstore/*", ours: []string{"objstore"},
		thirdParty: []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go", "golang.org/x/sync", "golang.org/x/time"},
		why:        "providers and wrappers see the interface, never each other"},
	{pkg: "broker/log/vfs", thirdParty: []string{"golang.org/x/sys"}, why: "the disk knows nobody"},
	{pkg: "broker/log", ours: []string{"wire", "wire/record", "broker/log/vfs"},
		thirdParty: []string{"github.com/twmb/franz-go/pkg/kerr", "golang.org/x/sync"},
		why:        "the log does not know the tier, nor configuration: it gets plain values"},
	{pkg: "controller/metadata", ours: []string{"wire", "wire/record", "wire/config"},
		thirdParty: []string{"github.com/hashicorp/go-immutable-radix/v2", "github.com/twmb/franz-go/pkg/kbin", "github.com/twmb/franz-go/pkg/kerr", "github.com/twmb/franz-go/pkg/kmsg"},
		why:        "pure: the controller applies it, brokers read it"},
	{pkg: "tier", ours: []string{"wire", "wire/record", "objstore", "controller/metadata", "broker/log/vfs"},
		thirdParty: []string{"github.com/dgraph-io/ristretto/v2", "github.com/twmb/franz-go/pkg/kerr", "golang.org/x/sync", "golang.org/x/time"},
		why:        "the tier is given sealed batches as a value, never a log"},
	{pkg: "controller", ours: []string{"wire", "wire/config", "controller/metadata"},
		thirdParty: []string{"github.com/hashicorp/raft", "github.com/hashicorp/raft-boltdb/v2", "github.com/hashicorp/go-hclog", "github.com/hashicorp/go-metrics", "github.com/armon/go-metrics", "go.etcd.io/bbolt", "github.com/twmb/franz-go/pkg/kmsg", "github.com/twmb/franz-go/pkg/kerr", "golang.org/x/sync"},
		why:        "the controller decides; it never meets a broker except through wire"},
	{pkg: "broker/replica", ours: []string{"wire", "wire/record", "wire/config", "broker/log", "broker/log/vfs", "tier", "controller/metadata"},
		thirdParty: []string{"github.com/twmb/franz-go/pkg/kerr", "github.com/twmb/franz-go/pkg/kmsg", "golang.org/x/sync"},
		why:        "where the log meets the tier"},
	{pkg: "broker/group", ours: []string{"wire", "wire/record", "controller/metadata"}, why: "a pure shard"},
	{pkg: "broker/txn", ours: []string{"wire", "wire/record", "controller/metadata"}, why: "a pure shard"},
	{pkg: "broker/coordinator", ours: []string{"wire", "wire/record", "broker/replica", "controller/metadata"}, why: "loads and feeds shards"},
	{pkg: "broker/auth", ours: []string{"wire", "wire/config", "controller/metadata"}, why: "pure functions of the image"},
	{pkg: "broker/quota", ours: []string{"wire", "wire/config", "controller/metadata"}, why: "pure functions of the image"},
	{pkg: "broker", ours: []string{"wire", "wire/*", "objstore", "objstore/*", "tier", "controller/metadata", "broker/*"},
		thirdParty: []string{"github.com/twmb/franz-go/pkg/kmsg", "github.com/twmb/franz-go/pkg/kerr", "golang.org/x/sync"},
		why:        "the data plane reaches the controller only through wire"},
	{pkg: "broker/admin", ours: []string{"wire", "wire/*", "objstore", "objstore/*", "tier", "controller/metadata", "broker", "broker/*"},
		thirdParty: []string{"github.com/twmb/franz-go/pkg/kerr"},
		why:        "HTTP faces of the broker"},
	{pkg: "cmd/*", ours: []string{"*"}, thirdParty: []string{"*"}, why: "wires everything"},
	{pkg: "test/*", ours: []string{"*"}, thirdParty: []string{"*"}, why: "tests may import everything"},
}
