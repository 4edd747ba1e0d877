package wire

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// apiVersions answers ApiVersions, which is allowed to anyone at any time.
func (c *Conn) apiVersions(r *Request) {
	req, ok := r.Body.(*kmsg.ApiVersionsRequest)
	if !ok { // a version we do not know: version 0 form, our own range, and the client asks again (KIP-511)
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{versionsOf(r.api)}
		r.Reply(resp)
		return
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = r.Version
	if err := c.checkApiVersions(req); err != nil {
		resp.ErrorCode = err.Code
		r.Reply(resp)
		return
	}
	c.ClientSoftwareName, c.ClientSoftwareVersion = req.ClientSoftwareName, req.ClientSoftwareVersion
	for _, a := range APIs(c.srv.cfg.Role) {
		resp.ApiKeys = append(resp.ApiKeys, versionsOf(&a))
	}
	if c.srv.cfg.Features != nil {
		setFeatures(resp, c.srv.cfg.Features())
	}
	r.Reply(resp)
}

func versionsOf(a *API) kmsg.ApiVersionsResponseApiKey {
	return kmsg.ApiVersionsResponseApiKey{ApiKey: a.Key, MinVersion: a.AdvertiseMin, MaxVersion: a.Max}
}

// checkApiVersions checks what the client says of itself (version 3) and whom
// it believes to speak to (version 5, KIP-1242).
func (c *Conn) checkApiVersions(req *kmsg.ApiVersionsRequest) *kerr.Error {
	if req.Version >= 3 && (!validSoftware(req.ClientSoftwareName) || !validSoftware(req.ClientSoftwareVersion)) {
		return kerr.InvalidRequest
	}
	if req.Version < 5 || req.ClusterID == nil && req.NodeID == -1 {
		return nil
	}
	if req.ClusterID == nil || req.NodeID == -1 {
		return kerr.InvalidRequest
	}
	if c.srv.cfg.Identity == nil {
		return nil
	}
	if cluster, node := c.srv.cfg.Identity(); *req.ClusterID != cluster || req.NodeID != node {
		return kerr.RebootstrapRequired
	}
	return nil
}

// validSoftware matches [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])? and is no
// stricter than that.
func validSoftware(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		inner := (c == '-' || c == '.') && i > 0 && i < len(s)-1
		if !alnum && !inner {
			return false
		}
	}
	return s != ""
}

// setFeatures tells features. A supported feature whose lowest level is 0 is
// left out below version 4: old Java clients cannot read it (KAFKA-17492).
func setFeatures(resp *kmsg.ApiVersionsResponse, f Features) {
	for _, s := range f.Supported {
		if resp.Version >= 4 || s.Min > 0 {
			resp.SupportedFeatures = append(resp.SupportedFeatures, kmsg.ApiVersionsResponseSupportedFeature{Name: s.Name, MinVersion: s.Min, MaxVersion: s.Max})
		}
	}
	resp.FinalizedFeaturesEpoch = f.FinalizedEpoch
	for _, s := range f.Finalized {
		if s.Max > 0 {
			resp.FinalizedFeatures = append(resp.FinalizedFeatures, kmsg.ApiVersionsResponseFinalizedFeature{Name: s.Name, MinVersionLevel: s.Min, MaxVersionLevel: s.Max})
		}
	}
}
