//lint:file-ignore ST1005 the texts are Kafka's

package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Validate checks one value for type and range. The error names property,
// value and reason; the value of a sensitive property is not shown.
func (p *Property) Validate(value string) error {
	err := p.check(strings.TrimSpace(value))
	if err == nil {
		return nil
	}
	if p.Sensitive {
		value = hidden
	}
	return &ValueError{Name: p.Name, Value: value, Reason: err.Error()}
}

// ValueError says why a value is not allowed. Its text is Kafka's.
type ValueError struct {
	Name, Value, Reason string
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("Invalid value %s for configuration %s: %s", e.Value, e.Name, e.Reason)
}

func (p *Property) check(value string) error {
	switch p.Type {
	case Boolean:
		_, err := parseBool(value)
		return err
	case Int:
		return p.checkInt(value, math.MinInt32, math.MaxInt32)
	case Short:
		return p.checkInt(value, math.MinInt16, math.MaxInt16)
	case Long:
		return p.checkInt(value, math.MinInt64, math.MaxInt64)
	case Double:
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("Not a number of type %s", p.Type)
		}
		return p.allowed.checkNumber(v)
	case List:
		return p.allowed.checkList(splitList(value))
	}
	return p.allowed.checkString(value)
}

func (p *Property) checkInt(value string, least, most int64) error {
	v, err := strconv.ParseInt(value, 10, 64)
	if err != nil || v < least || v > most {
		return fmt.Errorf("Not a number of type %s", p.Type)
	}
	return p.allowed.checkNumber(float64(v))
}

func parseBool(value string) (bool, error) {
	switch strings.ToLower(value) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("Expected value to be either true or false")
}

// splitList splits at commas, as Kafka does: blanks around elements do not
// count and the empty string is the empty list.
func splitList(value string) []string {
	value = strings.TrimSpace(value)
	if value == "" {
		return nil
	}
	elements := strings.Split(value, ",")
	for i := range elements {
		elements[i] = strings.TrimSpace(elements[i])
	}
	return elements
}

// constraint is what Kafka's notation says: a range "[0,...]" or "[1,...,9]",
// with "or -1" one number beside it, an enumeration "[a, b]", or "replicas"
// for a list of partition:broker pairs.
type constraint struct {
	text        string
	least, most float64
	isRange     bool
	also        float64 // NaN: none
	words       []string
	replicas    bool
}

func parseConstraint(text string) (constraint, error) {
	c := constraint{text: text, least: math.Inf(-1), most: math.Inf(1), also: math.NaN()}
	switch {
	case text == "":
		return c, nil
	case text == "replicas":
		c.replicas = true
		return c, nil
	}
	body, also, _ := strings.Cut(text, " or ")
	body, ok1 := strings.CutPrefix(body, "[")
	body, ok2 := strings.CutSuffix(body, "]")
	if !ok1 || !ok2 {
		return c, fmt.Errorf("constraint %s", text)
	}
	if !strings.Contains(body, "...") {
		c.words = splitList(body)
		return c, nil
	}
	c.isRange = true
	bounds := strings.Split(body, ",")
	var err error
	if c.least, err = strconv.ParseFloat(bounds[0], 64); err != nil {
		return c, err
	}
	if len(bounds) == 3 {
		if c.most, err = strconv.ParseFloat(bounds[2], 64); err != nil {
			return c, err
		}
	}
	if also != "" {
		c.also, err = strconv.ParseFloat(also, 64)
	}
	return c, err
}

func (c constraint) checkNumber(v float64) error {
	switch {
	case !c.isRange || v == c.also || v >= c.least && v <= c.most:
		return nil
	case v < c.least:
		return fmt.Errorf("Value must be at least %s", number(c.least))
	}
	return fmt.Errorf("Value must be no more than %s", number(c.most))
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func (c constraint) checkString(value string) error {
	if len(c.words) > 0 && !slices.Contains(c.words, value) {
		return fmt.Errorf("String must be one of: %s", strings.Join(c.words, ", "))
	}
	return nil
}

func (c constraint) checkList(elements []string) error {
	if c.replicas {
		return checkReplicas(elements)
	}
	seen := map[string]bool{}
	for _, e := range elements {
		if len(c.words) == 0 {
			continue
		}
		if err := c.checkString(e); err != nil {
			return err
		}
		if seen[e] {
			return fmt.Errorf("%s stands in the list twice", e)
		}
		seen[e] = true
	}
	return nil
}

// checkReplicas takes "*" or pairs of partition and broker.
func checkReplicas(elements []string) error {
	if len(elements) == 1 && elements[0] == "*" {
		return nil
	}
	for _, e := range elements {
		partition, broker, ok := strings.Cut(e, ":")
		_, err1 := strconv.ParseUint(partition, 10, 31)
		_, err2 := strconv.ParseUint(broker, 10, 31)
		if !ok || err1 != nil || err2 != nil {
			return fmt.Errorf("must be * or a list of [partitionId]:[brokerId], not %q", e)
		}
	}
	return nil
}
