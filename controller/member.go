package controller

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/varve-io/varve/wire"
)

// Reasons to refuse a directory; what they wrap them in says the way out.
var (
	// ErrForeign: the directory is another node's or another cluster's.
	ErrForeign = errors.New("the controller's directory is not this node's")
	// ErrWiped: the quorum's files are gone, although the node was a member.
	ErrWiped = errors.New("the controller's directory was wiped")
	// ErrLocked: another process uses the directory.
	ErrLocked = errors.New("the controller's directory is in use by another process")
)

const (
	memberFile   = "quorum.properties"
	raftFile     = "raft.db"
	snapshotsDir = "snapshots"
	lockWait     = time.Second
)

// member is who a node is in its quorum, as quorum.properties says:
//
//   - fresh: no cluster yet. It answers the others of controller.quorum.voters;
//   - founding: it has decided on the cluster and its voters; the log may not
//     begin yet;
//   - formed: it takes part in the quorum, or waits to be added to it. From then
//     on a missing log was lost: votes and entries that others count on.
type member struct {
	clusterID string // "": fresh
	nodeID    int32
	memberID  string
	formed    bool
	voters    []wire.Voter // while founding
}

// identity is what a node knows of itself before it looks into its directory.
type identity struct {
	nodeID    int32
	clusterID string // wanted; "" any
	formatted bool   // its log directories belong to that cluster already
	alone     bool   // it may found a cluster by itself
	address   string
}

// openMember reads the identity of a directory, or gives it one.
func openMember(dir string, want identity) (member, error) {
	raw, err := os.ReadFile(filepath.Join(dir, memberFile))
	if errors.Is(err, fs.ErrNotExist) {
		return newMember(dir, want)
	}
	if err != nil {
		return member{}, err
	}
	m, err := parseMember(string(raw))
	if err != nil {
		return member{}, fmt.Errorf("%s: %w", filepath.Join(dir, memberFile), err)
	}
	switch _, err := os.Stat(filepath.Join(dir, raftFile)); {
	case m.nodeID != want.nodeID:
		return member{}, fmt.Errorf("%w: %s belongs to node %d, this is node %d: set node.id=%d or another metadata.log.dir", ErrForeign, dir, m.nodeID, want.nodeID, m.nodeID)
	case m.clusterID != "" && want.clusterID != "" && m.clusterID != want.clusterID:
		return member{}, fmt.Errorf("%w: %s belongs to cluster %s, but this node is to be of cluster %s: bring back the directories that belong together", ErrForeign, dir, m.clusterID, want.clusterID)
	case m.formed && errors.Is(err, fs.ErrNotExist):
		return member{}, fmt.Errorf("%w: %s names a member of cluster %s, but %s is missing: %s",
			ErrWiped, filepath.Join(dir, memberFile), m.clusterID, raftFile, want.wayBack(dir))
	}
	return m.settle(dir, want)
}

// wayBack is what to do about a member's lost files.
func (want identity) wayBack(dir string) string {
	if want.alone {
		return "restore it from a copy (\"varve recover\", which rebuilds from the bucket, comes with a later release)"
	}
	return fmt.Sprintf("remove %s, start again, and have the other controllers take the new member in: varve cluster controllers replace %d", dir, want.nodeID)
}

func newMember(dir string, want identity) (member, error) {
	if want.formatted && want.alone {
		return member{}, fmt.Errorf("%w: %s is empty, but the log directories of node %d belong to cluster %s: %s",
			ErrWiped, dir, want.nodeID, want.clusterID, want.wayBack(dir))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return member{}, err
	}
	if _, err := os.Stat(filepath.Join(dir, raftFile)); err == nil {
		return member{}, fmt.Errorf("%w: %s holds a log but no %s: restore that file", ErrForeign, dir, memberFile)
	}
	m := member{nodeID: want.nodeID, memberID: wire.NewUUID().String()}
	if err := m.write(dir); err != nil {
		return member{}, err
	}
	return m.settle(dir, want)
}

// settle decides what needs no others: who is alone founds a cluster, and who
// comes to a cluster that its log directories know founds none.
func (m member) settle(dir string, want identity) (member, error) {
	switch {
	case m.clusterID != "":
		return m, nil
	case want.alone:
		m.clusterID = want.clusterID
		if m.clusterID == "" {
			m.clusterID = wire.NewUUID().String()
		}
		m.voters = []wire.Voter{{NodeID: m.nodeID, MemberID: m.memberID, Address: want.address}}
	case want.formatted:
		m.clusterID = want.clusterID
		return m, nil
	default:
		return m, nil
	}
	return m, m.write(dir)
}

// write puts the file in place as a whole: whoever reads it sees the old one
// or the new one.
func (m member) write(dir string) error {
	var voters []string
	for _, v := range m.voters {
		voters = append(voters, fmt.Sprintf("%d@%s@%s", v.NodeID, v.MemberID, v.Address))
	}
	text := fmt.Sprintf("version=1\ncluster.id=%s\nnode.id=%d\nmember.id=%s\nformed=%v\nvoters=%s\n", m.clusterID, m.nodeID, m.memberID, m.formed, strings.Join(voters, ","))
	name := filepath.Join(dir, memberFile)
	f, err := os.OpenFile(name+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func parseMember(text string) (member, error) {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, v, _ := strings.Cut(line, "=")
		values[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	node, err := strconv.ParseInt(values["node.id"], 10, 32)
	m := member{clusterID: values["cluster.id"], nodeID: int32(node), memberID: values["member.id"], formed: values["formed"] == "true"}
	if err != nil || values["version"] != "1" || m.memberID == "" || m.formed && m.clusterID == "" {
		return member{}, errors.New("not a quorum.properties of version 1")
	}
	if values["voters"] == "" {
		return m, nil
	}
	for _, text := range strings.Split(values["voters"], ",") {
		f := strings.SplitN(text, "@", 3)
		id, err := strconv.ParseInt(f[0], 10, 32)
		if err != nil || len(f) < 3 {
			return member{}, fmt.Errorf("voter %q is not node@member@host:port", text)
		}
		m.voters = append(m.voters, wire.Voter{NodeID: int32(id), MemberID: f[1], Address: f[2]})
	}
	return m, nil
}

// openStores opens what the quorum keeps in dir; the log's lock keeps a second
// process out.
func openStores(dir string, logger hclog.Logger) (*raftboltdb.BoltStore, raft.SnapshotStore, error) {
	options := *bbolt.DefaultOptions
	options.Timeout = lockWait
	options.NoFreelistSync = true // a burst of entries would leave a long freelist to be written with every commit
	options.FreelistType = bbolt.FreelistMapType
	log, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, raftFile), BoltOptions: &options})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, nil, fmt.Errorf("%w: %s: stop that process, or give this node a metadata.log.dir of its own", ErrLocked, dir)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", filepath.Join(dir, raftFile), err)
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, logger)
	if err != nil {
		log.Close()
		return nil, nil, fmt.Errorf("open %s: %w", filepath.Join(dir, snapshotsDir), err)
	}
	return log, snapshots, nil
}
