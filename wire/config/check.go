package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Check validates a set of values by itself: known names, types, ranges, and
// the rules between properties with defaults for what is not set. The error
// names property, value and reason (UnknownError, ValueError).
//
// A broker's set may hold unknown names, as server.properties always could;
// Unknown lists them for a warning.
func Check(scope Scope, kv map[string]string) error {
	if scope == BrokerScope {
		_, err := ForBroker(kv)
		return errors.Join(checkValues(scope, kv), err)
	}
	return CheckTopic(Layers{Topic: kv})
}

// CheckTopic validates what is set on a topic under the broker's layers. If
// Static is not nil, a topic that is to be tiered needs a store in it.
func CheckTopic(layers Layers) error {
	if err := checkValues(TopicScope, layers.Topic); err != nil {
		return err
	}
	t, err := ForTopic(layers)
	if err != nil {
		return err
	}
	if err := checkCompaction(layers); err != nil {
		return err
	}
	if enabled, _ := parseBool(layers.Topic["remote.storage.enable"]); !enabled {
		return nil
	}
	if layers.Static != nil && layers.Static["varve.store.url"] == "" {
		return &ValueError{"remote.storage.enable", "true", "Tiered Storage functionality is disabled in the broker. " +
			"Set varve.store.url on the brokers and restart them"}
	}
	return checkTiered(t)
}

// CheckTopicChange validates the step from one set of a topic's values to
// another: tiering is not turned off without saying what becomes of the data
// (KIP-950).
func CheckTopicChange(old, new Layers) error {
	was, err := ForTopic(old)
	if err != nil {
		was = Topic{} // what is there is wrong already: any valid set may follow
	}
	if err := CheckTopic(new); err != nil {
		return err
	}
	is, err := ForTopic(new)
	if err != nil {
		return err
	}
	if was.RemoteStorageEnable && !is.RemoteStorageEnable && !is.RemoteDeleteOnDisable {
		return &ValueError{"remote.storage.enable", "false", "It is invalid to disable remote storage without deleting remote data. " +
			"If you want to keep the remote data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. " +
			"If you want to disable remote storage and delete all remote data, please set `remote.storage.enable=false,remote.log.delete.on.disable=true`."}
	}
	return nil
}

func checkValues(scope Scope, kv map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(kv)) {
		p, ok := Lookup(scope, name)
		if !ok {
			if scope == TopicScope {
				return &UnknownError{Name: name, Nearest: Nearest(scope, name)}
			}
			continue
		}
		if err := p.Validate(kv[name]); err != nil {
			return err
		}
	}
	return nil
}

func checkCompaction(layers Layers) error {
	r := newReader(TopicScope, layers)
	least, most := r.long("min.compaction.lag.ms"), r.long("max.compaction.lag.ms")
	if r.err == nil && least > most {
		r.failValue("min.compaction.lag.ms", fmt.Sprint(least), "must not exceed max.compaction.lag.ms (%d)", most)
	}
	return r.err
}

// checkTiered holds the rules of a topic with remote.storage.enable=true.
func checkTiered(t Topic) error {
	if t.CleanupCompact {
		return &ValueError{"cleanup.policy", "compact", "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."}
	}
	for _, limit := range []struct {
		unit                 string
		total, local, lag    int64
		localName, totalName string
	}{
		{"ms", t.RetentionMs, t.LocalRetentionMs, t.RemoteCopyLagMs, "local.retention.ms", "retention.ms"},
		{"bytes", t.RetentionBytes, t.LocalRetentionBytes, t.RemoteCopyLagBytes, "local.retention.bytes", "retention.bytes"},
	} {
		local := fmt.Sprint(limit.local)
		if limit.total >= 0 && limit.local == Unlimited {
			return &ValueError{limit.localName, local, fmt.Sprintf("Value must not be -1 as %s value is set as %d.", limit.totalName, limit.total)}
		}
		if limit.total >= 0 && limit.local > limit.total {
			return &ValueError{limit.localName, local, fmt.Sprintf("Value must not be more than property: %s value: %d.", limit.totalName, limit.total)}
		}
		if t.RemoteCopyDisable && limit.local != limit.total {
			return &ValueError{limit.localName, local, fmt.Sprintf("When `remote.log.copy.disable` is set to true, the `%s` and `%s` must be set to the identical "+
				"value because there will be no more logs copied to the remote storage.", limit.localName, limit.totalName)}
		}
		if limit.lag > 0 && limit.local >= 0 && limit.lag > limit.local {
			return &ValueError{"remote.copy.lag." + limit.unit, fmt.Sprint(limit.lag), fmt.Sprintf("Value must not be more than the effective %s (%d).", limit.localName, limit.local)}
		}
	}
	return nil
}

// CheckDynamic validates what is to be set on a running broker, or for all
// brokers (KIP-226).
func CheckDynamic(kv map[string]string, forAll bool) error {
	for _, name := range slices.Sorted(maps.Keys(kv)) {
		p, ok := Lookup(BrokerScope, name)
		switch {
		case !ok:
			return &UnknownError{Name: name, Nearest: Nearest(BrokerScope, name)}
		case p.Dynamic == ReadOnly:
			return &ValueError{name, kv[name], "Cannot update this configuration dynamically: set it in server.properties and restart the broker"}
		case p.Dynamic == PerBroker && forAll:
			return &ValueError{name, kv[name], "Cannot update this configuration for all brokers: set it on each"}
		}
	}
	return checkValues(BrokerScope, kv)
}
