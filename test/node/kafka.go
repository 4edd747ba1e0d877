package node

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// KafkaVersion is the release of Apache Kafka that everything is compared with.
const KafkaVersion = "4.4.0"

// pom names the artifacts whose dependencies are a whole Kafka: server, tools, clients.
//
//go:embed pom.xml
var pom []byte

// Java is a class path that holds a whole Apache Kafka.
type Java struct{ libs string }

// FindJava returns Kafka's jars, fetched once by Maven into the user's cache
// folder ($XDG_CACHE_HOME, else ~/.cache). It needs java and mvn.
func FindJava(ctx context.Context) (Java, error) {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return Java{}, fmt.Errorf("%s is not installed: apt-get install default-jdk-headless maven", tool)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Java{}, err
	}
	dir := filepath.Join(cache, "varve-test", "kafka-"+KafkaVersion)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Java{}, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return Java{}, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return Java{}, fmt.Errorf("lock %s: %w", dir, err)
	}
	libs := filepath.Join(dir, "libs")
	if _, err := os.Stat(libs); err == nil {
		return Java{libs}, nil
	}
	if err := fetchJars(ctx, dir, libs); err != nil {
		return Java{}, fmt.Errorf("fetch Apache Kafka %s from Maven Central: %w", KafkaVersion, err)
	}
	return Java{libs}, nil
}

// fetchJars leaves the folder libs complete or not there.
func fetchJars(ctx context.Context, dir, libs string) error {
	if err := os.WriteFile(filepath.Join(dir, "pom.xml"), pom, 0o644); err != nil {
		return err
	}
	part := libs + ".part"
	os.RemoveAll(part)
	mvn := exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory="+part)
	mvn.Dir = dir
	if out, err := mvn.CombinedOutput(); err != nil {
		return fmt.Errorf("mvn: %w\n%s", err, out)
	}
	return os.Rename(part, libs)
}

// Command is a program of Kafka's, such as
// "org.apache.kafka.tools.TopicCommand", as a short-lived JVM.
func (j Java) Command(ctx context.Context, class string, args ...string) *exec.Cmd {
	return j.java(ctx, []string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"}, class, args)
}

func (j Java) java(ctx context.Context, jvm []string, class string, args []string) *exec.Cmd {
	all := slices.Concat(jvm, []string{"-cp", j.libs + "/*", class}, args)
	return exec.CommandContext(ctx, "java", all...)
}

// KafkaConfig says how to start Apache Kafka.
type KafkaConfig struct {
	Dir      string   // for its files
	Settings []string // "key=value" lines added to its properties
}

// StartKafka formats an empty folder and starts a single combined node in it,
// with 1 GiB of heap; a formatted folder is started as it is. StartUp does not
// count the formatting.
func StartKafka(ctx context.Context, j Java, cfg KafkaConfig) (*Broker, error) {
	b, err := LaunchKafka(ctx, j, cfg)
	if err != nil {
		return nil, err
	}
	return b, b.Await(ctx)
}

// kafkaPorts is how many ports a node has: clients, controller.
const kafkaPorts = 2

// LaunchKafka is StartKafka without the wait. It is node 1 and the only voter
// unless a setting says otherwise; the last of equal settings counts.
func LaunchKafka(ctx context.Context, j Java, cfg KafkaConfig) (*Broker, error) {
	ports, err := portsOf(cfg.Dir, kafkaPorts)
	if err != nil {
		return nil, err
	}
	b := &Broker{Kind: "kafka", Addr: fmt.Sprintf("127.0.0.1:%d", ports[0]), Dir: cfg.Dir, LogDir: filepath.Join(cfg.Dir, "data")}
	properties := filepath.Join(cfg.Dir, "server.properties")
	lines := append([]string{
		"process.roles=broker,controller",
		"node.id=1",
		"listeners=PLAINTEXT://" + b.Addr + fmt.Sprintf(",CONTROLLER://127.0.0.1:%d", ports[1]),
		"controller.listener.names=CONTROLLER",
		"controller.quorum.voters=1@" + fmt.Sprintf("127.0.0.1:%d", ports[1]),
		"log.dirs=" + b.LogDir,
		"offsets.topic.replication.factor=1",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"share.coordinator.state.topic.replication.factor=1",
		"share.coordinator.state.topic.min.isr=1",
		"group.initial.rebalance.delay.ms=0",
	}, cfg.Settings...)
	if err := os.MkdirAll(b.LogDir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(properties, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(b.LogDir, "meta.properties")); err != nil {
		format := j.Command(ctx, "kafka.tools.StorageTool", "format", "-t", "dmFydmUtdGVzdC1rYWZrYQ", "-c", properties)
		if out, err := format.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("format Kafka's folder: %w\n%s", err, out)
		}
	}
	b.began = time.Now()
	cmd := j.java(context.Background(), []string{"-Xms1g", "-Xmx1g", "-XX:+UseG1GC"}, "kafka.Kafka", []string{properties})
	if b.Process, err = start(cmd, filepath.Join(cfg.Dir, "kafka.out"), nil); err != nil {
		return nil, err
	}
	return b, nil
}
