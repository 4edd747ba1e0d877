package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/varve-io/varve/wire/config"
)

// settings is a node's static configuration and where each value came from.
type settings struct {
	values map[string]string
	from   map[string]string // such as "server.properties" or "environment"
}

// loadSettings reads a properties file (path may be empty), the environment
// and --set, each going before the last.
func loadSettings(path string, env, sets []string) (settings, error) {
	s := settings{map[string]string{}, map[string]string{}}
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return s, &problem{"file " + path, innermost(err), ""}
		}
		values, err := parseProperties(string(text))
		if err != nil {
			return s, &problem{"file " + path, err, ""}
		}
		for name, value := range values {
			s.set(name, value, path)
		}
	}
	s.readEnvironment(env)
	for _, pair := range sets {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || strings.TrimSpace(name) == "" {
			return s, &problem{"--set " + pair, errors.New("is not name=value"), ""}
		}
		s.set(strings.TrimSpace(name), strings.TrimSpace(value), "--set")
	}
	return s, nil
}

func (s settings) set(name, value, from string) {
	s.values[name], s.from[name] = value, from
}

// setDefault gives a value to what is not set.
func (s settings) setDefault(name, value string) {
	if _, ok := s.values[name]; !ok {
		s.set(name, value, "default")
	}
}

const envPrefix = "VARVE_"

// clientEnv are the variables of our own that are no properties.
var clientEnv = map[string]bool{"VARVE_BOOTSTRAP_SERVER": true, "VARVE_ADMIN": true, "VARVE_MINIO": true}

// envName is the environment variable of a property: log.dirs is
// VARVE_LOG_DIRS and varve.store.url VARVE_STORE_URL.
func envName(property string) string {
	name := strings.TrimPrefix(property, "varve.")
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(name))
}

func (s settings) readEnvironment(env []string) {
	properties := map[string]string{}
	for p := range config.All(config.BrokerScope) {
		properties[envName(p.Name)] = p.Name
	}
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || clientEnv[name] {
			continue
		}
		property, ok := properties[name]
		if !ok { // keep it, so that it is warned of
			property = strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, envPrefix), "_", "."))
		}
		s.set(property, value, "environment")
	}
}

// warnings tells of what is set without effect: names that nobody knows, with
// the nearest that is known, and Kafka's that mean nothing here.
func (s settings) warnings() (unknown, ignored []string) {
	for _, name := range config.Unknown(config.BrokerScope, s.values) {
		text := fmt.Sprintf("unknown property %s (%s)", name, s.from[name])
		nearest := config.Nearest(config.BrokerScope, name)
		if nearest == "" {
			nearest = config.Nearest(config.BrokerScope, "varve."+name)
		}
		if nearest != "" {
			text += ", did you mean " + nearest + "?"
		}
		unknown = append(unknown, text)
	}
	for _, name := range sortedKeys(s.values) {
		if p, ok := config.Lookup(config.BrokerScope, name); ok && p.Ignored {
			ignored = append(ignored, name)
		}
	}
	return unknown, ignored
}

// parseProperties reads the format of java.util.Properties.
func parseProperties(text string) (map[string]string, error) {
	values := map[string]string{}
	number := 0
	var logical string
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimLeft(strings.TrimRight(line, "\r\n"), " \t\f")
		if logical == "" && (line == "" || line[0] == '#' || line[0] == '!') {
			continue
		}
		if continues(line) {
			logical += line[:len(line)-1]
			continue
		}
		logical += line
		name, value, err := splitProperty(logical)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		values[name] = value
		logical = ""
	}
	if logical != "" {
		name, value, err := splitProperty(logical)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		values[name] = value
	}
	return values, nil
}

// continues reports whether a line ends in an odd number of backslashes.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// splitProperty cuts at the first =, : or blank that is not escaped.
func splitProperty(line string) (name, value string, err error) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
		} else if strings.IndexByte("=: \t\f", line[i]) >= 0 {
			end = i
			break
		}
	}
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	if name, err = unescapeProperty(line[:end]); err != nil {
		return "", "", err
	}
	value, err = unescapeProperty(rest)
	return name, strings.TrimRight(value, " \t"), err
}

func unescapeProperty(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			if len(s) < i+5 {
				return "", fmt.Errorf("unfinished escape \\%s", s[i:])
			}
			v, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
			if err != nil {
				return "", fmt.Errorf("escape \\%s is no character", s[i:i+5])
			}
			b.WriteRune(rune(v))
			i += 4
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}
