package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Listener is one entry of listeners or advertised.listeners.
type Listener struct {
	Name     string // such as PLAINTEXT or CONTROLLER
	Protocol string // security protocol by listener.security.protocol.map
	Host     string // "" and "0.0.0.0": every address
	Port     int    // 0: any free port (of listeners only)
}

// Addr returns host:port.
func (l Listener) Addr() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

func (l Listener) String() string { return l.Name + "://" + l.Addr() }

// Voter is one entry of controller.quorum.voters.
type Voter struct {
	ID   int32
	Host string
	Port int
}

// Addr returns host:port.
func (v Voter) Addr() string { return net.JoinHostPort(v.Host, strconv.Itoa(v.Port)) }

// protocols are the security protocols of Kafka; served holds those that this
// version has.
var (
	protocols = map[string]bool{"PLAINTEXT": true, "SSL": true, "SASL_PLAINTEXT": true, "SASL_SSL": true}
	served    = map[string]bool{"PLAINTEXT": true}
)

// parseListener reads NAME://host:port.
func parseListener(s string, protocolOf map[string]string) (Listener, error) {
	name, addr, ok := strings.Cut(s, "://")
	if !ok || name == "" {
		return Listener{}, fmt.Errorf("%q is not of the form NAME://host:port", s)
	}
	host, port, err := splitHostPort(addr)
	if err != nil {
		return Listener{}, fmt.Errorf("%q: %w", s, err)
	}
	l := Listener{Name: strings.ToUpper(name), Host: host, Port: port}
	l.Protocol, ok = protocolOf[l.Name]
	if !ok {
		l.Protocol = l.Name
	}
	if !protocols[l.Protocol] {
		return Listener{}, fmt.Errorf("no security protocol for listener %s: add %s:PLAINTEXT to listener.security.protocol.map", l.Name, l.Name)
	}
	if !served[l.Protocol] {
		return Listener{}, fmt.Errorf("listener %s has the security protocol %s, which this version does not serve: use PLAINTEXT", l.Name, l.Protocol)
	}
	return l, nil
}

func splitHostPort(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port", addr)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not a port", text)
	}
	return host, int(n), nil
}

// parseProtocolMap reads NAME:PROTOCOL pairs. The controller listeners may be
// left out of a map that was not set, as in Kafka 4.
func parseProtocolMap(pairs, controllers []string) (map[string]string, error) {
	m := map[string]string{}
	for _, name := range controllers {
		m[strings.ToUpper(name)] = "PLAINTEXT"
	}
	for _, pair := range pairs {
		name, protocol, ok := strings.Cut(pair, ":")
		protocol = strings.ToUpper(strings.TrimSpace(protocol))
		if !ok || !protocols[protocol] {
			return nil, fmt.Errorf("%q is not NAME:PROTOCOL with one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", pair)
		}
		m[strings.ToUpper(strings.TrimSpace(name))] = protocol
	}
	return m, nil
}

// parseVoter reads id@host:port.
func parseVoter(s string) (Voter, error) {
	id, addr, ok := strings.Cut(s, "@")
	n, err := strconv.ParseInt(id, 10, 32)
	if !ok || err != nil || n < 0 {
		return Voter{}, fmt.Errorf("%q is not of the form id@host:port", s)
	}
	host, port, err := splitHostPort(addr)
	if err != nil {
		return Voter{}, fmt.Errorf("%q: %w", s, err)
	}
	return Voter{ID: int32(n), Host: host, Port: port}, nil
}
