package node

import (
	"bytes"
	"testing"
	"time"
)

func TestParseCPU(t *testing.T) {
	got, err := parseCPU("12 (a b) c) S 1 12 12 0 -1 4194304 1 0 0 0 150 25 7 7 20 0 1 0 5 6 7")
	if want := 1750 * time.Millisecond; err != nil || got != want {
		t.Fatalf("%v, %v; want %v", got, err, want)
	}
	if _, err := parseCPU("12 (a) S 1"); err == nil {
		t.Fatal("a short line was taken")
	}
}

func TestPomNamesTheRelease(t *testing.T) {
	if n := bytes.Count(pom, []byte("<version>"+KafkaVersion+"</version>")); n != 2 {
		t.Fatalf("pom.xml names Kafka %s %d times, want 2", KafkaVersion, n)
	}
}
