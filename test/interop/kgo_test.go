package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// brokerTests are the tests of franz-go's kgo package that meet a broker and
// need neither groups nor transactions.
var brokerTests = []string{
	"TestAddRemovePartitions",
	"TestClient_Produce",
	"TestClient_ProduceLargeMessages",
	"TestConsumeMaxDecompressBatchBytes",
	"TestConsumeRegex",
	"TestDirectPartitionPurge",
	"TestHookPollStart",
	"TestIssue1034",
	"TestIssue325",
	"TestIssue337",
	"TestIssue434",
	"TestIssue648",
	"TestIssue769",
	"TestIssue810",
	"TestIssue831",
	"TestIssue865",
	"TestIssueFetchLargerThanBrokerMaxReadBytes",
	"TestIssueProduceBrokerTooOldFailsRecords",
	"TestIssueProduceSyncManualPartitionNegativeDoesNotPanic",
	"TestPauseIssue489",
	"TestPauseIssueOct2023",
	"TestPing",
	"TestPooling",
}

// tooOld is skipped by itself where the broker advertises Produce from version
// 0, which Apache Kafka does for the sake of older librdkafkas, and Varve with it.
const (
	tooOld     = "TestIssueProduceBrokerTooOldFailsRecords"
	tooOldText = "broker still takes produce v2"
)

const kgoPackage = "github.com/twmb/franz-go/pkg/kgo"

// TestFranzGoSuite runs franz-go's own tests against the node, and makes sure
// that each of them notices if there is none.
func TestFranzGoSuite(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "kgo.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", bin, kgoPackage).CombinedOutput(); err != nil {
		t.Fatalf("build franz-go's tests: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", kgoPackage).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(out))

	t.Run("node", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		passed, failed, out := runKgo(ctx, bin, dir, target.addr, brokerTests)
		if !slices.Equal(passed, brokerTests) {
			t.Errorf("passed %d of %d, failed: %v\n%s", len(passed), len(brokerTests), failed, out)
		}
	})
	t.Run("closed port", func(t *testing.T) {
		// One process a test: where nobody answers most of them wait for ever.
		closed := closedPort(t)
		var (
			wg    sync.WaitGroup
			turns = make(chan struct{}, 12)
		)
		for _, name := range brokerTests {
			wg.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if passed, _, _ := runKgo(ctx, bin, dir, closed, []string{name}); len(passed) > 0 {
					t.Errorf("%s passes without a broker: it shows nothing", name)
				}
			})
		}
		wg.Wait()
	})
}

var verdict = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\w+)`)

// runKgo runs some tests and returns, sorted, which passed and which did not.
func runKgo(ctx context.Context, bin, dir, addr string, tests []string) (passed, others []string, output string) {
	cmd := exec.CommandContext(ctx, bin, "-test.v", "-test.run", "^("+strings.Join(tests, "|")+")$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KGO_SEEDS="+addr, "KGO_TEST_RF=1", "KGO_TEST_RECORDS=20000", "KGO_LOG_LEVEL=warn")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		fmt.Fprintf(&out, "\ncut off: %v\n", err)
	}
	for _, m := range verdict.FindAllStringSubmatch(out.String(), -1) {
		if m[1] == "PASS" || m[1] == "SKIP" && m[2] == tooOld && strings.Contains(out.String(), tooOldText) {
			passed = append(passed, m[2])
		}
	}
	slices.Sort(passed)
	for _, name := range tests {
		if !slices.Contains(passed, name) {
			others = append(others, name)
		}
	}
	const most = 20 << 10
	text := out.String()
	return passed, others, text[max(0, len(text)-most):]
}

// closedPort is a loopback address that refuses connections.
func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
