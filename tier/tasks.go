package tier

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/controller/metadata"
)

// taskInterval is how often a broker looks for tasks that are its to do, and tries again those that failed.
const taskInterval = 5 * time.Second

// serveTasks carries out the cluster tasks that the image assigns to this broker, one after the other.
func (m *Manager) serveTasks(ctx context.Context) {
	failed := map[uint64]string{} // what was said of a task last, so that it is said once
	for sleep(ctx, taskInterval) == nil {
		for task := range m.cfg.Image().Tasks() {
			if task.Assignee != m.cfg.NodeID || task.Kind != metadata.PurgeTopic {
				continue
			}
			begun := time.Now()
			err := m.PurgeTopic(ctx, task)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				delete(failed, task.ID)
				m.log.Info("deleted topic is gone from the object store", "topic", task.Topic, "id", task.TopicID, "took", time.Since(begun))
			case errors.Is(err, kerr.OperationNotAttempted):
				// an upload was under way: what it may have left is there at the latest when its reservation ends
			case failed[task.ID] != err.Error():
				failed[task.ID] = err.Error()
				m.log.Warn("deleted topic remains in the object store, trying again", "topic", task.Topic, "error", err)
			}
		}
	}
}
