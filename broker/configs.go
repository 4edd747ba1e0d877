package broker

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
)

// describeConfigs answers DescribeConfigs from the image and server.properties.
func (h *handler) describeConfigs(r *wire.Request, req *kmsg.DescribeConfigsRequest) {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	for _, q := range req.Resources {
		a := kmsg.NewDescribeConfigsResponseResource()
		a.ResourceType, a.ResourceName = q.ResourceType, q.ResourceName
		entries, err := h.entries(q.ResourceType, q.ResourceName)
		if err != nil {
			a.ErrorCode, a.ErrorMessage = code(err), message(err)
		}
		for _, e := range entries {
			if q.ConfigNames == nil || slices.Contains(q.ConfigNames, e.Name) {
				a.Configs = append(a.Configs, configEntry(&e, req.IncludeSynonyms, req.IncludeDocumentation))
			}
		}
		resp.Resources = append(resp.Resources, a)
	}
	r.Reply(resp)
}

// entries lists the configuration of a resource.
func (h *handler) entries(t kmsg.ConfigResourceType, name string) ([]config.Entry, error) {
	img := h.follower.Image()
	layers := config.Layers{
		DynamicBroker:  img.Config(metadata.ResourceBroker, strconv.Itoa(int(h.cfg.NodeID))),
		DynamicDefault: img.Config(metadata.ResourceBroker, ""),
		Static:         h.cfg.Static,
	}
	switch t {
	case kmsg.ConfigResourceTypeTopic:
		if err := metadata.CheckTopicName(name); err != nil {
			return nil, err
		}
		topic := img.Topic(name)
		if topic == nil {
			return nil, fmt.Errorf("topic %s: %w", name, kerr.UnknownTopicOrPartition)
		}
		layers.Topic = img.Config(metadata.ResourceTopic, name)
		return topic.AsCreated(config.Describe(config.TopicScope, layers)), nil
	case kmsg.ConfigResourceTypeBroker:
		return h.brokerEntries(name, layers)
	case kmsg.ConfigResourceTypeBrokerLogger, kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig:
		return nil, nil // known kinds without any property here
	}
	return nil, fmt.Errorf("resource type %d: %w", t, kerr.InvalidRequest)
}

// brokerEntries lists the configuration of this broker, or what is set for all.
func (h *handler) brokerEntries(name string, layers config.Layers) ([]config.Entry, error) {
	if name == "" {
		var out []config.Entry
		for _, e := range config.Describe(config.BrokerScope, config.Layers{DynamicDefault: layers.DynamicDefault}) {
			if e.Source == config.DynamicDefaultBroker {
				out = append(out, e)
			}
		}
		return out, nil
	}
	id, err := strconv.Atoi(name)
	if err != nil {
		return nil, fmt.Errorf("broker id %q: %w", name, kerr.InvalidRequest)
	}
	if int32(id) != h.cfg.NodeID {
		return nil, fmt.Errorf("unexpected broker id, expected %d but received %d: %w", h.cfg.NodeID, id, kerr.InvalidRequest)
	}
	return config.Describe(config.BrokerScope, layers), nil
}

func configEntry(e *config.Entry, synonyms, docs bool) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.NewDescribeConfigsResponseResourceConfig()
	out.Name, out.Value = e.Name, configValue(e)
	out.ReadOnly, out.IsSensitive = e.ReadOnly, e.Sensitive
	out.Source, out.ConfigType = kmsg.ConfigSource(e.Source), kmsg.ConfigType(e.Type)
	if synonyms {
		for i := range e.Synonyms {
			s := &e.Synonyms[i]
			out.ConfigSynonyms = append(out.ConfigSynonyms, kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{
				Name: s.Name, Value: configValue(s), Source: kmsg.ConfigSource(s.Source)})
		}
	}
	if docs && e.Doc != "" {
		out.Documentation = &e.Doc
	}
	return out
}

func configValue(e *config.Entry) *string {
	if e.Null || e.Sensitive {
		return nil
	}
	return &e.Value
}

// alterConfigs forwards AlterConfigs, which replaces the whole configuration of
// each resource: what it does not name goes back to its default.
func (h *handler) alterConfigs(ctx context.Context, r *wire.Request, req *kmsg.AlterConfigsRequest) {
	resp, err := h.follower.forward(ctx, req, 0, func(resp kmsg.Response) bool {
		r, ok := resp.(*kmsg.AlterConfigsResponse)
		return ok && len(r.Resources) > 0 && r.Resources[0].ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		failed := kmsg.NewPtrAlterConfigsResponse()
		for _, q := range req.Resources {
			a := kmsg.NewAlterConfigsResponseResource()
			a.ResourceType, a.ResourceName, a.ErrorCode, a.ErrorMessage = q.ResourceType, q.ResourceName, unreachable(err), message(err)
			failed.Resources = append(failed.Resources, a)
		}
		resp = failed
	}
	r.Reply(resp)
}

// incrementalAlterConfigs forwards IncrementalAlterConfigs.
func (h *handler) incrementalAlterConfigs(ctx context.Context, r *wire.Request, req *kmsg.IncrementalAlterConfigsRequest) {
	resp, err := h.follower.forward(ctx, req, 0, func(resp kmsg.Response) bool {
		r, ok := resp.(*kmsg.IncrementalAlterConfigsResponse)
		return ok && len(r.Resources) > 0 && r.Resources[0].ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		failed := kmsg.NewPtrIncrementalAlterConfigsResponse()
		for _, q := range req.Resources {
			a := kmsg.NewIncrementalAlterConfigsResponseResource()
			a.ResourceType, a.ResourceName, a.ErrorCode, a.ErrorMessage = q.ResourceType, q.ResourceName, unreachable(err), message(err)
			failed.Resources = append(failed.Resources, a)
		}
		resp = failed
	}
	r.Reply(resp)
}
